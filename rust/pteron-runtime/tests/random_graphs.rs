//! Random programs of 3 to 12 operators, over aliased memory plans, dynamic shapes, views, dead
//! results and NaN: each rewrite off, alone, and all on, against the program as the file has it.
//!
//! Rules that claim to be exact are held to the very same bytes when they work alone, each in every other program. A failure names its
//! seed, the shortest beginning of the program that fails and its file, and the rules without which it does not. The
//! ignored test takes 10,000 programs, every rule alone in each, or as many as `PTERON_RANDOM_GRAPHS` says; `2000..3000` are those seeds.

use pteron_core::Result;
use pteron_cpu::plan::RuleSwitches;
use pteron_fuzz::oracles::{ROUNDED, ROUNDING, SPREADS_NAN, are_close, are_same};
use pteron_fuzz::random_program::{MAX_ROWS, RandomProgram};
use pteron_runtime::{
    ExecuteOptions, InputValue, MethodOptions, OutputBuffer, OwnedTensor, Runtime, RuntimeOptions,
    TensorInput, rule_names,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rules under test.
fn rules() -> impl Iterator<Item = &'static str> {
    rule_names().filter(|rule| *rule != SPREADS_NAN)
}

/// All settings under test; the first is the reference.
fn settings() -> Vec<(String, RuleSwitches)> {
    let rules: Vec<&str> = rules().collect();
    let all_on = || RuleSwitches::all_on().without(SPREADS_NAN);
    let mut out = vec![("all off".to_string(), RuleSwitches::all_off())];
    out.push(("all on".to_string(), all_on()));
    for rule in &rules {
        out.push((format!("{rule} off"), all_on().without(rule)));
        let alone = rules.iter().filter(|r| *r != rule).fold(all_on(), |s, r| s.without(r));
        out.push((format!("{rule} alone"), alone));
    }
    out
}

/// The outputs of calls with so many rows, and the listing of the program's steps.
///
/// Errors: the program is refused, or a call of it fails.
fn run(runtime: &Arc<Runtime>, program: &RandomProgram, rows: &[usize]) -> Result<(Vec<Vec<f32>>, String)> {
    let loaded = program.load(runtime)?;
    Ok((program.results(&loaded, rows)?, loaded.plan_listing("forward")?))
}

fn is_same(a: &[f32], b: &[f32], is_exact: bool) -> bool {
    if is_exact { are_same(a, b) } else { are_close(a, b, ROUNDING) }
}

struct Setting {
    name: String,
    runtime: Arc<Runtime>,
    is_exact: bool,
}

/// Shrinking and growing again between calls of one session must leave nothing behind.
fn rows_of(program: &RandomProgram) -> Vec<usize> {
    if program.is_dynamic { vec![3, MAX_ROWS, 1] } else { vec![MAX_ROWS; 2] }
}

/// What differs between the program as the file has it and with a setting's rules.
fn difference(reference: &Setting, setting: &Setting, program: &RandomProgram) -> Option<String> {
    let rows = rows_of(program);
    let (expected, as_file) = run(&reference.runtime, program, &rows).unwrap();
    let (got, rewritten) = match run(&setting.runtime, program, &rows) {
        Ok(results) => results,
        Err(refusal) => return Some(format!("as the file has it:\n{as_file}\nrefused: {refusal}")),
    };
    let at = expected.iter().zip(&got).position(|(e, g)| !is_same(e, g, setting.is_exact))?;
    Some(format!(
        "output {at}\nas the file has it:\n{as_file}\nrewritten:\n{rewritten}\nexpected {:?}\ngot {:?}",
        expected[at], got[at]
    ))
}

/// The shortest beginning of the program that differs, and the rules without which it does not.
fn explain(settings: &[Setting], setting: &Setting, seed: u64) -> String {
    let short = (1..=16).map(|n| (n, RandomProgram::new(seed, n)));
    let mut found = short.filter_map(|(n, p)| Some((n, difference(&settings[0], setting, &p)?, p)));
    let Some((length, text, program)) = found.next() else { return "only in full length".into() };
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("random_graph_{seed}.pte"));
    let kept =
        std::fs::write(&path, &program.bytes).map_or_else(|e| e.to_string(), |()| path.display().to_string());
    let guilty: Vec<&str> = settings
        .iter()
        .filter_map(|s| s.name.strip_suffix(" off").map(|rule| (s, rule)))
        .filter(|(s, _)| difference(&settings[0], s, &program).is_none())
        .map(|(_, rule)| rule)
        .collect();
    format!("{length} operators ({kept}); right without any of {guilty:?}\n{text}")
}

