//! The n-th request for memory of 4 KiB or more fails, for every n, over load, build, session and call of
//! many programs: each time an error of kind `LimitExceeded` or the right result, never a panic or an abort, and
//! the next try works. Requests of that size are fixed ones no more: they grow with what a file or a caller says.

use pteron_core::memory_reserve::ReservingAllocator;
use pteron_core::{DType, ErrorKind, Result};
use pteron_format::write::{
    BundleDraft, BundledValueDraft, DataEntryDraft, DataFileDraft, LayoutDraft, TestCaseDraft,
    TestSuiteDraft, WriteOptions,
};
use pteron_format::{ProgramFile, listing, strip};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_fuzz::random_program::{MAX_ROWS, RandomProgram};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, MethodOptions, Program, ProgramSource, Runtime, TensorInput,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Smallest request that fails.
const LARGE: usize = 4096;

#[derive(Clone, Copy)]
struct Plan {
    /// Requests that are still served.
    left: usize,
    /// Do all requests after the first refused one fail as well?
    is_lasting: bool,
}

thread_local! {
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which refuses what the thread's plan says.
struct Failing;

fn is_refused(size: usize) -> bool {
    let Ok(Some(plan)) = PLAN.try_with(Cell::get) else { return false };
    if size < LARGE {
        return false;
    }
    match plan.left.checked_sub(1) {
        Some(left) => PLAN.set(Some(Plan { left, ..plan })),
        None => {
            REFUSED.set(REFUSED.get() + 1);
            if !plan.is_lasting {
                PLAN.set(None);
            }
        }
    }
    plan.left == 0
}

// SAFETY: gives what the system gives, or nothing.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        if is_refused(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        if is_refused(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        if is_refused(size) { std::ptr::null_mut() } else { unsafe { System.realloc(pointer, layout, size) } }
    }
}

#[global_allocator]
static ALLOCATOR: ReservingAllocator<Failing> = ReservingAllocator(Failing);

/// A program and its input.
struct Case {
    name: String,
    bytes: Arc<Vec<u8>>,
    shape: Vec<usize>,
    input: Vec<f32>,
}

/// Loads, builds and runs twice; the bits of the outputs.
fn work(runtime: &Arc<Runtime>, case: &Case) -> Result<Vec<Vec<u32>>> {
    let source = ProgramSource::Bytes(case.bytes.clone());
    let program = Program::load(runtime, source, Limits::default())?;
    let method = program.load_method("forward", MethodOptions::default())?;
    let mut results = Vec::new();
    for _ in 0..2 {
        let input = InputValue::Tensor(TensorInput::from_slice(&case.shape, &case.input).unwrap());
        let outputs = method.execute(&[input], ExecuteOptions::default())?;
        for output in &outputs {
            results.push(output.tensor()?.elements::<f32>()?.iter().map(|v| v.to_bits()).collect());
        }
    }
    Ok(results)
}

/// Fails every request of `case` in turn; how many there were.
fn fail_each(case: &Case, is_lasting: bool) -> usize {
    let runtime = runtime();
    pteron_demo::register(&runtime).unwrap();
    fail_each_of(&case.name, is_lasting, || work(&runtime, case))
}

/// Fails every request of `work` in turn; how many there were.
fn fail_each_of<T: PartialEq>(name: &str, is_lasting: bool, work: impl Fn() -> Result<T>) -> usize {
    let expected = work().unwrap();
    for n in 0.. {
        PLAN.set(Some(Plan { left: n, is_lasting }));
        REFUSED.set(0);
        let result = catch_unwind(AssertUnwindSafe(&work));
        PLAN.set(None);
        let refused = REFUSED.get();
        let result = result.unwrap_or_else(|_| panic!("{name}: request {n}: a panic"));
        match result {
            Err(e) => {
                assert!(refused > 0, "{name}: {e}");
                assert_eq!(e.kind(), ErrorKind::LimitExceeded, "{name}: request {n}: {e}");
                assert!(e.to_string().contains("could not be allocated"), "{name}: request {n}: {e}");
            }
            // What can do without the memory does: a constant that is not folded, say.
            Ok(got) => assert!(got == expected, "{name}: request {n}: another result"),
        }
        let again = work().unwrap_or_else(|e| panic!("{name}: after request {n} the next try fails: {e}"));
        assert!(again == expected, "{name}: after request {n}: another result");
        if refused == 0 {
            return n;
        }
    }
    unreachable!()
}

const ROWS: usize = 16;
const WIDTH: usize = 64;

fn input(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 13) as f32 * 0.25 - 1.0).collect()
}

