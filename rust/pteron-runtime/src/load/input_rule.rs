//! What a call's inputs are checked against, prepared at load so that a check is a few comparisons.

use crate::ir::{MethodIr, Placement};
use crate::load::extent_expression::{ExtentExpression, Linear};
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

/// An extent that is computed from others.
pub(crate) struct Relation {
    /// The input, and its dimension.
    pub input: usize,
    pub dim: usize,
    pub expression: ExtentExpression,
    /// What gives a symbol its value that no extent is equal to.
    pub solves: Option<Linear>,
}

/// What a call's inputs are checked against.
pub(crate) struct InputRules {
    pub rules: Vec<InputRule>,
    /// In an order in which every symbol has its value, or gets it, where it is needed.
    pub relations: Vec<Relation>,
    /// Number of distinct symbols.
    pub symbol_count: usize,
}

/// Rules for all inputs.
pub(crate) fn input_rules(ir: &MethodIr, specs: &[IoSpec], copied: &HashSet<ValueId>) -> Result<InputRules> {
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
                if ir.tensor(*id).is_some_and(|t| matches!(t.placement, Placement::Constant(_))) {
                    return Err(Error::program("an input is a constant")
                        .expected("a value that no stored data belongs to")
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
    let relations = relations(specs, &rules, &mut symbols).map_err(|e| e.method(ir.name.as_str()))?;
    Ok(InputRules { rules, relations, symbol_count: symbols.len() })
}

/// The relations between extents that can be checked: all of whose symbols are extents, integers or can be
/// solved for.
fn relations(
    specs: &[IoSpec],
    rules: &[InputRule],
    symbols: &mut HashMap<String, usize>,
) -> Result<Vec<Relation>> {
    let mut known: HashSet<usize> = HashSet::new();
    for rule in rules {
        match &rule.kind {
            RuleKind::Tensor(t) => known.extend(t.extents.iter().filter_map(|e| e.symbol)),
            RuleKind::Int { symbol, .. } => known.extend(symbol),
            _ => {}
        }
    }
    let mut open = Vec::new();
    for (input, spec) in specs.iter().enumerate() {
        let IoKind::Tensor(tensor) = &spec.kind else { continue };
        for (dim, extent) in tensor.extents.iter().enumerate() {
            let Extent::Range { expression: Some(text), .. } = extent else { continue };
            let expression = ExtentExpression::parse(text, &mut |name| {
                let next = symbols.len();
                *symbols.entry(name.to_string()).or_insert(next)
            })
            .map_err(|e| e.argument(spec.name.as_str()))?;
            open.push(Relation { input, dim, expression, solves: None });
        }
    }
    let mut ordered = Vec::new();
    loop {
        let count = ordered.len();
        let mut rest = Vec::new();
        for mut relation in open {
            if !relation.expression.symbols().all(|s| known.contains(&s)) {
                relation.solves = relation.expression.linear();
                let Some(linear) = relation.solves else {
                    rest.push(relation);
                    continue;
                };
                known.insert(linear.symbol);
            }
            ordered.push(relation);
        }
        if rest.is_empty() || ordered.len() == count {
            return Ok(ordered);
        }
        open = rest;
    }
}
