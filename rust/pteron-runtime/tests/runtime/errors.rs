//! Every kind of error, by kind and by what its text says.

use crate::test_kernels::{Behaviour, SCHEMA, TestKernel, acting_method};
use crate::{forward, run, run_one};
use pteron_core::{DType, Error, ErrorKind};
use pteron_format::write::ValueDraft;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, load_bytes, runtime};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, MethodOptions, Program, ProgramSource, TensorInput,
};

fn add_method() -> MethodBuilder {
    let mut m = MethodBuilder::new("forward");
    let (x, y, out) = (m.unplanned(&[2]), m.unplanned(&[2]), m.unplanned(&[2]));
    m.inputs(&[x, y]);
    m.outputs(&[out]);
    m.add(x, y, out);
    m
}

/// The error of loading program or method.
fn load_error(m: MethodBuilder) -> Error {
    match load_bytes(&runtime(), ProgramBuilder::of(m).illegal_bytes()) {
        Ok(program) => program.load_method("forward", MethodOptions::default()).err().unwrap(),
        Err(e) => e,
    }
}

#[track_caller]
pub(crate) fn says(e: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(e.kind(), kind, "{e}");
    for part in parts {
        assert!(e.to_string().contains(part), "'{part}' is not in: {e}");
    }
}

#[test]
fn wrong_inputs_name_the_input_and_leave_the_session_usable() {
    let method = forward(&ProgramBuilder::of(add_method()).load(&runtime()));
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    says(&e, ErrorKind::Input, &["number of inputs", "expected 2", "got 1", "method 'forward'"]);
    let e = run(&method, &[(&[2], &[1.0, 2.0]), (&[3], &[1.0, 2.0, 3.0])]).unwrap_err();
    says(&e, ErrorKind::Input, &["argument 'input1'", "dimension 0", "float32[2]", "float32[3]"]);
    let e = run(&method, &[(&[2], &[1.0, 2.0]), (&[2, 1], &[1.0, 2.0])]).unwrap_err();
    says(&e, ErrorKind::Input, &["rank"]);
    let (x, n) = ([1.0f32, 2.0], [1i64, 2]);
    let x = InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap());
    let n = InputValue::Tensor(TensorInput::from_slice(&[2], &n).unwrap());
    let e = method.execute(&[x, n], ExecuteOptions::default()).unwrap_err();
    says(&e, ErrorKind::InputType, &["argument 'input1'", "float32", "int64", "hint"]);
    let e = method.execute(&[x, InputValue::Int(3)], ExecuteOptions::default()).unwrap_err();
    says(&e, ErrorKind::InputType, &["got int"]);
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0]), (&[2], &[1.0, 2.0])]), [2.0, 4.0]);
}

#[test]
fn unknown_methods_list_the_known_ones() {
    let program = ProgramBuilder::of(add_method()).load(&runtime());
    let e = program.load_method("backward", MethodOptions::default()).err().unwrap();
    says(&e, ErrorKind::MethodNotFound, &["one of forward", "got backward"]);
    says(&program.inputs("x").unwrap_err(), ErrorKind::MethodNotFound, &["forward"]);
}

#[test]
fn all_missing_operators_are_reported_together() {
    let mut m = add_method();
    m.call("aten::no_such.out", &[0, 2, 2]);
    m.call("aten::nor_this", &[0, 2, 2]);
    m.call("aten::no_such.out", &[0, 2, 2]);
    let e = load_error(m);
    says(
        &e,
        ErrorKind::MissingOperator,
        &["2 missing", "aten::no_such.out (instruction 1)", "aten::nor_this (instruction 2)", "hint"],
    );
}

#[test]
fn calls_that_differ_from_the_schema_are_refused_at_load() {
    let mut m = add_method();
    m.call("aten::add.out", &[0, 1, 2, 2]);
    says(&load_error(m), ErrorKind::Program, &["instruction 1", "aten::add.out", "expected 5", "got 4"]);
    let mut m = add_method();
    let text = m.value(ValueDraft::String("\u{1b}[31m".into()));
    m.call("aten::add.out", &[0, text, text, 2, 2]);
    says(&load_error(m), ErrorKind::Program, &["argument 'other'", "expected Tensor", "got str"]);
    let mut m = add_method();
    let one = m.int(1);
    m.call("aten::add.out", &[0, 1, one, 2, 1]);
    says(&load_error(m), ErrorKind::Program, &["argument 'return'", "expected value 2", "got value 1"]);
    let mut m = add_method();
    let one = m.int(1);
    let others = m.value(ValueDraft::TensorList([1, 2].into()));
    m.call("aten::add.out", &[0, 1, one, 2, others]);
    says(&load_error(m), ErrorKind::Program, &["argument 'return'", "expected value 2", "got values 1, 2"]);
}