fn case(name: &str, program: &ProgramBuilder, shape: &[usize]) -> Case {
    Case {
        name: name.into(),
        bytes: Arc::new(program.bytes()),
        shape: shape.to_vec(),
        input: input(shape.iter().product()),
    }
}

/// Two products with bias and an activation.
fn mlp() -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let mut m = MethodBuilder::new("forward");
    let x = m.unplanned(&[ROWS, WIDTH]);
    m.inputs(&[x]);
    let mut last = x;
    for _ in 0..2 {
        let w = p.constant(&input(WIDTH * WIDTH));
        let b = p.constant(&input(WIDTH));
        let (w, b) = (m.constant(&[WIDTH, WIDTH], w), m.constant(&[WIDTH], b));
        let (product, active) = (m.planned(&[ROWS, WIDTH]), m.planned(&[ROWS, WIDTH]));
        let one = m.int(1);
        m.call("aten::addmm.out", &[b, last, w, one, one, product, product]);
        m.call("aten::relu.out", &[product, active, active]);
        last = active;
    }
    m.outputs(&[last]);
    p.with(m)
}

fn cnn() -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let mut m = MethodBuilder::new("forward");
    let x = m.unplanned(&[1, 8, 20, 20]);
    m.inputs(&[x]);
    let (w, b) = (p.constant(&input(16 * 8 * 9)), p.constant(&input(16)));
    let (w, b) = (m.constant(&[16, 8, 3, 3], w), m.constant(&[16], b));
    let y = m.planned(&[1, 16, 20, 20]);
    let (ones, zeros) = (m.ints(&[1, 1]), m.ints(&[0, 0]));
    let (no, one) = (m.bool(false), m.int(1));
    m.call("aten::convolution.out", &[x, w, b, ones, ones, ones, no, zeros, one, y, y]);
    m.outputs(&[y]);
    p.with(m)
}

/// Many instructions, so that every list over them is a large one.
fn long() -> ProgramBuilder {
    let mut m = MethodBuilder::new("forward");
    let x = m.unplanned(&[8]);
    m.inputs(&[x]);
    let mut last = x;
    for i in 0..400 {
        let next = m.planned(&[8]);
        if i % 3 == 0 {
            m.add(last, x, next);
        } else {
            let operator = ["aten::sigmoid.out", "aten::neg.out"][i % 2];
            m.call(operator, &[last, next, next]);
        }
        last = next;
    }
    m.outputs(&[last]);
    ProgramBuilder::of(m)
}

/// A buffer that every call adds to (and that a new session starts anew).
fn state() -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let index = p.mutable(&input(2048));
    let mut m = MethodBuilder::new("forward");
    let x = m.unplanned(&[2048]);
    let (buffer, sum) = (m.buffer("sum", &[2048], index), m.planned(&[2048]));
    let no = m.bool(false);
    m.inputs(&[x]);
    m.outputs(&[sum]);
    m.add(buffer, x, sum);
    m.call("aten::copy_", &[buffer, sum, no, buffer]);
    p.with(m)
}

/// x + x, over and over, until a counter says so.
fn control_flow() -> ProgramBuilder {
    let mut m = MethodBuilder::new("forward");
    let x = m.unplanned(&[2000]);
    let (acc, sum) = (m.planned(&[2000]), m.planned(&[2000]));
    let (i, one, limit, done, no) = (m.int(0), m.int(1), m.int(4), m.bool(false), m.bool(false));
    m.inputs(&[x]);
    m.outputs(&[acc]);
    m.call("aten::copy_", &[acc, x, no, acc]);
    let top = m.add(acc, x, sum);
    m.call("aten::copy_", &[acc, sum, no, acc]);
    m.call("executorch_prim::add.Scalar", &[i, one, i]);
    m.call("executorch_prim::eq.Scalar", &[i, limit, done]);
    m.jump_false(done, top);
    ProgramBuilder::of(m)
}

/// The MLP inside a delegate.
fn delegated() -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let blob = p.blob(&mlp().bytes());
    let mut m = MethodBuilder::new("forward");
    let (x, y) = (m.unplanned(&[ROWS, WIDTH]), m.planned(&[ROWS, WIDTH]));
    m.inputs(&[x]);
    m.outputs(&[y]);
    m.delegate("ExecutorBackend", blob, &[x, y]);
    p.with(m)
}

