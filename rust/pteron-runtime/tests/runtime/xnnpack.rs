//! Delegates of XNNPACK: programs that ExecuTorch lowered, and its payloads in programs of the tests' own.

use crate::{forward, run, run_one};
use pteron_core::{
    Backend, CompileSpec, DType, Delegate, Error, ErrorKind, InitContext, Instruction, Result,
};
use pteron_format::ProgramFile;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, load_bytes, runtime};
use pteron_fuzz::oracles::are_close;
use pteron_runtime::{
    ExecuteOptions, Extent, InputValue, IoKind, Limits, MethodOptions, Program, RuleSwitches, Runtime,
    RuntimeOptions, TensorInput,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BACKEND: &str = "XnnpackBackend";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pteron-xnnpack/tests/programs")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

/// Float32 programs by name.
fn names() -> Vec<String> {
    let names = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> =
        names.filter(|n| n.ends_with(".pte") && !n.contains("int8") && !n.contains("half")).collect();
    found.sort();
    found
}

/// Results of `forward` for inputs of their largest shapes.
fn results(program: &Arc<Program>) -> Vec<Vec<f32>> {
    let inputs: Vec<(Vec<usize>, Vec<f32>)> = program
        .inputs("forward")
        .unwrap()
        .iter()
        .map(|input| {
            let IoKind::Tensor(tensor) = &input.kind else { panic!("{} is no tensor", input.name) };
            let extent = |e: &Extent, bound: &usize| if let Extent::Static(n) = e { *n } else { *bound };
            let shape: Vec<usize> =
                tensor.extents.iter().zip(tensor.bound.iter()).map(|(e, b)| extent(e, b)).collect();
            let count = shape.iter().product::<usize>();
            (shape, (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect())
        })
        .collect();
    let values: Vec<InputValue<'_>> = inputs
        .iter()
        .map(|(shape, data)| InputValue::Tensor(TensorInput::from_slice(shape, data).unwrap()))
        .collect();
    let out = forward(program).execute(&values, ExecuteOptions::default()).unwrap();
    let floats = |i: usize| out[i].tensor().unwrap().elements::<f32>().ok().map(<[f32]>::to_vec);
    (0..out.len()).filter_map(floats).collect()
}

#[test]
fn programs_run_without_a_delegate_and_the_same_with_every_rewrite_off() {
    let options = RuntimeOptions { threads: Some(1), rules: RuleSwitches::all_off(), ..Default::default() };
    let plain = Runtime::new(options).unwrap();
    assert!(names().len() >= 7, "programs are missing");
    for name in names() {
        let program = load_bytes(&runtime(), file(&name)).unwrap();
        let listing = program.plan_listing("forward").unwrap();
        assert!(!listing.contains("delegate "), "{name}: {listing}");
        let unchanged = load_bytes(&plain, file(&name)).unwrap();
        let (ours, expected) = (results(&program), results(&unchanged));
        assert!(!expected.is_empty());
        for (a, b) in ours.iter().zip(&expected) {
            assert!(a.iter().all(|v| v.is_finite()), "{name}");
            assert!(are_close(b, a, 1e-5), "{name}");
        }
    }
}

/// The payload of the first delegate of `functions`: sqrt|x| + floor(x) ceil(y) - sin(x) / (cos(y) + c). And the shape of c.
fn functions() -> (Vec<u8>, Vec<usize>) {
    let bytes = file("functions.pte");
    let program = ProgramFile::parse(&bytes).unwrap();
    let method = &program.methods[0];
    let found = method.instructions.iter().find_map(|i| match i {
        Instruction::Delegate { delegate: 0, args } => Some(args),
        _ => None,
    });
    let shape = method.tensor(found.unwrap()[2]).unwrap().spec.shape.to_vec();
    (bytes[method.delegates[0].blob.clone()].to_vec(), shape)
}

fn expected(x: f32, y: f32) -> f32 {
    x.abs().sqrt() + x.floor() * y.ceil() - x.sin() / (y.cos() + 2.0)
}

const X: [f32; 12] = [0.1, -0.7, 1.3, 2.9, -3.3, 0.0, 4.5, 1.0, -1.0, 0.4, 8.1, -0.2];
const Y: [f32; 12] = [1.1, 0.7, -1.3, 2.2, 3.1, 0.5, -4.5, 1.0, -1.0, 0.3, 0.1, -0.6];

/// out = relu(f(x, y)) where `flag` is above 0, else relu(x); with the delegate in the branch.
fn branches() -> ProgramBuilder {
    let (payload, shape) = functions();
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.planned(&[3, 4]), m.planned(&[3, 4]));
    let c = m.constant(&shape, 1);
    let (made, out) = (m.planned(&[3, 4]), m.planned(&[3, 4]));
    let bool = m.tensor(DType::Bool, &[1]);
    let (flag, is_taken, zero) = (m.unplanned(&[1]), m.value(bool), m.int(0));
    m.inputs(&[x, y, flag]);
    m.outputs(&[out]);
    m.call("aten::gt.Scalar_out", &[flag, zero, is_taken, is_taken]);
    let to_else = m.jump_false(is_taken, 0);
    m.delegate(BACKEND, 0, &[x, y, c, made]);
    m.call("aten::relu.out", &[made, out, out]);
    let no = m.bool(false);
    let to_end = m.jump_false(no, 0);
    let other = m.here();
    m.call("aten::relu.out", &[x, out, out]);
    let end = m.here();
    m.land(to_else, other);
    m.land(to_end, end);
    let mut p = ProgramBuilder::of(m);
    p.constant(&[2.0]);
    p.blob(&payload);
    p
}

#[test]
fn a_delegate_in_a_branch_runs_when_the_branch_is_taken() {
    let method = forward(&branches().load(&runtime()));
    let tensor = |data| InputValue::Tensor(TensorInput::from_slice(&[3, 4], data).unwrap());
    for is_taken in [true, false, true] {
        let flag = [f32::from(u8::from(is_taken))];
        let inputs =
            [tensor(&X), tensor(&Y), InputValue::Tensor(TensorInput::from_slice(&[1], &flag).unwrap())];
        let out = method.execute(&inputs, ExecuteOptions::default()).unwrap();
        let value = |(x, y): (&f32, &f32)| if is_taken { expected(*x, *y).max(0.0) } else { x.max(0.0) };
        let wanted: Vec<f32> = X.iter().zip(&Y).map(value).collect();
        assert!(are_close(&wanted, out[0].tensor().unwrap().elements::<f32>().unwrap(), 1e-5));
    }
}

/// f(x, y), then the payload again over its result.
fn twice() -> ProgramBuilder {
    let (payload, shape) = functions();
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[3, 4]), m.unplanned(&[3, 4]));
    let c = m.constant(&shape, 1);
    let (made, out) = (m.planned(&[3, 4]), m.unplanned(&[3, 4]));
    m.inputs(&[x, y]);
    m.outputs(&[out]);
    m.delegate(BACKEND, 0, &[x, y, c, made]);
    m.delegate(BACKEND, 0, &[made, y, c, out]);
    let mut p = ProgramBuilder::of(m);
    p.constant(&[2.0]);
    p.blob(&payload);
    p
}

