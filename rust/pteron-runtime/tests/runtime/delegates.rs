//! Delegates written in Rust: calls, failures at every phase, lifetimes, memory.

use crate::{cancelled_until_done, forward, run, run_one};
use pteron_core::{
    ArgView, Availability, Backend, BackendOption, CompileSpec, Delegate, Error, ErrorKind, ExecuteContext,
    InitContext, OutputView, Result,
};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{ExecuteOptions, InputValue, MethodOptions, Runtime, TensorInput};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

/// Doubles its first input into every output; does what the blob says otherwise.
struct Doubler {
    name: &'static str,
    counts: Arc<Counts>,
}

struct DoublerDelegate {
    what: String,
    num_outputs: usize,
    counts: Arc<Counts>,
}

impl Backend for Doubler {
    fn name(&self) -> &str {
        self.name
    }
    fn is_available(&self) -> Availability {
        match self.name {
            "Broken" => Availability::Unavailable("its accelerator is not plugged in".into()),
            _ => Availability::Available,
        }
    }
    fn init(&self, ctx: &InitContext<'_>, blob: &[u8], specs: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
        assert_eq!(ctx.method, "forward");
        let what = String::from_utf8(blob.to_vec()).unwrap();
        match what.as_str() {
            "fail in init" => return Err(Error::delegate("init refuses").got("this blob")),
            "panic in init" => panic!("init panics"),
            "named" => assert_eq!(ctx.named_data.get("side.data"), Some(&b"beside"[..])),
            "option" => assert_eq!(ctx.options, [("level".to_string(), BackendOption::Int(3))]),
            _ => {}
        }
        let outputs = specs.iter().find(|s| s.key == "outputs").map_or(1, |s| s.value[0] as usize);
        self.counts.made.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(DoublerDelegate { what, num_outputs: outputs, counts: self.counts.clone() }))
    }
}

impl Delegate for DoublerDelegate {
    fn num_outputs(&self) -> usize {
        self.num_outputs
    }
    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        match self.what.as_str() {
            "fail" => return Err(Error::delegate("cannot do this").debug_handle(1)),
            "kernel error" => return Err(Error::kernel("inner trouble")),
            "panic" => panic!("execute panics"),
            "keep the shape" => return Ok(()),
            "give up" => {
                while !(ctx.is_cancelled)() {
                    std::thread::yield_now();
                }
                return Err(Error::delegate("gave up"));
            }
            "wait" => {
                while !(ctx.is_cancelled)() {
                    std::thread::yield_now();
                }
                return Err(Error::new(ErrorKind::Cancelled, "the delegate stopped"));
            }
            _ => {}
        }
        let x = inputs[0].tensor()?.as_slice::<f32>()?;
        for out in outputs {
            out.resize(inputs[0].tensor()?.shape())?;
            for (o, v) in out.view_mut().into_slice::<f32>()?.iter_mut().zip(x) {
                *o = v * 2.0;
            }
        }
        Ok(())
    }
}

impl Drop for DoublerDelegate {
    fn drop(&mut self) {
        self.counts.dropped.fetch_add(1, Ordering::SeqCst);
        assert!(self.what != "panic in drop", "drop panics");
    }
}

fn with_backend() -> (Arc<Runtime>, Arc<Counts>) {
    let runtime = runtime();
    let counts = Arc::new(Counts::default());
    runtime.register_backend(Arc::new(Doubler { name: "Doubler", counts: counts.clone() }), false).unwrap();
    (runtime, counts)
}

/// y = delegate(x + x), with blob `what`; further delegates with blobs `more` come before.
fn program(what: &str, more: &[&str]) -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let mut m = MethodBuilder::new("forward");
    let (x, t, y) = (m.unplanned(&[2]), m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.add(x, x, t);
    for blob in more {
        let blob = p.blob(blob.as_bytes());
        m.delegate("Doubler", blob, &[t, y]);
    }
    let blob = p.blob(what.as_bytes());
    m.delegate("Doubler", blob, &[t, y]);
    p.with(m)
}