/// A table of numbers and an interface of some KiB.
fn wordy() -> ProgramBuilder {
    let mut m = MethodBuilder::new("forward");
    let (x, t) = (m.tensor(DType::Float32, &[64, 16]).bounded(), m.bounded(&[64, 16]));
    let x = m.value(x);
    m.inputs(&[x]);
    m.outputs(&[t]);
    m.add(x, x, t);
    let mut p = ProgramBuilder::of(m);
    let name = "n".repeat(6000);
    p.named(
        "pteron.interface",
        format!(
            r#"{{"version":1,"methods":{{"forward":{{
            "inputs":[{{"name":"{name}","shape":[{{"symbol":"s0","min":0,"max":64}},16]}}],
            "outputs":[{{"name":"y","shape":[{{"symbol":"s0","min":0,"max":64}},16]}}]}}}}}}"#
        )
        .as_bytes(),
    );
    p
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("MLP", &mlp(), &[ROWS, WIDTH]),
        case("CNN", &cnn(), &[1, 8, 20, 20]),
        case("long", &long(), &[8]),
        case("state", &state(), &[2048]),
        case("control flow", &control_flow(), &[2000]),
        case("delegated", &delegated(), &[ROWS, WIDTH]),
        case("wordy", &wordy(), &[64, 16]),
    ];
    // Products, images, attention, loops, views, dynamic shapes.
    for seed in 0..12 {
        let program = RandomProgram::new(seed, usize::MAX);
        let rows = if program.is_dynamic { 3 } else { MAX_ROWS };
        cases.push(Case {
            name: format!("random program {seed}"),
            bytes: Arc::new(program.bytes.clone()),
            shape: vec![rows, program.width],
            input: program.input(rows, 0),
        });
    }
    cases
}

/// The same program with its packed weights stored.
fn packed(case: &Case) -> Case {
    let runtime = runtime();
    let source = ProgramSource::Bytes(case.bytes.clone());
    let program = Program::load(&runtime, source, Limits::default()).unwrap();
    let weights = program.pack_all().unwrap();
    let mut p = mlp();
    let (key, index) = weights.index();
    p.named(key, index);
    for (key, pack) in weights.packs() {
        p.draft.named_data.push(pteron_format::write::NamedDataDraft {
            key: key.to_string(),
            data: pack.as_slice().to_vec().into(),
            alignment: 64,
        });
    }
    Case { name: "packed".into(), bytes: Arc::new(p.bytes()), ..self::case("", &p, &case.shape) }
}

#[test]
fn one_request_fails() {
    let mut cases = cases();
    let packed = packed(&cases[0]);
    cases.push(packed);
    let mut total = 0;
    for case in &cases {
        total += fail_each(case, false);
    }
    // The test means nothing unless large requests happen all over.
    assert!(total > 150, "{total} requests");
    println!("{total} requests failed one by one");
}

#[test]
fn all_requests_fail_from_one_on() {
    for case in &cases() {
        fail_each(case, true);
    }
}

type Writer<'a> = &'a dyn Fn() -> Result<Vec<u8>>;

#[test]
fn requests_of_writers_fail() {
    let program = mlp();
    let inline = WriteOptions { extract_delegate_segments: false, ..WriteOptions::default() };
    let delegated = delegated();
    let file = program.bytes();
    let tensor = LayoutDraft::contiguous(DType::UInt8, &[file.len()]).unwrap();
    let entry = |key: &str| DataEntryDraft {
        key: key.repeat(3000),
        data: file.as_slice().into(),
        alignment: 16,
        layout: Some(tensor.clone()),
    };
    let data = DataFileDraft { entries: vec![entry("a"), entry("b")] };
    let case = TestCaseDraft {
        inputs: vec![BundledValueDraft::Tensor(tensor.clone(), file.as_slice().into())],
        expected_outputs: vec![],
    };
    let suite = TestSuiteDraft { method: "forward".into(), cases: vec![case] };
    let bundle = BundleDraft { program: file.as_slice().into(), suites: vec![suite] };
    let long = long().bytes();
    let writers: [(&str, Writer<'_>); 6] = [
        ("a program", &|| program.draft.to_bytes(&WriteOptions::default())),
        ("a program with its blobs inside", &|| delegated.draft.to_bytes(&inline)),
        ("a data file", &|| data.lay_out(128)?.to_bytes()),
        ("a bundle", &|| bundle.to_bytes()),
        ("a stripped program", &|| strip(&file)),
        ("a listing", &|| Ok(listing(&ProgramFile::parse(&long)?)?.into_bytes())),
    ];
    for (name, write) in writers {
        for is_lasting in [false, true] {
            let requests = fail_each_of(name, is_lasting, write);
            assert!(requests > 0, "{name} needs no memory");
        }
    }
}
