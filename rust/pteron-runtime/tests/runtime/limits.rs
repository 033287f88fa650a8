//! Budgets, deadlines, cancellation, memory limits, and one call at a time.

use crate::test_kernels::{Behaviour, SCHEMA, TestKernel, acting_method};
use crate::{cancelled_until_done, forward, run, run_one};
use pteron_core::ErrorKind;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, Method, MethodOptions, Program, ProgramSource, TensorInput,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Loops until a bool input... which is baked in as false: for ever.
fn endless() -> Method {
    forward(&endless_program().load(&runtime()))
}

fn endless_program() -> ProgramBuilder {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    let never = m.bool(false);
    m.inputs(&[x]);
    m.outputs(&[t]);
    let top = m.add(x, x, t);
    m.jump_false(never, top);
    ProgramBuilder::of(m)
}

fn execute(method: &Method, options: ExecuteOptions<'_>) -> pteron_core::Result<pteron_runtime::Outputs> {
    let x = [1.0f32, 2.0];
    method.execute(&[InputValue::Tensor(TensorInput::from_slice(&[2], &x).unwrap())], options)
}

#[test]
fn a_budget_of_a_thousand_instructions_ends_a_loop() {
    let method = endless();
    let e = execute(&method, ExecuteOptions { budget: Some(1000), ..Default::default() }).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert!(
        e.to_string().contains("at most 1000 instructions") && e.to_string().contains("instruction 0"),
        "{e}"
    );
}

