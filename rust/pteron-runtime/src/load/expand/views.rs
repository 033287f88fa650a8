//! Reshapes within a delegate that need no copy: the result is a view of the bytes of what is reshaped, as files without
//! delegates have it.

use crate::ir::{MethodIr, Placement};
use pteron_core::{TensorSpec, Value, ValueId};
use pteron_xnnpack::{ExpandedTensor, Expansion, OperatorCall};

/// The operator that copies elements to a tensor of another shape.
const COPY: &str = "aten::view_copy.out";

/// Which values of an expansion are views, of which.
pub(super) struct Views {
    /// For each value, the one whose bytes it has in the end.
    roots: Vec<Option<usize>>,
}

impl Views {
    /// The views of `expansion`, called with `args` in `ir`.
    pub(super) fn new(expansion: &Expansion, ir: &MethodIr, args: &[ValueId]) -> Views {
        let mut views = Views { roots: vec![None; expansion.values.len()] };
        for call in &expansion.calls {
            if let Some((from, to)) = views.view(expansion, call, ir, args)
                && let Some(slot) = views.roots.get_mut(to)
            {
                *slot = Some(from);
            }
        }
        views
    }

    /// The value whose bytes a view has; nothing for a value that has bytes of its own.
    pub(super) fn root(&self, value: usize) -> Option<usize> {
        self.roots.get(value).copied().flatten()
    }

    /// Is the result of a call a view? It needs no copy then, only the operator that makes it so.
    pub(super) fn is_view(&self, call: &OperatorCall) -> bool {
        call.operator == COPY && call.outputs.iter().any(|out| self.root(*out).is_some())
    }

    /// The root of what is reshaped and the result, where a view does for a copy: both row-major, and the memory known.
    fn view(
        &self,
        expansion: &Expansion,
        call: &OperatorCall,
        ir: &MethodIr,
        args: &[ValueId],
    ) -> Option<(usize, usize)> {
        let (COPY, &[from, _], &[to]) = (call.operator, call.inputs.as_slice(), call.outputs.as_slice())
        else {
            return None;
        };
        let root = self.root(from).unwrap_or(from);
        let tensor = |index: usize| match expansion.values.get(index) {
            Some(Value::Tensor(tensor)) => Some(&**tensor),
            _ => None,
        };
        let ExpandedTensor::Intermediate(result) = tensor(to)? else { return None };
        let spec = |index: usize| -> Option<&TensorSpec> {
            match tensor(index)? {
                ExpandedTensor::Intermediate(spec) => Some(spec),
                ExpandedTensor::Argument(at) => {
                    let tensor = ir.tensor(*args.get(*at)?)?;
                    (tensor.is_temporary() && matches!(tensor.placement, Placement::Planned { .. }))
                        .then_some(&tensor.spec)
                }
                ExpandedTensor::Constant(_) => None,
            }
        };
        let (of, whole) = (spec(from)?, spec(root)?);
        let is_alike =
            of.dtype == result.dtype && of.dim_order.is_contiguous() && result.dim_order.is_contiguous();
        let fits = result.nbytes().ok()? <= whole.nbytes().ok()?;
        (is_alike && fits && self.root(to).is_none() && to != root).then_some((root, to))
    }
}
