//! Target `structured_program`: well-formed programs over real kernels; with every rewrite, with fast kernels
//! of each instruction set and as the file has it, they compute the same.

use crate::choices::Choices;
use crate::files::{plain_runtime, runtime};
use crate::random_program::{MAX_ROWS, RandomProgram};
use pteron_core::Isa;
use pteron_cpu::plan::RuleSwitches;
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, MethodOptions, Program, ProgramSource, Runtime, RuntimeOptions,
    TensorInput,
};
use std::sync::{Arc, LazyLock};

/// Winograd's products spread NaN to neighbours, which these programs are full of.
static PORTABLE: LazyLock<Option<Arc<Runtime>>> = LazyLock::new(|| {
    let rules = RuleSwitches::all_on().without("winograd");
    Runtime::new(RuntimeOptions { isa: Some(Isa::Portable), threads: Some(1), rules }).ok()
});
static FAST: LazyLock<Option<Arc<Runtime>>> = LazyLock::new(|| {
    let rules = RuleSwitches::all_on().without("winograd");
    Runtime::new(RuntimeOptions { isa: None, threads: Some(1), rules }).ok()
});

/// Runs the target: eight bytes choose the program, the next its length, the next the rows of two calls.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let program = RandomProgram::new(choices.word(), 1 + choices.below(12));
    let mut rows = |_| if program.is_dynamic { 1 + choices.below(MAX_ROWS) } else { MAX_ROWS };
    let rows: Vec<usize> = (0..2).map(&mut rows).collect();
    let expected = outputs(plain_runtime(), &program, &rows);
    for runtime in [FAST.as_ref(), PORTABLE.as_ref(), Some(runtime())].into_iter().flatten() {
        let is_loose = std::ptr::eq(Arc::as_ptr(runtime), Arc::as_ptr(crate::files::runtime()));
        let got = outputs(runtime, &program, &rows);
        assert_eq!(got.len(), expected.len(), "another number of outputs");
        for (at, (g, e)) in got.iter().zip(&expected).enumerate() {
            // With Winograd on, only that it runs is checked.
            assert!(is_loose || is_close(g, e), "output {at}: {g:?} instead of {e:?}");
        }
    }
}

fn outputs(runtime: &Arc<Runtime>, program: &RandomProgram, rows: &[usize]) -> Vec<Vec<f32>> {
    let source = ProgramSource::Bytes(Arc::new(program.bytes.clone()));
    let loaded = Program::load(runtime, source, Limits::default());
    let loaded = loaded.unwrap_or_else(|e| panic!("a well-formed program is refused: {e}"));
    let method = loaded.load_method("forward", MethodOptions::default());
    let method = method.unwrap_or_else(|e| panic!("a well-formed method is refused: {e}"));
    let mut results = Vec::new();
    for (call, rows) in rows.iter().enumerate() {
        let x = program.input(*rows, call as u64);
        let shape = [*rows, program.width];
        let Some(input) = TensorInput::from_slice(&shape, &x) else { panic!("the input does not fit") };
        let outputs = method.execute(&[InputValue::Tensor(input)], ExecuteOptions::default());
        for output in &outputs.unwrap_or_else(|e| panic!("a well-formed program fails: {e}")) {
            let elements = output.tensor().and_then(|t| t.elements::<f32>());
            results.push(elements.unwrap_or_else(|e| panic!("{e}")).to_vec());
        }
    }
    results
}

fn is_close(a: &[f32], b: &[f32]) -> bool {
    let largest = b.iter().filter(|v| v.is_finite()).fold(1.0f32, |m, v| m.max(v.abs()));
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(x, y)| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-5 * largest)
}