#[test]
fn a_limit_of_the_program_holds_for_every_call() {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, x, t);
    m.add(x, t, x);
    let bytes = Arc::new(ProgramBuilder::of(m).bytes());
    let limits = Limits { instructions: Some(1), ..Default::default() };
    let program = Program::load(&runtime(), ProgramSource::Bytes(bytes), limits).unwrap();
    let e =
        execute(&forward(&program), ExecuteOptions { budget: Some(50), ..Default::default() }).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_deadline_stops_an_endless_loop_and_the_method_stays_usable() {
    let method = endless();
    for _ in 0..2 {
        let start = Instant::now();
        let deadline = Some(start + Duration::from_millis(30));
        let e = execute(&method, ExecuteOptions { deadline, ..Default::default() }).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert!(start.elapsed() >= Duration::from_millis(30) && start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn cancelling_from_another_thread_stops_loops_and_long_kernels() {
    let runtime = runtime();
    runtime.register_kernel(TestKernel::of(SCHEMA, Behaviour::Wait)).unwrap();
    let long = forward(&ProgramBuilder::of(acting_method()).load(&runtime));
    for method in [endless(), long] {
        let handle = method.cancel_handle();
        // Without a run, nothing to cancel.
        handle.cancel();
        let e = cancelled_until_done(handle, || execute(&method, ExecuteOptions::default())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
        assert!(e.to_string().contains("method 'forward'"), "{e}");
    }
}

#[test]
fn poll_is_called_and_its_error_stops_the_run() {
    let method = endless();
    let mut count = 0;
    let mut poll = || {
        count += 1;
        if count == 3 { Err(pteron_core::Error::new(ErrorKind::Cancelled, "a signal came")) } else { Ok(()) }
    };
    let e = execute(&method, ExecuteOptions { poll: Some(&mut poll), ..Default::default() }).unwrap_err();
    assert!(e.to_string().contains("a signal came"), "{e}");
    assert_eq!(count, 3);
}

#[test]
fn a_second_call_while_one_runs_is_refused() {
    let word = Arc::new(AtomicU32::new(0));
    let runtime = runtime();
    runtime.register_kernel(TestKernel::of(SCHEMA, Behaviour::Meet(word.clone()))).unwrap();
    let method = Arc::new(forward(&ProgramBuilder::of(acting_method()).load(&runtime)));
    let other = method.clone();
    let thread = std::thread::spawn(move || run(&other, &[(&[2], &[1.0, 2.0])]).map(|_| ()));
    while word.load(Ordering::SeqCst) != 1 {
        std::thread::yield_now();
    }
    let e = run(&method, &[(&[2], &[1.0, 2.0])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MethodBusy);
    assert!(e.to_string().contains("program.run()"), "{e}");
    assert_eq!(method.get_state().unwrap_err().kind(), ErrorKind::MethodBusy);
    word.store(2, Ordering::SeqCst);
    thread.join().unwrap().unwrap();
}

#[test]
fn the_memory_limit_is_checked_before_memory_is_taken() {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[1024]), m.planned(&[1024]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, x, t);
    let program = ProgramBuilder::of(m).load(&runtime());
    assert_eq!(program.arena_bytes("forward").unwrap(), 8192);
    let limits = |n| MethodOptions {
        limits: Limits { arena_bytes: Some(n), ..Default::default() },
        ..Default::default()
    };
    let e = program.load_method("forward", limits(8191)).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert!(e.to_string().contains("at most 8191 bytes") && e.to_string().contains("8192 bytes"), "{e}");
    let method = program.load_method("forward", limits(8192)).unwrap();
    assert_eq!(run_one(&method, &[(&[1024], &[1.0; 1024])]), [2.0; 1024]);
}

/// Loads the bytes with `limits`.
fn load_with(bytes: &Arc<Vec<u8>>, limits: Limits) -> pteron_core::Result<Arc<Program>> {
    Program::load(&runtime(), ProgramSource::Bytes(bytes.clone()), limits)
}

#[test]
fn the_number_of_values_and_instructions_is_limited_on_both_sides() {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, x, t);
    let count = m.draft.values.len();
    let bytes = Arc::new(ProgramBuilder::of(m).bytes());
    let limits = |n| Limits { values: Some(n), ..Default::default() };
    assert!(load_with(&bytes, limits(count)).is_ok());
    let e = load_with(&bytes, limits(count - 1)).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert_eq!(
        e.to_string(),
        "method 'forward', argument 'limits.values': the method has too many values; expected at most 2 values; \
         got 3 (hint: raise the limit if the program is trusted: Limits(values=...))"
    );
    // A session may be tighter than its program.
    let program = load_with(&bytes, Limits::default()).unwrap();
    let options = MethodOptions { limits: limits(count - 1), ..Default::default() };
    assert_eq!(program.load_method("forward", options).err().unwrap().kind(), ErrorKind::LimitExceeded);
    assert!(program.load_method("forward", MethodOptions::default()).is_ok());
}

#[test]
fn the_rank_is_limited_on_both_sides() {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2, 1, 2]), m.planned(&[2, 1, 2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, x, t);
    let bytes = Arc::new(ProgramBuilder::of(m).bytes());
    let limits = |n| Limits { rank: Some(n), ..Default::default() };
    assert!(load_with(&bytes, limits(3)).is_ok());
    let e = load_with(&bytes, limits(2)).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert!(
        e.to_string().contains("limits.rank") && e.to_string().contains("rank at most 2; got rank 3"),
        "{e}"
    );
}

#[test]
fn a_limit_on_time_holds_for_every_call_and_is_no_earlier() {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, x, t);
    let bytes = Arc::new(ProgramBuilder::of(m).bytes());
    let limits = |ms| Limits { time: Some(Duration::from_millis(ms)), ..Default::default() };
    let method = forward(&load_with(&bytes, limits(600_000)).unwrap());
    assert!(execute(&method, ExecuteOptions::default()).is_ok());
    let endless = endless();
    let options = MethodOptions { limits: limits(20), ..Default::default() };
    let tight = endless.program().load_method("forward", options).unwrap();
    for _ in 0..2 {
        let start = Instant::now();
        let e = execute(&tight, ExecuteOptions::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}

/// A program whose delegate runs a program whose delegate ... `depth` programs in all.
fn nested(depth: usize) -> Vec<u8> {
    let mut p = ProgramBuilder::new();
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    if depth == 1 {
        m.add(x, x, t);
    } else {
        let blob = p.blob(&nested(depth - 1));
        m.delegate("ExecutorBackend", blob, &[x, t]);
    }
    p.with(m).bytes()
}

#[test]
fn programs_inside_each_other_are_limited_on_both_sides() {
    let runtime = runtime();
    pteron_demo::register(&runtime).unwrap();
    let load = |depth, nesting| {
        let bytes = Arc::new(nested(depth));
        let limits = Limits { nesting, ..Default::default() };
        Program::load(&runtime, ProgramSource::Bytes(bytes), limits)?
            .load_method("forward", MethodOptions::default())
    };
    assert_eq!(run_one(&load(3, Some(3)).unwrap(), &[(&[2], &[1.0, 2.0])]), [2.0, 4.0]);
    let e = load(3, Some(2)).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert!(e.to_string().contains("limits.nesting") && e.to_string().contains("at most 2; got 3"), "{e}");
    assert!(load(8, None).is_ok());
    // A file of some KiB that would otherwise nest as deep as the stack is long.
    assert_eq!(load(60, None).err().unwrap().kind(), ErrorKind::LimitExceeded);
}

/// A method that runs `programs` one after the other, each in a delegate.
fn running(programs: &[&[u8]]) -> Arc<Program> {
    let runtime = runtime();
    pteron_demo::register(&runtime).unwrap();
    let mut p = ProgramBuilder::new();
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.planned(&[2]), m.planned(&[2]));
    m.inputs(&[x]);
    m.outputs(&[t]);
    for program in programs {
        let blob = p.blob(program);
        m.delegate("ExecutorBackend", blob, &[x, t]);
    }
    p.with(m).load(&runtime)
}

#[test]
fn programs_inside_share_the_instructions_of_the_call() {
    let call = |program: &Arc<Program>, limit| {
        let limits = Limits { instructions: limit, ..Default::default() };
        program.load_method("forward", MethodOptions { limits, ..Default::default() }).unwrap()
    };
    let budget = |budget| ExecuteOptions { budget, ..Default::default() };
    // Two delegate calls, with one instruction each inside.
    let two = running(&[&nested(1), &nested(1)]);
    assert!(execute(&call(&two, None), budget(Some(4))).is_ok());
    assert!(execute(&call(&two, None), ExecuteOptions::default()).is_ok());
    for method in [call(&two, Some(3)), call(&two, Some(2))] {
        let e = execute(&method, ExecuteOptions::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::LimitExceeded, "{e}");
    }
    let loops = running(&[&endless_program().bytes()]);
    for (method, options) in [
        (call(&loops, None), budget(Some(1000))),
        (call(&loops, Some(1000)), ExecuteOptions::default()),
        (call(&loops, Some(1000)), budget(Some(u64::MAX))),
    ] {
        let e = execute(&method, options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::LimitExceeded, "{e}");
        assert!(e.to_string().contains("at most 999 instructions"), "{e}");
    }
    let soon = Instant::now() + Duration::from_millis(20);
    let e = execute(&call(&loops, None), ExecuteOptions { deadline: Some(soon), ..Default::default() });
    assert_eq!(e.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    // Nothing is left of it for other calls on this thread.
    let e = execute(&endless(), budget(Some(5000))).unwrap_err();
    assert!(e.to_string().contains("at most 5000 instructions"), "{e}");
}

#[test]
fn programs_inside_share_the_memory_of_the_session() {
    // Four programs in all, with the same two tensors.
    let three = running(&[&nested(1), &nested(2)]);
    let load = |nbytes| {
        let limits = Limits { arena_bytes: Some(nbytes), ..Default::default() };
        three.load_method("forward", MethodOptions { limits, ..Default::default() })
    };
    let most = (0..=1000).find(|n| load(*n).is_ok()).unwrap();
    let alone = running(&[]);
    let single = (0..=1000)
        .find(|n| {
            let limits = Limits { arena_bytes: Some(*n), ..Default::default() };
            alone.load_method("forward", MethodOptions { limits, ..Default::default() }).is_ok()
        })
        .unwrap();
    assert_eq!(most, 4 * single);
    let e = load(most - 1).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::LimitExceeded);
    assert!(e.to_string().contains("limits.arena_bytes") && e.to_string().contains("bytes more"), "{e}");
}