#[test]
fn moves_and_jumps_of_the_wrong_kind_are_refused_at_load() {
    type Case = (&'static [&'static str], fn(&mut MethodBuilder));
    let cases: [Case; 6] = [
        (&["Tensor", "got int"], |m| {
            let n = m.int(1);
            m.mv(n, 2);
        }),
        (&["rank", "dimensions"], |m| {
            let t = m.planned(&[2, 1]);
            m.mv(t, 2);
        }),
        (&["shape"], |m| {
            let t = m.planned(&[3]);
            m.mv(t, 2);
        }),
        (&["dtype", "got int32", "of int32"], |m| {
            let t = m.tensor(DType::Int32, &[2]);
            let t = m.value(t);
            m.mv(t, 2);
        }),
        (&["condition", "bool"], |m| {
            let n = m.int(1);
            m.jump_false(n, 0);
        }),
        (&["condition", "bool"], |m| {
            m.jump_false(0, 0);
        }),
    ];
    for (what, change) in cases {
        let mut m = add_method();
        change(&mut m);
        let e = load_error(m);
        says(&e, ErrorKind::Program, &["instruction 1"]);
        assert!(what.iter().any(|w| e.to_string().contains(w)), "{e}");
    }
}

#[test]
fn writing_to_a_constant_is_refused_at_load() {
    let mut p = ProgramBuilder::new();
    let index = p.constant(&[1.0, 2.0]);
    let mut m = add_method();
    let c = m.constant(&[2], index);
    m.add(0, 1, c);
    let program = p.with(m).load(&runtime());
    let e = program.load_method("forward", MethodOptions::default()).err().unwrap();
    says(&e, ErrorKind::Program, &["writes to a constant", "argument 'out'", "instruction 1"]);
}

#[test]
fn a_failing_kernel_says_where_with_what_and_from_which_line() {
    let runtime = runtime();
    runtime.register_kernel(TestKernel::of(SCHEMA, Behaviour::Fail)).unwrap();
    let mut p = ProgramBuilder::of(acting_method());
    p.named(
        "pteron.debug",
        br#"{"version":1,"files":["net/model.py"],"methods":{"forward":{"instructions":[[1],[2]],
            "handles":{"2":{"operator":"aten.act.default","module":"encoder.act","file":0,"line":42}},"delegates":{}}}}"#,
    );
    let method = forward(&p.load(&runtime));
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    says(
        &e,
        ErrorKind::Kernel,
        &[
            "method 'forward'",
            "instruction 1",
            "operator test::act.out",
            "this kernel always fails",
            "self float32[2]",
            "expected success; got failure",
            "net/model.py:42 (encoder.act)",
        ],
    );
}

#[test]
fn a_panic_becomes_an_error_and_the_session_refuses_further_use() {
    let runtime = runtime();
    runtime.register_kernel(TestKernel::of(SCHEMA, Behaviour::Panic)).unwrap();
    let program = ProgramBuilder::of(acting_method()).load(&runtime);
    let method = forward(&program);
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    says(&e, ErrorKind::Internal, &["always panics"]);
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    says(&e, ErrorKind::Internal, &["earlier call", "load the method again"]);
    // A new session is a new start.
    assert_eq!(run(&forward(&program), &[(&[2], &[1.0, 2.0])]).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn damaged_and_missing_files() {
    let e = load_bytes(&runtime(), b"not a program".to_vec()).err().unwrap();
    says(&e, ErrorKind::Program, &[]);
    let source = || ProgramSource::File { path: "there/is/no.pte".into(), is_mapped: true };
    let e = Program::load(&runtime(), source(), Limits::default()).err().unwrap();
    says(&e, ErrorKind::NotFound, &["there/is/no.pte"]);
}

#[test]
fn no_damage_to_one_byte_kills() {
    let bytes = ProgramBuilder::of(add_method()).bytes();
    let runtime = runtime();
    let mut loaded = 0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let Ok(program) = load_bytes(&runtime, damaged) else { continue };
            let names: Vec<String> = program.methods().into_iter().map(str::to_string).collect();
            for name in names {
                let Ok(method) = program.load_method(&name, MethodOptions::default()) else { continue };
                loaded += 1;
                let x = [1.0f32, 2.0];
                let x = InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap());
                let _ = method.execute(&[x, x], ExecuteOptions { budget: Some(100), ..Default::default() });
            }
        }
    }
    assert!(loaded > 100, "the damage never left a program that loads: {loaded}");
}

