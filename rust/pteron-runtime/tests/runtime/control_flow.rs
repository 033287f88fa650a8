//! Jumps, moves, lists and scalars.

use crate::{forward, run, run_one};
use pteron_core::DType;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, load_bytes, runtime};
use pteron_runtime::{ExecuteOptions, InputValue, MethodOptions, OutputValue};

/// y = x, then `n` times y = y + x.
fn loop_method(n: i64) -> MethodBuilder {
    let mut m = MethodBuilder::new("forward");
    let (x, acc, sum) = (m.planned(&[3]), m.planned(&[3]), m.planned(&[3]));
    let (i, one, limit, done, no) = (m.int(0), m.int(1), m.int(n), m.bool(false), m.bool(false));
    m.inputs(&[x]);
    m.outputs(&[acc]);
    m.call("aten::copy_", &[acc, x, no, acc]);
    let top = m.add(acc, x, sum);
    m.call("aten::copy_", &[acc, sum, no, acc]);
    m.call("executorch_prim::add.Scalar", &[i, one, i]);
    m.call("executorch_prim::eq.Scalar", &[i, limit, done]);
    m.jump_false(done, top);
    m
}

#[test]
fn a_loop_runs_as_often_as_it_says_every_time() {
    let program = ProgramBuilder::of(loop_method(5)).load(&runtime());
    let method = forward(&program);
    // The counter starts afresh in every call, though nothing in the program resets it.
    for _ in 0..3 {
        assert_eq!(run_one(&method, &[(&[3], &[1.0, 2.0, 3.0])]), [6.0, 12.0, 18.0]);
    }
}

/// out = if cond { a + a } else { b }, with moves to a shared output.
fn branch_method(condition: i32, m: &mut MethodBuilder, inputs: &[i32]) {
    let (a, b) = (m.unplanned(&[2]), m.unplanned(&[2]));
    let (doubled, out) = (m.planned(&[2]), m.planned(&[2]));
    let never = m.bool(false);
    let mut all = inputs.to_vec();
    all.extend([a, b]);
    m.inputs(&all);
    m.outputs(&[out]);
    let to_else = m.jump_false(condition, 0);
    m.add(a, a, doubled);
    m.mv(doubled, out);
    let to_end = m.jump_false(never, 0);
    let other = m.mv(b, out);
    m.land(to_else, other);
    let end = m.here();
    m.land(to_end, end);
}

#[test]
fn branches_on_a_bool_tensor_take_one_side() {
    let mut m = MethodBuilder::new("forward");
    let t = m.tensor(DType::Bool, &[2]);
    let condition = m.value(t);
    branch_method(condition, &mut m, &[condition]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let call = |bools: &[pteron_core::Bool8]| {
        let (a, b) = ([1.0f32, 2.0], [7.0f32, 8.0]);
        let inputs = [
            InputValue::Tensor(pteron_runtime::TensorInput::from_slice(&[2], bools).unwrap()),
            InputValue::Tensor(pteron_runtime::TensorInput::from_slice(&[2], &a).unwrap()),
            InputValue::Tensor(pteron_runtime::TensorInput::from_slice(&[2], &b).unwrap()),
        ];
        let out = method.execute(&inputs, ExecuteOptions::default()).unwrap();
        out[0].tensor().unwrap().elements::<f32>().unwrap().to_vec()
    };
    let (yes, no) = (true.into(), false.into());
    assert_eq!(call(&[yes, yes]), [2.0, 4.0]);
    // Any false element jumps.
    assert_eq!(call(&[yes, no]), [7.0, 8.0]);
    assert_eq!(call(&[yes, yes]), [2.0, 4.0]);
}

#[test]
fn branches_on_a_baked_in_bool() {
    for (condition, expected) in [(true, [2.0, 4.0]), (false, [7.0, 8.0])] {
        let mut m = MethodBuilder::new("forward");
        let c = m.bool(condition);
        branch_method(c, &mut m, &[]);
        let method = forward(&ProgramBuilder::of(m).load(&runtime()));
        assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0]), (&[2], &[7.0, 8.0])]), expected);
    }
}

#[test]
fn lists_see_what_their_elements_are_now() {
    // cat([x, x + x]) through a TensorList; a scalar computed by the program in an IntList.
    let mut m = MethodBuilder::new("forward");
    let (x, d, out) = (m.unplanned(&[2]), m.planned(&[2]), m.unplanned(&[4]));
    let list = m.value(pteron_format::write::ValueDraft::TensorList([x, d].map(i64::from).into()));
    let zero = m.int(0);
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.add(x, x, d);
    m.call("aten::cat.out", &[list, zero, out, out]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [1.0, 2.0, 2.0, 4.0]);
}