#[test]
fn delegates_compute_and_are_dropped_with_their_session() {
    let (runtime, counts) = with_backend();
    let program = program("", &[""]).load(&runtime);
    assert_eq!(program.backends("forward").unwrap(), ["Doubler"]);
    let method = forward(&program);
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [4.0, 8.0]);
    assert_eq!(counts.made.load(Ordering::SeqCst), 2);
    drop(method);
    assert_eq!(counts.dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn init_gets_named_data_and_options() {
    let (runtime, _) = with_backend();
    let mut p = program("named", &[]);
    p.named("side.data", b"beside");
    assert_eq!(run_one(&forward(&p.load(&runtime)), &[(&[2], &[1.0, 2.0])]), [4.0, 8.0]);
    let mut options = MethodOptions::default();
    options.backend_options.insert("Doubler".into(), vec![("level".into(), BackendOption::Int(3))]);
    let method = program("option", &[]).load(&runtime).load_method("forward", options).unwrap();
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [4.0, 8.0]);
}

#[test]
fn a_failing_init_takes_those_before_it_back() {
    for (what, text) in [("fail in init", "init refuses"), ("panic in init", "init panics")] {
        let (runtime, counts) = with_backend();
        let e = program(what, &["", ""])
            .load(&runtime)
            .load_method("forward", MethodOptions::default())
            .err()
            .unwrap();
        assert_eq!(e.kind(), ErrorKind::Delegate);
        assert!(e.to_string().contains(text) && e.to_string().contains("backend Doubler"), "{e}");
        assert_eq!(counts.made.load(Ordering::SeqCst), 2);
        assert_eq!(counts.dropped.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn missing_and_unavailable_backends_are_named_before_any_init() {
    let (runtime, counts) = with_backend();
    let mut p = ProgramBuilder::new();
    let blob = p.blob(b"b");
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.delegate("Doubler", blob, &[x, y]);
    m.delegate("Absent", blob, &[x, y]);
    let program = p.with(m).load(&runtime);
    let load = || program.load_method("forward", MethodOptions::default()).err().unwrap();
    let e = load();
    assert_eq!(e.kind(), ErrorKind::MissingBackend);
    assert!(
        e.to_string().contains("Absent") && e.to_string().contains("registered backends: Doubler"),
        "{e}"
    );
    assert_eq!(counts.made.load(Ordering::SeqCst), 0);
    struct Off;
    impl Backend for Off {
        fn name(&self) -> &str {
            "Absent"
        }
        fn is_available(&self) -> Availability {
            Availability::Unavailable("its accelerator is not plugged in".into())
        }
        fn init(&self, _: &InitContext<'_>, _: &[u8], _: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
            unreachable!()
        }
    }
    runtime.register_backend(Arc::new(Off), false).unwrap();
    let e = load();
    assert_eq!(e.kind(), ErrorKind::MissingBackend);
    assert!(e.to_string().contains("not plugged in"), "{e}");
}

const DEBUG: &str = r#"{"version":1,"files":["model.py"],"methods":{"forward":{
    "instructions":[[1],[7]],
    "handles":{"1":{"operator":"aten.add.Tensor","file":0,"line":5},"7":{"operator":"call_delegate","file":0,"line":9}},
    "delegates":{"0":{"backend":"Doubler","handles":{"1":{"operator":"aten.tan.default","module":"head.act","file":0,"line":31}},"map":{}}}}}}"#;

