//! Everything that one runtime does with a file: load, build, call and drop; and how two such runs differ.

use crate::call_method::{Extents, LIMITS, call};
use crate::mutation::Mutant;
use crate::oracles::{are_close, are_same};
use pteron_core::{DType, Error};
use pteron_runtime::{
    DataSource, ExecuteOptions, Limits, Method, MethodOptions, OutputValue, Program, ProgramSource, Runtime,
};
use std::sync::Arc;

/// The place that says that a file has packed weights.
const PACKS: &str = "packed weights";
/// Methods of a file that are built.
const MOST_METHODS: usize = 4;

/// What came of a place: loading, building a method, one call of it, its state after them.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A refusal: kind and text.
    Refused(String, String),
    Results(Vec<Output>),
}

impl Outcome {
    fn refused(error: &Error) -> Outcome {
        Outcome::Refused(format!("{:?}", error.kind()), error.to_string())
    }
}

/// One output, or a tensor of the state.
#[derive(Debug, PartialEq)]
pub(crate) enum Output {
    Tensor(DType, Vec<usize>, Vec<u8>),
    Other(String),
}

/// What came of every place, in order.
pub(crate) struct FileRun(pub(crate) Vec<(String, Outcome)>);

impl FileRun {
    /// Loads, builds, calls twice and drops, in `runtime`.
    pub(crate) fn new(runtime: &Arc<Runtime>, mutant: &Mutant) -> FileRun {
        let mut out = FileRun(Vec::new());
        let loaded = match load(runtime, mutant, LIMITS) {
            Ok(loaded) => loaded,
            Err(e) => {
                out.push("load", Outcome::refused(&e));
                return out;
            }
        };
        drop(loaded.listing());
        if loaded.named_data("pteron.packed").is_some() {
            out.push(PACKS, Outcome::Results(vec![]));
        }
        for (at, name) in loaded.methods().into_iter().take(MOST_METHODS).enumerate() {
            match loaded.load_method(name, MethodOptions { seed: Some(7), ..Default::default() }) {
                Ok(method) => {
                    drop(loaded.plan_listing(name));
                    out.method(&method, at);
                }
                Err(e) => out.push(format!("build of method {at}"), Outcome::refused(&e)),
            }
        }
        out
    }

    fn push(&mut self, place: impl Into<String>, outcome: Outcome) {
        self.0.push((place.into(), outcome));
    }

    /// Two calls, with few rows and with as many as may be, and the state after them.
    fn method(&mut self, method: &Method, at: usize) {
        for (number, extents) in [Extents::Few, Extents::Most].into_iter().enumerate() {
            let outcome = match call(method, extents, number as u64 + 1, ExecuteOptions::default()) {
                Ok(None) => Outcome::Results(vec![Output::Other("inputs too large to call".into())]),
                Ok(Some(outputs)) => Outcome::Results(outputs.iter().map(output).collect()),
                Err(e) => Outcome::refused(&e),
            };
            // A refused call may have written a part of the state, and with plans another part.
            if matches!(outcome, Outcome::Refused(..))
                && method.is_stateful()
                && let Err(e) = method.reset_state()
            {
                self.push(format!("reset after call {number} of method {at}"), Outcome::refused(&e));
            }
            self.push(format!("call {number} of method {at}"), outcome);
        }
        if method.is_stateful() {
            let state = match method.get_state() {
                Ok(state) => Outcome::Results(
                    state.iter().map(|(_, t)| tensor(t.meta.dtype(), t.meta.shape(), t.bytes())).collect(),
                ),
                Err(e) => Outcome::refused(&e),
            };
            self.push(format!("state of method {at}"), state);
        }
    }

    /// Does the file bring packed weights?
    pub(crate) fn has_packs(&self) -> bool {
        self.0.iter().any(|(place, _)| place == PACKS)
    }

    /// Did a kernel that stands for several calls refuse the shapes that it was given?
    pub(crate) fn is_refused_by_plan(&self) -> bool {
        self.0.iter().any(|(place, outcome)| {
            let Outcome::Refused(kind, text) = outcome else { return false };
            let operator =
                text.split("operator ").nth(1).and_then(|rest| rest.split(": ").next()).unwrap_or("");
            // Operators of files have a namespace.
            let is_plan = operator.contains(" + ") || !operator.is_empty() && !operator.contains("::");
            kind == "Kernel" && is_plan && place.contains("call") && text.contains("shape")
        })
    }

    /// Was a place refused here that was not refused in `other`?
    pub(crate) fn is_refused_before(&self, other: &FileRun) -> bool {
        let refused = |run: &FileRun, wanted: &str| {
            run.0.iter().any(|(place, o)| place == wanted && matches!(o, Outcome::Refused(..)))
        };
        self.0.iter().any(|(place, o)| matches!(o, Outcome::Refused(..)) && !refused(other, place))
    }

