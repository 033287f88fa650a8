//! Mutable buffers.

use crate::{forward, run_one};
use pteron_core::ErrorKind;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{ExecuteOptions, InputValue, TensorInput};

/// total += x; out = total.
fn accumulator(initial: &[f32; 2]) -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let index = p.mutable(initial);
    let mut m = MethodBuilder::new("forward");
    let (x, total, sum) = (m.unplanned(&[2]), m.buffer("model.total", &[2], index), m.planned(&[2]));
    let no = m.bool(false);
    m.inputs(&[x]);
    m.outputs(&[sum]);
    m.add(total, x, sum);
    m.call("aten::copy_", &[total, sum, no, total]);
    p.with(m)
}

#[test]
fn state_stays_in_its_session_and_can_be_read_written_and_reset() {
    let program = accumulator(&[10.0, 20.0]).load(&runtime());
    let (a, b) = (forward(&program), forward(&program));
    assert!(a.is_stateful());
    assert_eq!(a.state_names(), ["model.total"]);
    assert_eq!(run_one(&a, &[(&[2], &[1.0, 1.0])]), [11.0, 21.0]);
    assert_eq!(run_one(&a, &[(&[2], &[1.0, 1.0])]), [12.0, 22.0]);
    assert_eq!(run_one(&b, &[(&[2], &[1.0, 1.0])]), [11.0, 21.0]);
    let state = a.get_state().unwrap();
    assert_eq!(
        (state[0].0.as_str(), state[0].1.elements::<f32>().unwrap()),
        ("model.total", &[12.0, 22.0][..])
    );
    let new = [5.0f32, 6.0];
    b.set_state(&[("model.total", InputValue::Tensor(TensorInput::from_slice(&[2], &new).unwrap()))])
        .unwrap();
    assert_eq!(run_one(&b, &[(&[2], &[1.0, 1.0])]), [6.0, 7.0]);
    a.reset_state().unwrap();
    assert_eq!(run_one(&a, &[(&[2], &[1.0, 1.0])]), [11.0, 21.0]);
}

#[test]
fn a_refused_state_changes_nothing() {
    let method = forward(&accumulator(&[10.0, 20.0]).load(&runtime()));
    let (new, long) = ([5.0f32, 6.0], [5.0f32, 6.0, 7.0]);
    let good = InputValue::Tensor(TensorInput::from_slice(&[2], &new).unwrap());
    let bad = InputValue::Tensor(TensorInput::from_slice(&[3], &long).unwrap());
    let e = method.set_state(&[("model.total", good), ("other", good)]).unwrap_err();
    assert!(e.to_string().contains("model.total") && e.to_string().contains("'other'"), "{e}");
    let e = method.set_state(&[("model.total", good), ("model.total", bad)]).unwrap_err();
    assert!(e.to_string().contains("float32[2]") && e.to_string().contains("float32[3]"), "{e}");
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 1.0])]), [11.0, 21.0]);
}

#[test]
fn pooled_runs_refuse_methods_with_state() {
    let program = accumulator(&[0.0, 0.0]).load(&runtime());
    let x = [1.0f32, 1.0];
    let input = InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap());
    let e = program.run("forward", &[input], ExecuteOptions::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Input);
    assert!(e.to_string().contains("load_method"), "{e}");
}

#[test]
fn reused_memory_is_not_state() {
    // `t` is written before it is read in every call, and shares memory with the input's copy.
    let mut m = MethodBuilder::new("forward");
    let (x, t, y) = (m.planned_at(&[2], 0), m.planned_at(&[2], 64), m.planned_at(&[2], 0));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(x, x, t);
    m.add(t, t, y);
    assert!(!forward(&ProgramBuilder::of(m).load(&runtime())).is_stateful());
}

#[test]
fn memory_read_before_it_is_written_is_state_even_without_a_name() {
    let mut m = MethodBuilder::new("forward");
    let (x, t, y) = (m.unplanned(&[2]), m.planned(&[2]), m.planned(&[2]));
    let no = m.bool(false);
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(x, t, y);
    m.call("aten::copy_", &[t, y, no, t]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    assert!(method.is_stateful());
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [1.0, 2.0]);
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [2.0, 4.0]);
}