#[test]
fn an_error_is_explained_from_the_delegates_own_table() {
    let (runtime, _) = with_backend();
    let mut p = program("fail", &[]);
    p.named("pteron.debug", DEBUG.as_bytes());
    let method = forward(&p.load(&runtime));
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    let d = e.detail();
    assert_eq!((d.debug_handle, d.backend.as_deref(), d.instruction), (Some(1), Some("Doubler"), Some(1)));
    assert_eq!(d.operator.as_deref(), Some("aten.tan.default"));
    assert_eq!(d.source_line.as_deref(), Some("model.py:31 (head.act)"));
    let text = e.to_string();
    assert!(text.contains("cannot do this") && text.contains("debug handle is: 1"), "{text}");
    assert!(text.contains("float32[2]"), "{text}");
    // Without a handle, the line of the call itself.
    let mut p = program("kernel error", &[]);
    p.named("pteron.debug", DEBUG.as_bytes());
    let e = run(&forward(&p.load(&runtime)), &[(&[2], &[1.0, 2.0])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    assert_eq!(e.detail().source_line.as_deref(), Some("model.py:9"));
}

#[test]
fn a_panicking_delegate_is_contained_and_refuses_further_use() {
    let (runtime, counts) = with_backend();
    let method = forward(&program("panic", &[]).load(&runtime));
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    assert!(e.to_string().contains("execute panics"), "{e}");
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    assert!(e.to_string().contains("earlier call"), "{e}");
    drop(method);
    assert_eq!(counts.made.load(Ordering::SeqCst), counts.dropped.load(Ordering::SeqCst));
}

#[test]
fn a_delegate_sees_a_cancel() {
    let (runtime, _) = with_backend();
    let method = forward(&program("wait", &[]).load(&runtime));
    let e =
        cancelled_until_done(method.cancel_handle(), || run(&method, &[(&[2], &[1.0, 2.0])])).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Cancelled);
}

/// Whatever a delegate says when it stops, the call ends as what stopped it.
#[test]
fn a_delegate_that_gives_up_when_told_to_stop_was_cancelled() {
    let (runtime, _) = with_backend();
    let method = forward(&program("give up", &[]).load(&runtime));
    let e =
        cancelled_until_done(method.cancel_handle(), || run(&method, &[(&[2], &[1.0, 2.0])])).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
    let soon = Some(Instant::now() + Duration::from_millis(20));
    let options = ExecuteOptions { deadline: soon, ..Default::default() };
    let x = TensorInput::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
    let e = method.execute(&[InputValue::Tensor(x)], options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
}

#[test]
fn a_deadline_that_has_passed_stops_the_shortest_run() {
    let (runtime, _) = with_backend();
    let method = forward(&program("double", &[]).load(&runtime));
    for _ in 0..200 {
        let options = ExecuteOptions { deadline: Some(Instant::now()), ..Default::default() };
        let x = TensorInput::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
        let e = method.execute(&[InputValue::Tensor(x)], options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    }
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [4.0, 8.0]);
}

#[test]
fn a_panic_while_a_delegate_is_dropped_is_contained() {
    let (runtime, counts) = with_backend();
    // Two: a panic while another one unwinds would end the process.
    let program = program("panic in drop", &["panic in drop"]).load(&runtime);
    let method = forward(&program);
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [4.0, 8.0]);
    drop(method);
    let x = TensorInput::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
    program.run("forward", &[InputValue::Tensor(x)], ExecuteOptions::default()).unwrap();
    drop(program);
    assert_eq!(counts.dropped.load(Ordering::SeqCst), 4);
}

/// An output has its largest shape when a call begins, whatever the call before made of it.
#[test]
fn outputs_begin_with_their_largest_shape_in_every_call() {
    let (runtime, _) = with_backend();
    let mut p = ProgramBuilder::new();
    let (double, keep) = (p.blob(b"double"), p.blob(b"keep the shape"));
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.bounded(&[4]), m.bounded(&[4]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.delegate("Doubler", double, &[x, y]);
    m.delegate("Doubler", keep, &[x, y]);
    let method = forward(&p.with(m).load(&runtime));
    for _ in 0..2 {
        assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]).len(), 4);
    }
}

#[test]
fn calls_that_do_not_fit_the_delegate_are_refused_at_load() {
    let spec = |n: u8| vec![CompileSpec { key: "outputs".into(), value: vec![n] }];
    type Case = (&'static str, fn(&mut MethodBuilder, u32, Vec<CompileSpec>), u8);
    let cases: [Case; 5] = [
        (
            "more outputs than",
            |m, b, s| {
                m.delegate_with("Doubler", b, s, &[0, 1]);
            },
            3,
        ),
        (
            "not a tensor",
            |m, b, s| {
                let n = m.int(1);
                m.delegate_with("Doubler", b, s, &[0, n]);
            },
            1,
        ),
        (
            "overlap an input",
            |m, b, s| {
                m.delegate_with("Doubler", b, s, &[1, 1]);
            },
            1,
        ),
        (
            "overlap another output",
            |m, b, s| {
                m.delegate_with("Doubler", b, s, &[0, 1, 1]);
            },
            2,
        ),
        (
            "write to an input",
            |m, b, s| {
                m.delegate_with("Doubler", b, s, &[1, 0]);
            },
            1,
        ),
    ];
    for (text, change, outputs) in cases {
        let (runtime, counts) = with_backend();
        let mut p = ProgramBuilder::new();
        let blob = p.blob(b"x");
        let mut m = MethodBuilder::new("forward");
        let (x, y) = (m.unplanned(&[2]), m.planned(&[2]));
        m.inputs(&[x]);
        m.outputs(&[y]);
        change(&mut m, blob, spec(outputs));
        let e = p.with(m).load(&runtime).load_method("forward", MethodOptions::default()).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Program, "{e}");
        assert!(e.to_string().contains(text), "'{text}' is not in: {e}");
        assert_eq!(counts.made.load(Ordering::SeqCst), counts.dropped.load(Ordering::SeqCst));
    }
}