#[test]
fn scalars_come_out_as_scalars() {
    let mut m = MethodBuilder::new("forward");
    let (a, b, c) = (m.int(2), m.int(5), m.int(0));
    let flag = m.bool(false);
    let half = m.value(pteron_format::write::ValueDraft::Double(0.5));
    let none = m.value(pteron_format::write::ValueDraft::None);
    m.outputs(&[c, flag, half, none]);
    m.call("executorch_prim::mul.Scalar", &[a, b, c]);
    m.call("executorch_prim::gt.Scalar", &[c, b, flag]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let out = method.execute(&[], ExecuteOptions::default()).unwrap();
    assert!(matches!(
        (&out[0], &out[1], &out[2], &out[3]),
        (OutputValue::Int(10), OutputValue::Bool(true), OutputValue::Double(0.5), OutputValue::None)
    ));
}

#[test]
fn an_empty_chain_gives_inputs_and_constants_back() {
    let mut p = ProgramBuilder::new();
    let index = p.constant(&[3.0, 4.0]);
    let mut m = MethodBuilder::new("forward");
    let (x, c) = (m.unplanned(&[2]), m.constant(&[2], index));
    m.inputs(&[x]);
    m.outputs(&[x, c, x]);
    let method = forward(&p.with(m).load(&runtime()));
    let out = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap();
    let get = |i: usize| out[i].tensor().unwrap().elements::<f32>().unwrap().to_vec();
    assert_eq!((get(0), get(1), get(2)), (vec![1.0, 2.0], vec![3.0, 4.0], vec![1.0, 2.0]));
}

#[test]
fn a_tracer_sees_every_step_with_its_instructions() {
    struct Log(Vec<(String, Vec<u32>)>);
    impl pteron_runtime::Tracer for Log {
        fn step_begin(&mut self, s: &pteron_runtime::StepInfo<'_>) {
            self.0.push((format!("begin {}", s.name), s.covers.to_vec()));
        }
        fn step_end(&mut self, _: &pteron_runtime::StepInfo<'_>, error: Option<&pteron_core::Error>) {
            assert!(error.is_none());
            self.0.push(("end".into(), vec![]));
        }
    }
    let program = ProgramBuilder::of(loop_method(2)).load(&runtime());
    let method = program.load_method("forward", MethodOptions::default()).unwrap();
    let mut log = Log(vec![]);
    let x = [1.0f32, 1.0, 1.0];
    let inputs = [InputValue::Tensor(pteron_runtime::TensorInput::from_slice(&[3], &x).unwrap())];
    method.execute(&inputs, ExecuteOptions { tracer: Some(&mut log), ..Default::default() }).unwrap();
    let begun: Vec<u32> = log.0.iter().flat_map(|(_, c)| c.iter().copied()).collect();
    assert_eq!(begun, [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
    assert_eq!(log.0.iter().filter(|(n, _)| n == "end").count(), begun.len());
}

/// out = (x + x) + x, with the sum freed once it was used. `placed` makes the sum.
fn freeing_method(placed: impl Fn(&mut MethodBuilder) -> i32) -> (MethodBuilder, i32) {
    let mut m = MethodBuilder::new("forward");
    let (x, out) = (m.unplanned(&[2]), m.planned(&[2]));
    let sum = placed(&mut m);
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.add(x, x, sum);
    m.add(sum, x, out);
    let at = m.free(sum);
    (m, at)
}

#[test]
fn freed_tensors_come_back_in_the_next_call_and_free_counts_as_an_instruction() {
    for is_dynamic in [false, true] {
        let (m, at) = freeing_method(|m| if is_dynamic { m.bounded(&[2]) } else { m.planned(&[2]) });
        assert_eq!(at, 2);
        let program = ProgramBuilder::of(m).load(&runtime());
        let listing = program.listing().unwrap();
        assert!(listing.contains("free"), "{listing}");
        assert_eq!(program.kernels("forward").unwrap().last().map(String::as_str), Some("free"));
        let method = forward(&program);
        for i in 0..3 {
            let x = [i as f32, 1.0];
            assert_eq!(run_one(&method, &[(&[2], &x)]), [3.0 * x[0], 3.0]);
        }
        let x = [1.0f32, 1.0];
        let inputs = [InputValue::Tensor(pteron_runtime::TensorInput::from_slice(&[2], &x).unwrap())];
        let with = |budget| method.execute(&inputs, ExecuteOptions { budget, ..Default::default() });
        let e = with(Some(2)).unwrap_err();
        assert_eq!((e.kind(), e.detail().instruction), (pteron_core::ErrorKind::LimitExceeded, Some(2)));
        assert!(with(Some(3)).is_ok());
    }
}

#[test]
fn free_of_what_has_no_memory_is_refused() {
    let mut m = MethodBuilder::new("forward");
    let (x, number) = (m.unplanned(&[2]), m.int(3));
    m.inputs(&[x]);
    m.outputs(&[x]);
    m.free(number);
    let e = load_bytes(&runtime(), ProgramBuilder::of(m).illegal_bytes()).err().unwrap();
    assert_eq!(e.kind(), pteron_core::ErrorKind::Program);
    assert!(e.to_string().contains("free of value 1"), "{e}");
}