    /// The first place where `other` did something else, as text.
    pub(crate) fn difference(
        &self,
        other: &FileRun,
        is_same: impl Fn(&Output, &Output) -> bool,
    ) -> Option<String> {
        for (place, x) in &self.0 {
            // What keeps state may be left out by a plan, so that there is none to look at.
            let Some((_, y)) = other.0.iter().find(|(p, _)| p == place) else {
                if place.starts_with("state") || place == PACKS {
                    continue;
                }
                let others = &other.0;
                return Some(format!(
                    "{place} came about in one setting only: {x:.300?}, not in {others:.300?}"
                ));
            };
            match (x, y) {
                // Which of several faults is named first may depend on the plan.
                (Outcome::Refused(..), Outcome::Refused(..)) => {}
                (Outcome::Results(x), Outcome::Results(y)) => {
                    if let Some(at) = x.iter().zip(y).position(|(x, y)| !is_same(x, y)) {
                        let (x, y) = (&x[at], &y[at]);
                        return Some(format!("output {at} of {place} differs: {x:.300?} {y:.300?}"));
                    }
                    if x.len() != y.len() {
                        return Some(format!("{place} has another number of outputs"));
                    }
                }
                // Time that is spent is no property of the program.
                (Outcome::Refused(kind, _), _) | (_, Outcome::Refused(kind, _))
                    if kind == "DeadlineExceeded" => {}
                (x, y) => return Some(format!("{place} is {x:.400?} and {y:.400?}")),
            }
        }
        None
    }
}

/// The program of a mutant with its data file.
///
/// Errors: it is refused.
pub(crate) fn load(
    runtime: &Arc<Runtime>,
    mutant: &Mutant,
    limits: Limits,
) -> pteron_core::Result<Arc<Program>> {
    let source = |bytes: &Arc<Vec<u8>>| ProgramSource::Bytes(bytes.clone());
    let data = mutant.data.iter().map(|d| DataSource { source: source(d), name: "seed.ptd".into() });
    Program::load_with_data(runtime, source(&mutant.program), data.collect(), limits)
}

fn tensor(dtype: DType, shape: &[usize], bytes: &[u8]) -> Output {
    Output::Tensor(dtype, shape.to_vec(), bytes.to_vec())
}

fn output(value: &OutputValue) -> Output {
    match value {
        OutputValue::Tensor(t) => tensor(t.meta.dtype(), t.meta.shape(), t.bytes()),
        other => Output::Other(format!("{other:?}")),
    }
}

fn floats(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    match dtype {
        DType::Float32 => {
            Some(bytes.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).collect())
        }
        DType::Float64 => Some(bytes.as_chunks::<8>().0.iter().map(|c| f64::from_le_bytes(*c)).collect()),
        _ => None,
    }
}

/// The elements of two tensors of one dtype and shape.
fn pair(a: &Output, b: &Output) -> Option<[Vec<f64>; 2]> {
    match (a, b) {
        (Output::Tensor(dtype, shape, x), Output::Tensor(other, other_shape, y))
            if dtype == other && shape == other_shape =>
        {
            Some([floats(*dtype, x)?, floats(*dtype, y)?])
        }
        _ => None,
    }
}

/// The same bytes, but for which NaN it is.
pub(crate) fn same_numbers(a: &Output, b: &Output) -> bool {
    a == b || pair(a, b).is_some_and(|[x, y]| are_same(&x, &y))
}

/// As near as sums in another order are. Weights that a mutation made huge overflow in one order and not in
/// another, and what follows an overflow is anything: such tensors say nothing.
pub(crate) fn close_numbers(a: &Output, b: &Output) -> bool {
    let is_wild = |v: &f64| !v.is_finite() || v.abs() > 1e12;
    a == b || pair(a, b).is_some_and(|[x, y]| x.iter().chain(&y).any(is_wild) || are_close(&x, &y, 1e-3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(outcomes: [(&str, Outcome); 2]) -> FileRun {
        FileRun(outcomes.into_iter().map(|(place, o)| (place.to_string(), o)).collect())
    }

    fn numbers(values: [f32; 2]) -> Outcome {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Outcome::Results(vec![Output::Tensor(DType::Float32, vec![2], bytes)])
    }

    #[test]
    fn runs_differ_by_results_and_by_refusals() {
        let refused = |kind: &str| Outcome::Refused(kind.into(), "a text".into());
        let one = run([("call 0", numbers([1.0, f32::NAN])), ("call 1", refused("Kernel"))]);
        let close = run([("call 0", numbers([1.0, -f32::NAN])), ("call 1", refused("InvalidProgram"))]);
        assert_eq!(one.difference(&close, same_numbers), None);
        assert!(one.difference(&close, |a, b| a == b).is_some_and(|text| text.contains("call 0")));
        let other = run([("call 0", numbers([1.001, 5.0])), ("call 1", numbers([0.0, 0.0]))]);
        assert!(one.difference(&other, same_numbers).is_some());
        assert!(one.difference(&other, close_numbers).is_some_and(|text| text.contains("call 1")));
        assert!(one.is_refused_before(&other) && !other.is_refused_before(&one));
        let late = run([("call 0", refused("DeadlineExceeded")), ("call 1", refused("Kernel"))]);
        assert_eq!(one.difference(&late, same_numbers), None);
        let none = FileRun(vec![]);
        assert!(one.difference(&none, same_numbers).is_some_and(|text| text.contains("one setting only")));
    }

    #[test]
    fn rounding_is_close_and_other_numbers_are_not() {
        let [a, b, c] =
            [[1.0, 2.0], [1.0, 2.0001], [1.0, 2.1]].map(|v| run([("a", numbers(v)), ("b", numbers(v))]));
        assert!(a.difference(&b, same_numbers).is_some() && a.difference(&b, close_numbers).is_none());
        assert!(a.difference(&c, close_numbers).is_some());
    }
}