#[test]
fn external_constants_are_refused_with_their_names() {
    let mut m = add_method();
    let mut t = m.tensor(DType::Float32, &[2]);
    t.extra = Some(pteron_format::write::ExtraTensorDraft {
        fully_qualified_name: Some("layer.weight".into()),
        location: 1,
        ..Default::default()
    });
    let c = m.value(t);
    m.add(0, c, 2);
    says(&load_error(m), ErrorKind::ExternalData, &["layer.weight", "hint"]);
}

#[test]
fn two_kernels_of_one_operator_must_agree_on_the_schema() {
    let e = runtime()
        .register_kernel(TestKernel::of(
            "aten::add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
            Behaviour::Fail,
        ))
        .unwrap_err();
    says(&e, ErrorKind::Kernel, &["another schema", "aten::add.out"]);
    let e = runtime().register_kernel(TestKernel::of("nonsense", Behaviour::Fail)).unwrap_err();
    says(&e, ErrorKind::Kernel, &["nonsense"]);
}

#[test]
fn a_schema_that_is_none_leaves_the_registry_as_it_was() {
    let runtime = runtime();
    for bad in ["x)(->", ")(", "->", "x(->", "a::b(Tensor(a!) out) nothing -> Tensor(a!)"] {
        let e = runtime.register_kernel(TestKernel::of(bad, Behaviour::Fail)).unwrap_err();
        says(&e, ErrorKind::Kernel, &["operator schema"]);
    }
    assert!(runtime.operator_names().len() > 100);
}

#[test]
fn output_buffers_that_share_memory_are_refused() {
    let mut m = MethodBuilder::new("forward");
    let (x, a, b) = (m.unplanned(&[2]), m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[a, b]);
    m.add(x, x, a);
    m.add(a, x, b);
    let method = crate::forward(&ProgramBuilder::of(m).load(&runtime()));
    let x = [1.0f32, 2.0];
    let inputs = [InputValue::Tensor(pteron_runtime::TensorInput::from_slice(&[2], &x).unwrap())];
    let mut memory = [7.0f32; 4];
    let start: *mut u8 = memory.as_mut_ptr().cast();
    let call = |second: usize| {
        // SAFETY: both ranges lie within `memory`, which nobody else uses during the call.
        let at = |i: usize| unsafe {
            pteron_runtime::OutputBuffer::new(pteron_core::DType::Float32, &[2], start.wrapping_add(4 * i))
        };
        let outputs = [Some(at(0)), Some(at(second))];
        method.execute(&inputs, ExecuteOptions { outputs: &outputs, ..Default::default() }).map(drop)
    };
    for second in [0, 1] {
        let e = call(second).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Input);
        assert!(e.to_string().contains("output 0") && e.to_string().contains("output 1"), "{e}");
    }
    call(2).unwrap();
    assert_eq!(memory, [2.0, 4.0, 3.0, 6.0]);
}

#[test]
fn options_nobody_would_read_are_refused() {
    let mut m = MethodBuilder::new("forward");
    let (x, out) = (m.unplanned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.add(x, x, out);
    let program = ProgramBuilder::of(m).load(&runtime());
    let unused =
        MethodOptions { backend_options: [("Nobody".to_string(), vec![])].into(), ..Default::default() };
    let none = MethodOptions { num_threads: Some(0), ..Default::default() };
    for (options, argument) in [(unused, "backend_options"), (none, "num_threads")] {
        let e = program.load_method("forward", options).err().unwrap();
        assert_eq!((e.kind(), e.detail().argument.as_deref()), (ErrorKind::Input, Some(argument)));
        assert!(e.detail().hint.is_some());
    }
    let rules = pteron_runtime::RuleSwitches::all_on().without("nope");
    let options = pteron_runtime::RuntimeOptions { rules, ..Default::default() };
    let e = pteron_runtime::Runtime::new(options).err().unwrap();
    assert!(e.to_string().contains("nope"), "{e}");
}
