//! What methods, sessions and threads share, and what they do not.

use crate::{forward, run_one};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{
    ExecuteOptions, InputValue, MethodOptions, Program, RuleSwitches, Runtime, RuntimeOptions, TensorInput,
};
use std::sync::Arc;

const K: usize = 64;
const N: usize = 96;

/// y = relu(b + x · permute(W)) with W stored as [N, K]: what an exported linear layer looks like.
fn linear(name: &str, weight: u32, bias: u32, rows: usize) -> MethodBuilder {
    let mut m = MethodBuilder::new(name);
    let (x, w, b) = (m.unplanned(&[rows, K]), m.constant(&[N, K], weight), m.constant(&[N], bias));
    let (wt, y, z) = (m.planned(&[K, N]), m.planned(&[rows, N]), m.planned(&[rows, N]));
    let (order, one) = (m.ints(&[1, 0]), m.int(1));
    m.inputs(&[x]);
    m.outputs(&[z]);
    m.call("aten::permute_copy.out", &[w, order, wt, wt]);
    m.call("aten::addmm.out", &[b, x, wt, one, one, y, y]);
    m.call("aten::relu.out", &[y, z, z]);
    m
}

fn weights() -> (Vec<f32>, Vec<f32>) {
    let w = (0..N * K).map(|i| ((i * 7919) % 101) as f32 / 50.0 - 1.0).collect();
    let b = (0..N).map(|i| i as f32 / 100.0 - 0.5).collect();
    (w, b)
}

fn program(runtime: &Arc<Runtime>, rows: usize) -> Arc<Program> {
    let mut p = ProgramBuilder::new();
    let (w, b) = weights();
    let (w, b) = (p.constant(&w), p.constant(&b));
    p.with(linear("forward", w, b, rows)).with(linear("encode", w, b, rows)).load(runtime)
}

fn input(rows: usize) -> Vec<f32> {
    (0..rows * K).map(|i| ((i * 31) % 17) as f32 / 8.0 - 1.0).collect()
}

#[test]
fn two_methods_and_two_sessions_share_one_packed_weight() {
    let program = program(&runtime(), 4);
    assert_eq!(program.pack_stats().0, 0);
    let sessions = [forward(&program), forward(&program)];
    let encode = program.load_method("encode", MethodOptions::default()).unwrap();
    assert_eq!(program.pack_stats().0, 1, "{}", program.plan_listing("forward").unwrap());
    let x = input(4);
    let expected = run_one(&encode, &[(&[4, K], &x)]);
    for session in &sessions {
        assert_eq!(run_one(session, &[(&[4, K], &x)]), expected);
    }
    let (w, b) = weights();
    for r in 0..4 {
        for c in 0..N {
            let sum: f64 = (0..K).map(|k| f64::from(x[r * K + k]) * f64::from(w[c * K + k])).sum();
            let exact = (sum + f64::from(b[c])).max(0.0);
            assert!((f64::from(expected[r * N + c]) - exact).abs() < 1e-4);
        }
    }
}

#[test]
fn rules_can_be_switched_off_and_change_nothing_but_speed() {
    let x = input(4);
    let results: Vec<Vec<f32>> = [
        RuleSwitches::all_on(),
        RuleSwitches::all_off(),
        RuleSwitches::all_on().without("fold_layout"),
        RuleSwitches::all_on().without("fuse_clamp"),
    ]
    .into_iter()
    .map(|rules| {
        let runtime = Runtime::new(RuntimeOptions { rules, threads: Some(1), ..Default::default() }).unwrap();
        run_one(&forward(&program(&runtime, 4)), &[(&[4, K], &x)])
    })
    .collect();
    for other in &results[1..] {
        for (a, b) in results[0].iter().zip(other) {
            assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{a} {b}");
        }
    }
}

#[test]
fn one_and_two_threads_give_the_same_bytes() {
    const ROWS: usize = 200;
    let x = input(ROWS);
    let bits = |threads: usize| {
        let runtime = Runtime::new(RuntimeOptions { threads: Some(threads), ..Default::default() }).unwrap();
        let program = program(&runtime, ROWS);
        let options = MethodOptions { num_threads: Some(threads), ..Default::default() };
        let method = program.load_method("forward", options).unwrap();
        run_one(&method, &[(&[ROWS, K], &x)]).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(1), bits(2));
}

#[test]
fn many_threads_run_one_program_from_its_pool() {
    let runtime = Runtime::new(RuntimeOptions { threads: Some(2), ..Default::default() }).unwrap();
    let program = program(&runtime, 4);
    let x = input(4);
    let expected = run_one(&forward(&program), &[(&[4, K], &x)]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let shape = [4, K];
                    let input = InputValue::Tensor(TensorInput::from_slice(&shape, &x).unwrap());
                    let out = program.run("forward", &[input], ExecuteOptions::default()).unwrap();
                    assert_eq!(out[0].tensor().unwrap().elements::<f32>().unwrap(), expected);
                }
            });
        }
    });
    assert_eq!(program.pack_stats().0, 1);
}

#[test]
fn the_pool_does_not_keep_the_program_alive() {
    let program = program(&runtime(), 4);
    let x = input(4);
    let shape = [4, K];
    let input = InputValue::Tensor(TensorInput::from_slice(&shape, &x).unwrap());
    program.run("forward", &[input], ExecuteOptions::default()).unwrap();
    let weak = Arc::downgrade(&program);
    drop(program);
    assert!(weak.upgrade().is_none());
}
