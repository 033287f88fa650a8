//! Programs with custom operators, and kernels for them that are functions: built here, and exported by `pteron.export`.

use crate::errors::says;
use crate::{forward, run, run_one};
use pteron_core::{ArgView, Error, ErrorKind, OperatorInput, OutputView, Result};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, load_bytes, runtime};
use pteron_runtime::{ExecuteOptions, InputValue, MethodOptions, Runtime, RuntimeOptions, TensorInput};
use std::sync::Arc;

fn doubled(inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]) -> Result<()> {
    let x = inputs[0].tensor()?;
    outputs[0].resize(x.shape())?;
    let to = outputs[0].view_mut().into_slice::<f32>()?;
    to.iter_mut().zip(x.as_slice::<f32>()?).for_each(|(to, x)| *to = 2.0 * x);
    Ok(())
}

fn with(
    kernel: impl Fn(&[OperatorInput<'_>], &mut [OutputView<'_>]) -> Result<()> + Send + Sync + 'static,
) -> Arc<Runtime> {
    let runtime = runtime();
    runtime.register_function("test::act", Arc::new(kernel), false).unwrap();
    runtime
}

#[test]
fn a_function_runs_between_kernels_of_the_runtime() {
    let program = ProgramBuilder::of(crate::test_kernels::acting_method()).load(&with(doubled));
    let method = forward(&program);
    for _ in 0..2 {
        assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.5])]), [4.0, 10.0]);
    }
}

/// Calls wait in the kernel for each other, so each has a session of its own.
#[test]
fn the_pool_keeps_as_many_sessions_as_there_are_threads() {
    const CALLS: usize = 8;
    let everybody = std::sync::Barrier::new(CALLS);
    let runtime = Runtime::new(RuntimeOptions { threads: Some(3), ..Default::default() }).unwrap();
    let waiting = move |inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]| {
        everybody.wait();
        doubled(inputs, outputs)
    };
    runtime.register_function("test::act", Arc::new(waiting), false).unwrap();
    let program = ProgramBuilder::of(crate::test_kernels::acting_method()).load(&runtime);
    assert_eq!(program.idle_sessions("forward").unwrap(), 0);
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for _ in 0..CALLS {
                scope.spawn(|| {
                    let x = TensorInput::from_slice(&[2], &[1.0f32, 2.5]).unwrap();
                    let out =
                        program.run("forward", &[InputValue::Tensor(x)], ExecuteOptions::default()).unwrap();
                    assert_eq!(out[0].tensor().unwrap().elements::<f32>().unwrap(), [4.0, 10.0]);
                });
            }
        });
        assert_eq!(program.idle_sessions("forward").unwrap(), 3);
    }
    assert_eq!(program.idle_sessions("no method").unwrap_err().kind(), ErrorKind::MethodNotFound);
}

#[test]
fn outputs_with_a_bound_have_the_shape_of_the_call() {
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[4]), m.bounded(&[4]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.call("test::act.out", &[x, y, y]);
    let kept = |inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]| {
        let x = inputs[0].tensor()?.as_slice::<f32>()?;
        assert_eq!(**outputs[0].shape(), [4]);
        let kept: Vec<f32> = x.iter().copied().filter(|x| *x > 0.0).collect();
        outputs[0].resize(&[kept.len()])?;
        outputs[0].view_mut().into_slice::<f32>()?.copy_from_slice(&kept);
        Ok(())
    };
    let method = forward(&ProgramBuilder::of(m).load(&with(kept)));
    for (x, expected) in
        [([1.0, -1.0, 2.0, -2.0], vec![1.0, 2.0]), ([1.0; 4], vec![1.0; 4]), ([-1.0; 4], vec![])]
    {
        assert_eq!(run_one(&method, &[(&[4], &x)]), expected);
    }
}

#[test]
fn numbers_and_lists_come_as_they_are() {
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[2]), m.unplanned(&[2]));
    let (n, flag, sizes) = (m.int(7), m.bool(true), m.ints(&[3, 4]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.call("test::act.out", &[x, n, flag, sizes, y, y]);
    let check = |inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]| {
        let OperatorInput::Ints(sizes) = &inputs[3] else { return Err(Error::kernel("no sizes")) };
        assert!(matches!(inputs[1], OperatorInput::Single(ArgView::Int(7))));
        assert!(matches!(inputs[2], OperatorInput::Single(ArgView::Bool(true))));
        assert!(inputs[1].tensor().is_err());
        let sum = sizes.iter().sum::<i64>() as f32;
        outputs[0].view_mut().into_slice::<f32>()?.fill(sum);
        Ok(())
    };
    let method = forward(&ProgramBuilder::of(m).load(&with(check)));
    assert_eq!(run_one(&method, &[(&[2], &[0.0, 0.0])]), [7.0, 7.0]);
}

#[test]
fn a_failing_function_and_a_missing_one_name_their_place() {
    let mut p = ProgramBuilder::of(crate::test_kernels::acting_method());
    p.named(
        "pteron.debug",
        br#"{"version":1,"files":["net/model.py"],"methods":{"forward":{"instructions":[[1],[2]],
            "handles":{"2":{"operator":"test.act.default","module":"act","file":0,"line":42}},"delegates":{}}}}"#,
    );
    let fails = |_: &[OperatorInput<'_>], _: &mut [OutputView<'_>]| Err(Error::kernel("no rows"));
    let e = run(&forward(&p.load(&with(fails))), &[(&[2], &[1.0, 2.0])]).unwrap_err();
    says(
        &e,
        ErrorKind::Kernel,
        &["operator test::act.out", "no rows", "instruction 1", "net/model.py:42 (act)"],
    );
    let e = p.load(&runtime()).load_method("forward", MethodOptions::default()).err().unwrap();
    says(&e, ErrorKind::MissingOperator, &["test::act.out", "register_function", "net/model.py:42 (act)"]);
}

/// What `tests/custom_ops/keep.py` wrote: `y = add_scaled(linear(x), scale=0.5)` with the weights 2 and the bias 1.
const EXPORTED: &[u8] = include_bytes!("../data/custom_operator.pte");

#[test]
fn an_exported_program_runs_with_a_kernel_in_rust() {
    let runtime = runtime();
    let program = load_bytes(&runtime, EXPORTED.to_vec()).unwrap();
    let e = program.load_method("forward", MethodOptions::default()).err().unwrap();
    says(&e, ErrorKind::MissingOperator, &["pteron_example::add_scaled.out", "keep.py"]);
    let kernel = |inputs: &[OperatorInput<'_>], outputs: &mut [OutputView<'_>]| {
        let x = inputs[0].tensor()?;
        let OperatorInput::Single(ArgView::Double(scale)) = inputs[1] else {
            return Err(Error::kernel("no scale"));
        };
        outputs[0].resize(x.shape())?;
        let to = outputs[0].view_mut().into_slice::<f32>()?;
        to.iter_mut().zip(x.as_slice::<f32>()?).for_each(|(to, x)| *to = x + x * scale as f32);
        Ok(())
    };
    runtime.register_function("pteron_example::add_scaled", Arc::new(kernel), false).unwrap();
    let method = forward(&program);
    // Rows vary from 1 to 8.
    assert_eq!(run_one(&method, &[(&[1, 2], &[1.0, 2.0])]), [10.5]);
    assert_eq!(run_one(&method, &[(&[3, 2], &[0.0, 0.0, 1.0, 0.0, -1.0, -1.0])]), [1.5, 4.5, -4.5]);
}
