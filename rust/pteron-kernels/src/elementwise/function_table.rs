//! Which elementwise function a call of an operator is: what the rows of the operator table say, by name.

use super::function::ElementwiseCall;
use crate::operator::{ElementwiseFunction, Operator};
use pteron_core::ArgSpec;
use std::sync::LazyLock;

/// The rows with elementwise functions, by name.
static ROWS: LazyLock<Vec<(&'static str, &'static Operator)>> = LazyLock::new(|| {
    let rows = crate::operators().filter(|row| row.functions().next().is_some());
    let mut rows: Vec<_> = rows.map(|row| (row.name(), row)).collect();
    rows.sort_unstable_by_key(|(name, _)| *name);
    rows
});

/// The functions that a call of `operator` may be.
fn functions_of(operator: &str) -> impl Iterator<Item = ElementwiseFunction> {
    let found = ROWS.binary_search_by_key(&operator, |(name, _)| *name);
    found.into_iter().flat_map(|i| ROWS[i].1.functions())
}

/// May a call of `operator` be an elementwise function?
pub fn is_elementwise(operator: &str) -> bool {
    functions_of(operator).next().is_some()
}

/// The operators that [`recognise`] knows, sorted.
pub fn operators() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

/// What `operator` computes with `args`, if that is an elementwise f32 function with a fast kernel: its
/// tensors are f32 (bool where a condition or an answer is meant) and its numbers are known at load.
pub fn recognise(operator: &str, args: &[ArgSpec<'_>]) -> Option<ElementwiseCall> {
    functions_of(operator).find_map(|function| (function.recognise)(args))
}
