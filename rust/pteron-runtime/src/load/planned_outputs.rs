//! Outputs with a place in the memory plan that can be computed in a buffer of the caller instead.
//!
//! That is so where nobody can tell the difference: from the step that first writes the output on, no step
//! looks at other values in its bytes, nothing is a view of it, and the step writes all of it, from arguments that
//! lie elsewhere.

use crate::ir::{MethodIr, Placement, TensorIr};
use crate::load::code_builder::tensor_roles;
use crate::load::step::{Action, KernelStep, Step};
use pteron_core::{AliasRule, ValueId};

/// Bytes of an arena: index, start, end.
type Range = (u32, usize, usize);

/// The outputs that may move. `links`: (from, to) of every move and view. Steps must have neither jumps nor
/// delegate calls ([`crate::session::bound_outputs::are_allowed`]).
pub(crate) fn movable(ir: &MethodIr, steps: &[Step], links: &[(ValueId, ValueId)]) -> Vec<ValueId> {
    let mut out: Vec<ValueId> = Vec::new();
    for id in &ir.outputs {
        let is_linked = links.iter().any(|(from, to)| from == id || to == id);
        if let Some(range) = plain_range(ir, *id)
            && !is_linked
            && !out.contains(id)
            && !ir.inputs.contains(id)
            && !ir.outputs.iter().any(|other| other != id && overlaps(ir, *other, range))
            && is_apart_once_written(ir, steps, *id, range)
        {
            out.push(*id);
        }
    }
    out
}

/// The bytes of a value that is planned and no buffer of the model.
fn plain_range(ir: &MethodIr, id: ValueId) -> Option<Range> {
    range(ir, id).filter(|_| ir.tensor(id).is_some_and(TensorIr::is_temporary))
}

fn range(ir: &MethodIr, id: ValueId) -> Option<Range> {
    let tensor = ir.tensor(id)?;
    match &tensor.placement {
        Placement::Planned { arena, offset, .. } => {
            Some((*arena, *offset, offset.checked_add(tensor.spec.nbytes().ok()?)?))
        }
        _ => None,
    }
}

fn overlaps(ir: &MethodIr, id: ValueId, (arena, start, end): Range) -> bool {
    range(ir, id).is_some_and(|(a, s, e)| a == arena && s.max(start) < e.min(end))
}

fn is_apart_once_written(ir: &MethodIr, steps: &[Step], id: ValueId, bytes: Range) -> bool {
    let mut is_written = false;
    for step in steps {
        let Action::Kernel(kernel) = &step.action else { continue };
        let roles = tensor_roles(ir, &kernel.schema, &step.args);
        let is_mentioned = roles.iter().any(|r| r.value == id);
        if is_mentioned && (kernel.overlap_check.is_some() || kernel.alias == AliasRule::View) {
            return false;
        }
        if !is_written && is_mentioned {
            let is_read = roles.iter().any(|r| r.value == id && !r.is_output);
            if is_read || !writes_all(kernel) {
                return false;
            }
            is_written = true;
        }
        if is_written && roles.iter().any(|r| r.value != id && overlaps(ir, r.value, bytes)) {
            return false;
        }
    }
    is_written
}

/// Does the kernel write all of its outputs, whatever was there?
fn writes_all(kernel: &KernelStep) -> bool {
    let works_on_self = kernel.schema.args.first().is_some_and(|a| a.is_output);
    kernel.alias != AliasRule::Update && !works_on_self
}
