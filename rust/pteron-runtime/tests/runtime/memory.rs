//! Memory plans that overlap, memory that nobody wrote, who keeps what alive.

use crate::{forward, run, run_one};
use pteron_core::{DType, ErrorKind};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, MethodOptions, OutputBuffer, OutputValue, Program, ProgramSource,
    TensorInput,
};

#[test]
fn an_output_that_overlaps_an_input_is_refused_at_load() {
    let mut m = MethodBuilder::new("forward");
    let (x, out) = (m.planned_at(&[4], 0), m.planned_at(&[4], 8));
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.add(x, x, out);
    let program = ProgramBuilder::of(m).load(&runtime());
    let e = program.load_method("forward", MethodOptions::default()).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Program);
    assert!(e.to_string().contains("overlap an input") && e.to_string().contains("aten::add.out"), "{e}");
}

#[test]
fn elementwise_kernels_work_in_place_where_the_plan_says_so() {
    let mut m = MethodBuilder::new("forward");
    let (x, out) = (m.planned_at(&[4], 0), m.planned_at(&[4], 0));
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.add(x, x, out);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    assert_eq!(run_one(&method, &[(&[4], &[1.0, 2.0, 3.0, 4.0])]), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn an_overlap_that_a_move_makes_is_caught_when_it_happens() {
    // `y` moves to where `cat`'s input lies; then `cat` would write over what it reads.
    let mut m = MethodBuilder::new("forward");
    let (x, out) = (m.planned(&[4]), m.planned(&[4]));
    let list = m.value(pteron_format::write::ValueDraft::TensorList([x.into()].into()));
    let zero = m.int(0);
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.mv(x, out);
    m.call("aten::cat.out", &[list, zero, out, out]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let e = run(&method, &[(&[4], &[1.0; 4])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Kernel);
    assert!(e.to_string().contains("overlaps") && e.to_string().contains("aten::cat.out"), "{e}");
}

#[test]
fn a_constant_cannot_be_written_through_a_move() {
    let mut p = ProgramBuilder::new();
    let index = p.constant(&[1.0, 2.0]);
    let mut m = MethodBuilder::new("forward");
    let (x, c, t) = (m.planned(&[2]), m.constant(&[2], index), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.mv(c, t);
    m.add(x, x, t);
    let method = forward(&p.with(m).load(&runtime()));
    let e = run(&method, &[(&[2], &[1.0; 2])]).unwrap_err();
    assert!(e.to_string().contains("write to a constant"), "{e}");
}

#[test]
fn inputs_are_never_written_to() {
    // The program adds into its own input, directly and through a view.
    let mut m = MethodBuilder::new("forward");
    let (x, v) = (m.unplanned(&[4]), m.planned(&[2, 2]));
    let no = m.bool(false);
    let size = m.ints(&[2, 2]);
    m.inputs(&[x]);
    m.outputs(&[x]);
    m.add(x, x, x);
    m.call("executorch_prim::et_view.default", &[x, size, v]);
    let (a, b) = (m.planned(&[2, 2]), m.int(1));
    m.call("aten::add.out", &[v, v, b, a, a]);
    m.call("aten::copy_", &[v, a, no, v]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let data = [1.0f32, 2.0, 3.0, 4.0];
    for _ in 0..2 {
        let out = run(&method, &[(&[4], &data)]).unwrap();
        assert_eq!(out[0].tensor().unwrap().elements::<f32>().unwrap(), [4.0, 8.0, 12.0, 16.0]);
        assert_eq!(data, [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn values_that_nobody_wrote_are_zeros() {
    let mut m = MethodBuilder::new("forward");
    let (planned, unplanned, target) = (m.planned(&[3]), m.unplanned(&[3]), m.unplanned(&[3]));
    m.outputs(&[planned, unplanned, target]);
    let never = m.bool(true);
    let jump = m.jump_false(never, 0);
    let end = m.here();
    m.land(jump, end);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    for value in run(&method, &[]).unwrap() {
        assert_eq!(value.tensor().unwrap().elements::<f32>().unwrap(), [0.0; 3]);
    }
}

#[test]
fn outputs_survive_everything_they_came_from() {
    let mut p = ProgramBuilder::new();
    let index = p.constant(&[10.0, 20.0]);
    let mut m = MethodBuilder::new("forward");
    let (x, c, t, y) = (m.unplanned(&[2]), m.constant(&[2], index), m.planned(&[2]), m.unplanned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t, y, c, y]);
    m.add(x, c, t);
    m.add(t, c, y);
    let runtime = runtime();
    let program = p.with(m).load(&runtime);
    let method = forward(&program);
    // Every order of dropping the three.
    let outputs = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap();
    drop(runtime);
    drop(program);
    let again = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap();
    drop(method);
    for out in [outputs, again] {
        let get = |i: usize| out[i].tensor().unwrap().elements::<f32>().unwrap().to_vec();
        assert_eq!(get(0), [11.0, 22.0]);
        assert_eq!((get(1), get(3)), (vec![21.0, 42.0], vec![21.0, 42.0]));
        assert_eq!(get(2), [10.0, 20.0]);
    }
}

#[test]
fn callers_can_bind_memory_for_outputs() {
    let mut m = MethodBuilder::new("forward");
    let (x, t, y) = (m.unplanned(&[2]), m.planned(&[2]), m.unplanned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t, y]);
    m.add(x, x, t);
    m.add(t, x, y);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let mut data = [1.0f32, 2.0];
    let mut second = [0.0f32; 2];
    let shape = [2usize];
    // The first output is bound to the input's own memory: overlap is allowed.
    // SAFETY: both buffers are valid and nobody else uses them during the call.
    let (input, buffers) = unsafe {
        let p: *mut u8 = data.as_mut_ptr().cast();
        (
            TensorInput::new(DType::Float32, &shape, None, p),
            [
                Some(OutputBuffer::new(DType::Float32, &shape, p)),
                Some(OutputBuffer::new(DType::Float32, &shape, second.as_mut_ptr().cast())),
            ],
        )
    };
    let out = method
        .execute(&[InputValue::Tensor(input)], ExecuteOptions { outputs: &buffers, ..Default::default() })
        .unwrap();
    assert!(matches!(&out[0], OutputValue::Bound(meta) if **meta.shape() == [2]));
    assert_eq!((data, second), ([2.0, 4.0], [3.0, 6.0]));
    let wrong = [3usize];
    // SAFETY: refused before it is used.
    let buffers = unsafe { [Some(OutputBuffer::new(DType::Float32, &wrong, second.as_mut_ptr().cast()))] };
    let e = method
        .execute(&[InputValue::Tensor(input)], ExecuteOptions { outputs: &buffers, ..Default::default() })
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Input);
    assert!(e.to_string().contains("argument 'output0'"), "{e}");
}

#[test]
fn a_file_read_into_memory_does_not_see_later_changes() {
    let mut p = ProgramBuilder::new();
    let index = p.constant(&[10.0, 20.0]);
    let mut m = MethodBuilder::new("forward");
    let (x, c, t) = (m.unplanned(&[2]), m.constant(&[2], index), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, c, t);
    let bytes = p.with(m).bytes();
    let path = std::env::temp_dir().join(format!("pteron-memory-test-{}.pte", std::process::id()));
    for is_mapped in [false, true] {
        std::fs::write(&path, &bytes).unwrap();
        let source = ProgramSource::File { path: path.clone(), is_mapped };
        let program = Program::load(&runtime(), source, Limits::default()).unwrap();
        // Same length, so that the mapped case stays legal; its program table is unaffected either way.
        std::fs::write(&path, vec![0u8; bytes.len()]).unwrap();
        let out = run_one(&forward(&program), &[(&[2], &[1.0, 2.0])]);
        if !is_mapped {
            assert_eq!(out, [11.0, 22.0]);
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn lent_outputs_stay_still_while_somebody_looks_and_go_back_afterwards() {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t, t]);
    m.add(x, x, t);
    let program = ProgramBuilder::of(m).load(&runtime());
    let method = forward(&program);
    let lend = |data: &[f32]| {
        let input = InputValue::Tensor(TensorInput::from_slice(&[2], data).unwrap());
        method.execute(&[input], ExecuteOptions { lend_outputs: true, ..Default::default() })
    };
    let mut out = lend(&[1.0, 2.0]).unwrap();
    let (Some(OutputValue::Lent(second)), Some(OutputValue::Lent(first))) = (out.pop(), out.pop()) else {
        panic!("outputs in planned memory are lent");
    };
    let look = second.borrow().unwrap();
    assert_eq!(look.view().as_slice::<f32>().unwrap(), [2.0, 4.0]);
    let e = lend(&[3.0, 4.0]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutputsInUse);
    assert!(e.to_string().contains("'output1'"), "{e}");
    assert_eq!(look.view().as_slice::<f32>().unwrap(), [2.0, 4.0]);
    drop(look);
    drop(first.borrow().unwrap());
    let third = lend(&[3.0, 4.0]).unwrap();
    assert_eq!(second.borrow().unwrap_err().kind(), ErrorKind::OutputsInUse);
    let Some(OutputValue::Lent(third)) = third.into_iter().next() else { panic!("lent") };
    drop((method, program));
    assert_eq!(third.borrow().unwrap().view().as_slice::<f32>().unwrap(), [6.0, 8.0]);
}

#[test]
fn pooled_sessions_lend_nothing() {
    let mut m = MethodBuilder::new("forward");
    let t = m.planned(&[2]);
    m.outputs(&[t]);
    let program = ProgramBuilder::of(m).load(&runtime());
    let e =
        program.run("forward", &[], ExecuteOptions { lend_outputs: true, ..Default::default() }).unwrap_err();
    assert!(e.to_string().contains("load_method"), "{e}");
}

/// Where each step writes.
struct Places(Vec<usize>);

impl pteron_runtime::Tracer for Places {
    fn step_begin(&mut self, _: &pteron_runtime::StepInfo<'_>) {}
    fn step_end(&mut self, _: &pteron_runtime::StepInfo<'_>, _: Option<&pteron_core::Error>) {}
    fn wants_values(&mut self, _: &pteron_runtime::StepInfo<'_>) -> bool {
        true
    }
    fn value(&mut self, _: &pteron_runtime::StepInfo<'_>, _: usize, value: pteron_core::ArgView<'_>) {
        if let pteron_core::ArgView::Tensor(view) = value {
            self.0.push(view.as_ptr() as usize);
        }
    }
}

/// Runs with the first output bound: what it holds, and was it computed right there?
fn run_bound(method: &pteron_runtime::Method, given: &[f32], count: usize) -> (Vec<f32>, bool) {
    let shape = [given.len()];
    let mut target = vec![-1f32; given.len()];
    let input = TensorInput::from_slice(&shape, given).unwrap();
    // SAFETY: the target holds the shape, and nobody else looks at it during the call.
    let buffer = unsafe { OutputBuffer::new(DType::Float32, &shape, target.as_mut_ptr().cast()) };
    let mut buffers = vec![None; count];
    buffers[0] = Some(buffer);
    let mut places = Places(vec![]);
    let options = ExecuteOptions { outputs: &buffers, tracer: Some(&mut places), ..Default::default() };
    method.execute(&[InputValue::Tensor(input)], options).unwrap();
    let is_there = places.0.contains(&(target.as_ptr() as usize));
    (target, is_there)
}

#[test]
fn a_planned_output_is_computed_in_the_callers_buffer() {
    let mut m = MethodBuilder::new("forward");
    let (x, t, y) = (m.planned(&[4]), m.planned(&[4]), m.planned(&[4]));
    let (rows, no) = (m.planned(&[4]), m.bool(false));
    m.inputs(&[x]);
    m.outputs(&[y, t]);
    m.call("aten::copy.out", &[x, x, no, rows, rows]);
    m.add(rows, x, t);
    m.add(t, x, y);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let given = [1.0, 2.0, 3.0, 4.0];
    for _ in 0..2 {
        assert_eq!(run_bound(&method, &given, 2), (vec![3.0, 6.0, 9.0, 12.0], true));
        // The next call without a buffer works in the plan's memory again.
        let out = run(&method, &[(&[4], &[1.0; 4])]).unwrap();
        assert_eq!(out[0].tensor().unwrap().elements::<f32>().unwrap(), [3.0; 4]);
        assert_eq!(out[1].tensor().unwrap().elements::<f32>().unwrap(), [2.0; 4]);
    }
}

#[test]
fn outputs_whose_bytes_others_use_stay_in_the_plan() {
    // A buffer of the model; an output that is updated in place; one that a later value is put over.
    let mut p = ProgramBuilder::new();
    let index = p.mutable(&[1.0, 1.0]);
    let mut m = MethodBuilder::new("forward");
    let (x, total) = (m.planned(&[2]), m.buffer("total", &[2], index));
    m.inputs(&[x]);
    m.outputs(&[total]);
    m.add(total, x, total);
    let method = forward(&p.with(m).load(&runtime()));
    assert_eq!(run_bound(&method, &[1.0, 2.0], 1), (vec![2.0, 3.0], false));
    assert_eq!(run_bound(&method, &[1.0, 2.0], 1), (vec![3.0, 5.0], false));

    let mut m = MethodBuilder::new("forward");
    let (x, y, over) = (m.planned(&[2]), m.planned_at(&[2], 256), m.planned_at(&[2], 256));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(x, x, y);
    m.add(y, x, over);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let unbound = run_one(&method, &[(&[2], &[1.0, 2.0])]);
    assert_eq!(run_bound(&method, &[1.0, 2.0], 1).0, unbound);
}

/// Small constants of a mapped file are copied, so long as there is room for copies; results do not show which.
#[test]
fn a_mapped_file_gives_the_bytes_of_one_in_memory_however_many_small_constants_it_has() {
    let (count, n) = (300u32, 4096);
    let mut p = ProgramBuilder::new();
    let indices: Vec<u32> = (0..count).map(|i| p.constant(&vec![i as f32; n])).collect();
    let mut m = MethodBuilder::new("forward");
    let (x, first, second) = (m.planned(&[n]), m.planned(&[n]), m.planned(&[n]));
    m.inputs(&[x]);
    let (mut from, mut to, mut spare) = (x, first, second);
    for index in indices {
        let constant = m.constant(&[n], index);
        m.add(from, constant, to);
        (from, to, spare) = (to, if from == x { second } else { spare }, to);
    }
    m.outputs(&[from]);
    let p = p.with(m);
    let path = std::env::temp_dir().join(format!("pteron-constants-{}.pte", std::process::id()));
    std::fs::write(&path, p.bytes()).unwrap();
    let source = ProgramSource::File { path: path.clone(), is_mapped: true };
    let mapped = Program::load(&runtime(), source, Limits::default());
    let want = (0..count).sum::<u32>() as f32 + 0.5;
    for program in [mapped.unwrap(), p.load(&runtime())] {
        for _ in 0..2 {
            let got = run_one(&forward(&program), &[(&[n], &vec![0.5; n])]);
            assert!(got.len() == n && got.iter().all(|v| *v == want), "{} {want}", got[0]);
        }
    }
    std::fs::remove_file(path).unwrap();
}
