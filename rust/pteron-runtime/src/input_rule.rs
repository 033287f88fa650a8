//! What a call's inputs are checked against, prepared at load so that a check is a few comparisons.

use crate::ir::{MethodIr, Place, ValueIr};
use crate::{Extent, IoKind, IoSpec};
use pteron_core::{DType, DimOrder, Error, Result, ValueId};
use std::collections::{HashMap, HashSet};

/// One input.
pub(crate) struct InputRule {
    pub id: ValueId,
    pub kind: RuleKind,
}

/// What may stand there.
pub(crate) enum RuleKind {
    Tensor(TensorRule),
    Int { traced: i64, range: Option<(i64, i64)>, symbol: Option<usize> },
    Bool(bool),
    Double(f64),
    String,
    None,
}

/// A tensor input.
pub(crate) struct TensorRule {
    pub dtype: DType,
    pub extents: Vec<ExtentRule>,
    pub dim_order: DimOrder,
    /// Copied into planned memory.
    pub is_planned: bool,
    /// Copied even though it is unplanned: an instruction may write it.
    pub is_copied: bool,
}

/// One extent.
pub(crate) struct ExtentRule {
    pub min: usize,
    pub max: usize,
    /// Index among the method's symbols; equal symbols are equal extents.
    pub symbol: Option<usize>,
}

/// Rules for all inputs, and the number of distinct symbols.
pub(crate) fn input_rules(
    ir: &MethodIr,
    specs: &[IoSpec],
    copied: &HashSet<ValueId>,
) -> Result<(Vec<InputRule>, usize)> {
    let mut symbols: HashMap<String, usize> = HashMap::new();
    let mut number = |name: &Option<String>| {
        name.as_ref().map(|n| {
            let next = symbols.len();
            *symbols.entry(n.clone()).or_insert(next)
        })
    };
    let mut rules = Vec::new();
    let mut seen = HashSet::new();
    for (id, spec) in ir.inputs.iter().zip(specs) {
        if !seen.insert(*id) {
            return Err(Error::program("two inputs are the same value")
                .method(ir.name.as_str())
                .argument(spec.name.as_str())
                .got(format!("value {}", id.0)));
        }
        let kind = match &spec.kind {
            IoKind::Tensor(t) => {
                if let Some(ValueIr::Tensor(tensor)) = ir.values.get(id.index())
                    && matches!(tensor.place, Place::Constant(_) | Place::Folded(_))
                {
                    return Err(Error::program("an input is a constant")
                        .method(ir.name.as_str())
                        .argument(spec.name.as_str()));
                }
                let extents = t.extents.iter().map(|e| {
                    let (min, max) = e.range();
                    let symbol = match e {
                        Extent::Range { symbol, .. } => number(symbol),
                        Extent::Static(_) => None,
                    };
                    ExtentRule { min, max, symbol }
                });
                RuleKind::Tensor(TensorRule {
                    dtype: t.dtype,
                    extents: extents.collect(),
                    dim_order: t.dim_order,
                    is_planned: t.is_planned,
                    is_copied: copied.contains(id),
                })
            }
            IoKind::Int { traced, range, symbol } => {
                RuleKind::Int { traced: *traced, range: *range, symbol: number(symbol) }
            }
            IoKind::Bool { traced } => RuleKind::Bool(*traced),
            IoKind::Double { traced } => RuleKind::Double(*traced),
            IoKind::String { .. } => RuleKind::String,
            IoKind::None => RuleKind::None,
        };
        rules.push(InputRule { id: *id, kind });
    }
    Ok((rules, symbols.len()))
}