#[test]
fn a_delegate_cannot_outgrow_its_output() {
    let (runtime, _) = with_backend();
    let mut p = ProgramBuilder::new();
    let blob = p.blob(b"x");
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[4]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.delegate("Doubler", blob, &[x, y]);
    let method = forward(&p.with(m).load(&runtime));
    let e = run(&method, &[(&[4], &[1.0; 4])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    assert!(e.to_string().contains("exactly [2]"), "{e}");
}

/// `add(x, x) → t`, a delegate called with `(t, y)`, `add(t, y) → z`; `x` is planned, as exporters have inputs.
fn call_between(outputs: u8) -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let blob = p.blob(b"x");
    let mut m = MethodBuilder::new("forward");
    let (x, t, y, z) = (m.planned(&[2]), m.planned(&[2]), m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[z]);
    m.add(x, x, t);
    let specs = vec![CompileSpec { key: "outputs".into(), value: vec![outputs] }];
    m.delegate_with("Doubler", blob, specs, &[t, y]);
    m.add(t, y, z);
    p.with(m)
}

fn refusal_of(program: &ProgramBuilder) -> Error {
    let (runtime, counts) = with_backend();
    let e = program.load(&runtime).load_method("forward", MethodOptions::default()).err().unwrap();
    assert_eq!(counts.made.load(Ordering::SeqCst), counts.dropped.load(Ordering::SeqCst));
    e
}

/// What a delegate states is held against what the other instructions do with the arguments of its call.
#[test]
fn a_number_of_outputs_that_contradicts_the_instructions_is_refused() {
    let (runtime, _) = with_backend();
    let method = forward(&call_between(1).load(&runtime));
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [6.0, 12.0]);
    for outputs in [0, 2] {
        let e = refusal_of(&call_between(outputs));
        let d = e.detail();
        assert_eq!((e.kind(), d.backend.as_deref()), (ErrorKind::Program, Some("Doubler")), "{e}");
        let counts = (d.expected.clone().unwrap(), d.got.clone().unwrap());
        assert_eq!(counts, ("1".to_string(), outputs.to_string()), "{e}");
        assert!(e.to_string().contains("another number of outputs"), "{e}");
    }
}

/// A planned input of the method is no place for an output, whatever the delegate says.
#[test]
fn an_input_of_the_method_is_no_output_of_a_delegate() {
    let mut p = ProgramBuilder::new();
    let blob = p.blob(b"x");
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    let specs = vec![CompileSpec { key: "outputs".into(), value: vec![2] }];
    m.delegate_with("Doubler", blob, specs, &[x, y]);
    assert!(refusal_of(&p.with(m)).to_string().contains("another number of outputs"));
}

/// The file may say the number itself; then that counts, and a damaged statement is an error.
#[test]
fn the_file_says_how_many_outputs_a_delegate_has() {
    let with = |statement: &str| {
        let mut p = program("", &[]);
        let text = format!(r#"{{"version":1,"methods":{{"forward":{{"delegate_outputs":{statement}}}}}}}"#);
        p.named("pteron.interface", text.as_bytes());
        p
    };
    let (runtime, _) = with_backend();
    let method = forward(&with(r#"{"0": 1}"#).load(&runtime));
    assert_eq!(run_one(&method, &[(&[2], &[1.0, 2.0])]), [4.0, 8.0]);
    let e = refusal_of(&with(r#"{"0": 2}"#));
    assert!(e.to_string().contains("another number of outputs") && e.to_string().contains("Doubler"), "{e}");
    for damaged in ["[1]", r#"{"0": -1}"#, r#"{"0": "1"}"#, r#"{"1": 1}"#, r#"{"x": 1}"#] {
        let (runtime, _) = with_backend();
        let e = with(damaged).try_load(&runtime).err().unwrap();
        assert!(e.to_string().contains("counts outputs of delegates in another form"), "{damaged}: {e}");
    }
}
