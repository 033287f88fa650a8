//! Random programs of 3 to 12 operators, over aliased memory plans, dynamic shapes, views, dead
//! results and NaN: each rewrite off, alone, and all on, against the program as the file has it.
//!
//! `PTERON_RANDOM_GRAPHS=10000` sets the number of programs; a failure names its seed and the rule.

mod random_program;

use pteron_cpu::plan::RuleSwitches;
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, MethodOptions, Program, ProgramSource, Runtime, RuntimeOptions,
    TensorInput, rule_names,
};
use random_program::{RandomProgram, Rng};
use std::sync::Arc;

/// All settings under test; the first is the reference.
fn settings() -> Vec<(String, RuleSwitches)> {
    let rules: Vec<&str> = rule_names().collect();
    let mut out = vec![("all off".to_string(), RuleSwitches::all_off())];
    out.push(("all on".to_string(), RuleSwitches::all_on()));
    for rule in &rules {
        out.push((format!("{rule} off"), RuleSwitches::all_on().without(rule)));
        let alone = rules.iter().filter(|r| *r != rule).fold(RuleSwitches::all_on(), |s, r| s.without(r));
        out.push((format!("{rule} alone"), alone));
    }
    out
}

fn run(runtime: &Arc<Runtime>, program: &RandomProgram, rows: &[usize]) -> (Vec<Vec<f32>>, String) {
    let bytes = program.bytes.clone();
    let loaded = Program::load(runtime, ProgramSource::Bytes(Arc::new(bytes)), Limits::default()).unwrap();
    let method =
        loaded.load_method("forward", MethodOptions { num_threads: Some(2), ..Default::default() }).unwrap();
    let mut results = Vec::new();
    for (call, &rows) in rows.iter().enumerate() {
        let x = program.input(rows, call as u64);
        let shape = [rows, program.width];
        let input = InputValue::Tensor(TensorInput::from_slice(&shape, &x).unwrap());
        let outputs = method.execute(&[input], ExecuteOptions::default()).unwrap();
        for o in &outputs {
            results.push(o.tensor().unwrap().elements::<f32>().unwrap().to_vec());
        }
    }
    (results, loaded.plan_listing("forward").unwrap())
}

fn is_same(a: &[f32], b: &[f32]) -> bool {
    let largest = a.iter().filter(|v| v.is_finite()).fold(1.0f32, |m, v| m.max(v.abs()));
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(x, y)| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-5 * largest)
}

#[test]
fn rewrites_change_no_result() {
    let count: u64 = std::env::var("PTERON_RANDOM_GRAPHS").ok().and_then(|v| v.parse().ok()).unwrap_or(1500);
    let settings: Vec<_> = settings()
        .into_iter()
        .map(|(name, rules)| {
            (name, Runtime::new(RuntimeOptions { rules, ..RuntimeOptions::default() }).unwrap())
        })
        .collect();
    let (mut plans, mut folds) = (0, 0);
    for seed in 0..count {
        let program = RandomProgram::new(&mut Rng::new(seed));
        // Shrinking and growing again between calls of one session must leave nothing behind.
        let rows = if program.is_dynamic {
            vec![3, random_program::MAX_ROWS, 1]
        } else {
            vec![random_program::MAX_ROWS; 2]
        };
        let (expected, as_file) = run(&settings[0].1, &program, &rows);
        for (name, runtime) in &settings[1..] {
            let (got, listing) = run(runtime, &program, &rows);
            for (i, (e, g)) in expected.iter().zip(&got).enumerate() {
                assert!(
                    is_same(e, g),
                    "seed {seed}, rules: {name}, output {i}\nas the file has it:\n{as_file}\nrewritten:\n{listing}\n\
                     expected {e:?}\ngot {g:?}"
                );
            }
            if name == "all on" {
                plans += listing.matches("plan ").count();
                folds += usize::from(listing.lines().count() < as_file.lines().count());
            }
        }
    }
    // The test means nothing unless rewrites happen often.
    assert!(plans as u64 > count / 10 && folds as u64 > count / 4, "{plans} plans, {folds} shorter programs");
}
