//! Target `structured_program`: well-formed programs over real kernels; with every rewrite, with fast kernels
//! of each instruction set and as the file has it, they compute the same.

use crate::choices::Choices;
use crate::files::{plain_runtime, runtime};
use crate::oracles::{ROUNDING, SPREADS_NAN, are_close};
use crate::random_program::{MAX_ROWS, RandomProgram};
use pteron_core::Isa;
use pteron_cpu::plan::RuleSwitches;
use pteron_runtime::{Runtime, RuntimeOptions};
use std::sync::{Arc, LazyLock};

static PORTABLE: LazyLock<Option<Arc<Runtime>>> = LazyLock::new(|| {
    let rules = RuleSwitches::all_on().without(SPREADS_NAN);
    Runtime::new(RuntimeOptions { isa: Some(Isa::Portable), threads: Some(1), rules }).ok()
});
static FAST: LazyLock<Option<Arc<Runtime>>> = LazyLock::new(|| {
    let rules = RuleSwitches::all_on().without(SPREADS_NAN);
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
            assert!(is_loose || are_close(e, g, ROUNDING), "output {at}: {g:?} instead of {e:?}");
        }
    }
}

fn outputs(runtime: &Arc<Runtime>, program: &RandomProgram, rows: &[usize]) -> Vec<Vec<f32>> {
    let results = program.load(runtime).and_then(|loaded| program.results(&loaded, rows));
    results.unwrap_or_else(|e| panic!("a well-formed program is refused or fails: {e}"))
}