#[test]
fn delegates_in_turn_are_one_run() {
    let program = twice().load(&runtime());
    let out = run_one(&forward(&program), &[(&[3, 4], &X), (&[3, 4], &Y)]);
    let wanted: Vec<f32> = X.iter().zip(&Y).map(|(x, y)| expected(expected(*x, *y), *y)).collect();
    assert!(are_close(&wanted, &out, 1e-4), "{out:?}");
    let listing = program.plan_listing("forward").unwrap();
    let joins = |line: &str| line.contains("0.") && line.contains(" 1.");
    assert!(listing.lines().any(joins), "no step has parts of both delegates:\n{listing}");
}

#[test]
fn limits_count_what_a_delegate_becomes() {
    let p = twice();
    let program = p.load(&runtime());
    let options = |limits| MethodOptions { limits, ..MethodOptions::default() };
    let few = Limits { values: Some(20), ..Limits::default() };
    let e = program.load_method("forward", options(few)).err().unwrap();
    assert!(e.kind() == ErrorKind::LimitExceeded && e.to_string().contains("limits.values"), "{e}");
    let few = Limits { instructions: Some(15), ..Limits::default() };
    let method = program.load_method("forward", options(few)).unwrap();
    let e = run(&method, &[(&[3, 4], &X), (&[3, 4], &Y)]).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert_eq!(e.detail().backend.as_deref(), Some(BACKEND));
}

struct Refusing;

impl Backend for Refusing {
    fn name(&self) -> &str {
        BACKEND
    }
    fn init(&self, _: &InitContext<'_>, _: &[u8], _: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
        Err(Error::delegate("the registered one was asked"))
    }
}

#[test]
fn a_registered_backend_is_asked_instead() {
    let runtime = runtime();
    assert_eq!(runtime.backend_names(), [BACKEND]);
    runtime.register_backend(Arc::new(Refusing), false).unwrap();
    assert_eq!(runtime.backend_names(), [BACKEND]);
    let e = twice().load(&runtime).load_method("forward", MethodOptions::default()).err().unwrap();
    assert!(e.to_string().contains("the registered one was asked"), "{e}");
}

#[test]
fn a_damaged_payload_is_an_error_with_its_place() {
    let mut p = twice();
    let payload = p.draft.delegate_data[0].to_mut();
    let end = payload.len();
    payload[40..end].fill(0xff);
    let e = p.load(&runtime()).load_method("forward", MethodOptions::default()).err().unwrap();
    assert_eq!((e.detail().backend.as_deref(), e.detail().instruction), (Some(BACKEND), Some(0)), "{e}");
}