/// Of each program every rule is tried alone, or one of `each`.
fn check(seeds: std::ops::Range<u64>, each: usize) {
    let count = seeds.end - seeds.start;
    let settings: Vec<Setting> = settings()
        .into_iter()
        .map(|(name, rules)| {
            let is_exact = name.strip_suffix(" alone").is_some_and(|rule| !ROUNDED.contains(&rule));
            let runtime = Runtime::new(RuntimeOptions { rules, ..RuntimeOptions::default() }).unwrap();
            Setting { name, runtime, is_exact }
        })
        .collect();
    let (mut plans, mut shorter) = (0, 0);
    // How many programs are another one without each rule.
    let mut matters: BTreeMap<&str, usize> = rules().map(|rule| (rule, 0)).collect();
    for seed in seeds {
        let program = RandomProgram::new(seed, usize::MAX);
        let rows = rows_of(&program);
        let (expected, as_file) = run(&settings[0].runtime, &program, &rows).unwrap();
        let mut all_on = String::new();
        for (number, setting) in settings.iter().enumerate().skip(1) {
            if setting.name.ends_with(" alone") && !(number / 2 + seed as usize).is_multiple_of(each) {
                continue;
            }
            let explained =
                || format!("seed {seed}, rules: {}, {}", setting.name, explain(&settings, setting, seed));
            let Ok((got, listing)) = run(&setting.runtime, &program, &rows) else {
                panic!("{}", explained())
            };
            let is_right = expected.iter().zip(&got).all(|(e, g)| is_same(e, g, setting.is_exact));
            assert!(is_right, "{}", explained());
            if setting.name == "all on" {
                plans += listing.matches("plan ").count();
                shorter += usize::from(listing.lines().count() < as_file.lines().count());
                all_on = listing;
            } else if let Some(rule) = setting.name.strip_suffix(" off")
                && let Some(matters) = matters.get_mut(rule)
            {
                *matters += usize::from(listing != all_on);
            }
        }
    }
    if count < 100 {
        // Some seeds of interest, which say nothing of the others.
        return;
    }
    // The test means nothing unless rewrites happen often.
    assert!(
        plans as u64 > count / 2 && shorter as u64 > count / 2,
        "{plans} plans, {shorter} shorter programs"
    );
    println!("programs that are others without a rule: {matters:?}");
    assert!(matters.values().all(|n| *n > 0), "{matters:?}");
}

#[test]
fn rewrites_change_no_result() {
    check(0..190, 2);
}

/// The elements in the order that buffers have.
fn row_major(tensor: &OwnedTensor) -> Vec<f32> {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let elements = tensor.elements::<f32>().unwrap();
    let offset = |mut index: usize| {
        shape.iter().zip(strides.iter()).rev().fold(0, |offset, (extent, stride)| {
            let at = index % extent;
            index /= extent;
            offset + at * stride
        })
    };
    (0..tensor.meta.numel()).map(|index| elements[offset(index)]).collect()
}

/// Two sessions of one program, call by call: outputs of their own, and outputs in buffers of the caller. The
/// first output whose bytes are not the same.
fn bound_difference(runtime: &Arc<Runtime>, program: &RandomProgram) -> Option<String> {
    let loaded = program.load(runtime).unwrap();
    let [own, bound] = [(); 2].map(|()| loaded.load_method("forward", MethodOptions::default()).unwrap());
    for (call, rows) in rows_of(program).into_iter().enumerate() {
        let x = program.input(rows, call as u64);
        let shape = [rows, program.width];
        let input = InputValue::Tensor(TensorInput::from_slice(&shape, &x).unwrap());
        let expected = own.execute(&[input], ExecuteOptions::default()).unwrap();
        let expected: Vec<_> = expected.iter().map(|o| o.tensor().unwrap()).collect();
        let mut targets: Vec<Vec<f32>> = expected.iter().map(|t| vec![-7.0; t.meta.numel()]).collect();
        let buffers: Vec<_> = expected
            .iter()
            .zip(&mut targets)
            .map(|(t, target)| {
                // SAFETY: the target has the output's shape, and nobody else looks at it during the call.
                Some(unsafe { OutputBuffer::new(t.meta.dtype(), t.meta.shape(), target.as_mut_ptr().cast()) })
            })
            .collect();
        bound.execute(&[input], ExecuteOptions { outputs: &buffers, ..Default::default() }).unwrap();
        for (at, (t, target)) in expected.iter().zip(&targets).enumerate() {
            let own = row_major(t);
            if !own.iter().map(|v| v.to_bits()).eq(target.iter().map(|v| v.to_bits())) {
                let listing = loaded.plan_listing("forward").unwrap();
                let place = own.iter().zip(target).position(|(a, b)| a.to_bits() != b.to_bits());
                return Some(format!("call {call}, output {at}, element {place:?}\n{listing}"));
            }
        }
    }
    None
}

#[test]
fn outputs_in_buffers_of_the_caller_are_the_same_bytes() {
    for (name, rules) in settings().into_iter().take(2) {
        let runtime = Runtime::new(RuntimeOptions { rules, ..RuntimeOptions::default() }).unwrap();
        for seed in 0..100 {
            let program = RandomProgram::new(seed, usize::MAX);
            if let Some(text) = bound_difference(&runtime, &program) {
                panic!("seed {seed}, rules: {name}, {text}");
            }
        }
    }
}

#[test]
#[ignore = "several minutes"]
fn rewrites_change_no_result_of_many_programs() {
    let wanted = std::env::var("PTERON_RANDOM_GRAPHS").unwrap_or_else(|_| "10000".to_string());
    let (first, last) = wanted.split_once("..").unwrap_or(("0", &wanted));
    check(first.parse().unwrap()..last.parse().unwrap(), 1);
}
