//! Calls with bound outputs allocate nothing, whatever their shapes: counted by the allocator.

use pteron_core::DType;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{
    ExecuteOptions, InputValue, Method, MethodOptions, OutputBuffer, OutputValue, StepInfo, TensorInput,
    Tracer,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the calling thread asks for.
struct Counting;

fn count() {
    // The thread may be ending, and then nobody counts.
    let _ = COUNT.try_with(|c| c.set(c.get() + 1));
}

// SAFETY: everything is handed to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the allocator behind this one has
        // too.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

const ROWS: usize = 64;
const WIDTH: usize = 48;

/// Rows that vary: a product, a sum, an activation, a softmax; the result planned or not.
fn dynamic(is_planned: bool) -> ProgramBuilder {
    let mut p = ProgramBuilder::new();
    let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|i| (i % 7) as f32 - 3.0).collect();
    let index = p.constant(&weights);
    let mut m = MethodBuilder::new("forward");
    let w = m.constant(&[WIDTH, WIDTH], index);
    let x = m.tensor(DType::Float32, &[ROWS, WIDTH]).bounded();
    let x = m.value(x);
    let (product, sum, active) =
        (m.bounded(&[ROWS, WIDTH]), m.bounded(&[ROWS, WIDTH]), m.bounded(&[ROWS, WIDTH]));
    let out = match is_planned {
        true => m.bounded(&[ROWS, WIDTH]),
        false => {
            let out = m.tensor(DType::Float32, &[ROWS, WIDTH]).bounded();
            m.value(out)
        }
    };
    m.inputs(&[x]);
    m.outputs(&[out]);
    m.call("aten::mm.out", &[x, w, product, product]);
    m.add(product, x, sum);
    m.call("aten::relu.out", &[sum, active, active]);
    let (last, no) = (m.int(-1), m.bool(false));
    m.call("aten::_softmax.out", &[active, last, no, out, out]);
    let mut p = p.with(m);
    p.named(
        "pteron.interface",
        br#"{"version":1,"methods":{"forward":{
            "inputs":[{"name":"x","shape":[{"symbol":"s0","min":0,"max":64},48]}],
            "outputs":[{"name":"y","shape":[{"symbol":"s0","min":0,"max":64},48]}]}}}"#,
    );
    p
}

fn call(method: &Method, rows: usize, given: &[f32], target: &mut [f32], tracer: Option<&mut dyn Tracer>) {
    let shape = [rows, WIDTH];
    let input = TensorInput::from_slice(&shape, &given[..rows * WIDTH]).unwrap();
    // SAFETY: the target holds the shape, and nobody else looks at it during the call.
    let buffer = unsafe { OutputBuffer::new(DType::Float32, &shape, target.as_mut_ptr().cast()) };
    let buffers = [Some(buffer)];
    #[allow(
        clippy::needless_match,
        reason = "shortens the lifetime, which is fixed behind `&mut` but for such a coercion"
    )]
    let tracer: Option<&mut dyn Tracer> = match tracer {
        Some(tracer) => Some(tracer),
        None => None,
    };
    let options = ExecuteOptions { outputs: &buffers, tracer, ..ExecuteOptions::default() };
    let out = method.execute(&[InputValue::Tensor(input)], options).unwrap();
    assert!(matches!(&out[0], OutputValue::Bound(meta) if **meta.shape() == shape));
}

#[test]
fn a_shape_that_changes_at_every_call_allocates_nothing() {
    let given: Vec<f32> = (0..ROWS * WIDTH).map(|i| (i % 11) as f32 * 0.1).collect();
    for is_planned in [true, false] {
        let program = dynamic(is_planned).load(&runtime());
        for num_threads in [Some(1), None] {
            let options = MethodOptions { num_threads, ..MethodOptions::default() };
            let method = program.load_method("forward", options).unwrap();
            let mut target = vec![0f32; ROWS * WIDTH];
            // Threads, and memory for an output that no buffer can take, come with the first call.
            call(&method, 3, &given, &mut target, None);
            call(&method, ROWS, &given, &mut target, None);
            let made = allocations(|| {
                for rows in (0..=ROWS).chain((0..ROWS).rev()) {
                    call(&method, rows, &given, &mut target, None);
                }
            });
            assert_eq!(made, 0, "planned: {is_planned}, threads: {num_threads:?}");
            call(&method, 2, &given, &mut target, None);
            let sums: Vec<f32> = target[..2 * WIDTH].chunks(WIDTH).map(|row| row.iter().sum()).collect();
            assert!(sums.iter().all(|s| (s - 1.0).abs() < 1e-5), "{sums:?}");
        }
    }
}

#[test]
fn a_strided_input_is_copied_into_memory_that_is_kept() {
    let program = dynamic(true).load(&runtime());
    let method = program.load_method("forward", MethodOptions::default()).unwrap();
    let given = vec![1f32; 2 * ROWS * WIDTH];
    let mut target = vec![0f32; ROWS * WIDTH];
    let mut strided = |rows: usize| {
        let (shape, strides) = ([rows, WIDTH], [2 * WIDTH as isize, 2]);
        // SAFETY: the slice covers `ROWS` rows of twice the width; the target holds the shape.
        let (input, buffer) = unsafe {
            let data = given.as_ptr().cast();
            (
                TensorInput::new(DType::Float32, &shape, Some(&strides), data),
                OutputBuffer::new(DType::Float32, &shape, target.as_mut_ptr().cast()),
            )
        };
        let options = ExecuteOptions { outputs: &[Some(buffer)], ..ExecuteOptions::default() };
        method.execute(&[InputValue::Tensor(input)], options).unwrap();
    };
    strided(1);
    assert_eq!(allocations(|| (1..=ROWS).for_each(&mut strided)), 0);
}

#[test]
fn integers_that_change_within_their_range_allocate_nothing() {
    let mut m = MethodBuilder::new("forward");
    let (n, x, out) = (m.int(1), m.unplanned(&[4]), m.planned(&[4]));
    m.inputs(&[n, x]);
    m.outputs(&[out]);
    m.call("aten::add.out", &[x, x, n, out, out]);
    let mut p = ProgramBuilder::of(m);
    p.named(
        "pteron.interface",
        br#"{"version":1,"methods":{"forward":{
            "inputs":[{"name":"n","range":[0,1000],"symbol":"s0"},{"name":"x","shape":[4]}],
            "outputs":[{"name":"y","shape":[4]}]}}}"#,
    );
    let method = p.load(&runtime()).load_method("forward", MethodOptions::default()).unwrap();
    let (given, mut target, shape) = ([1f32, 2.0, 3.0, 4.0], [0f32; 4], [4usize]);
    let mut run = |n: i64| {
        let input = TensorInput::from_slice(&shape, &given).unwrap();
        // SAFETY: the target holds the shape, and nobody else looks at it during the call.
        let buffer = unsafe { OutputBuffer::new(DType::Float32, &shape, target.as_mut_ptr().cast()) };
        let options = ExecuteOptions { outputs: &[Some(buffer)], ..ExecuteOptions::default() };
        method.execute(&[InputValue::Int(n), InputValue::Tensor(input)], options).unwrap();
        assert_eq!(target, given.map(|v| v * (1.0 + n as f32)));
    };
    run(1);
    assert_eq!(allocations(|| (0..200).for_each(&mut run)), 0);
}

#[test]
fn a_tracer_of_steps_allocates_nothing_of_its_own() {
    struct Steps(usize, usize);
    impl Tracer for Steps {
        fn step_begin(&mut self, step: &StepInfo<'_>) {
            self.0 += step.covers.len();
        }
        fn step_end(&mut self, _: &StepInfo<'_>, _: Option<&pteron_core::Error>) {
            self.1 += 1;
        }
    }
    let program = dynamic(true).load(&runtime());
    let method = program.load_method("forward", MethodOptions::default()).unwrap();
    let (given, mut target) = (vec![1f32; ROWS * WIDTH], vec![0f32; ROWS * WIDTH]);
    let mut steps = Steps(0, 0);
    call(&method, 5, &given, &mut target, Some(&mut steps));
    assert_eq!(allocations(|| call(&method, 7, &given, &mut target, Some(&mut steps))), 0);
    assert_eq!(steps.0, 2 * 4, "every instruction is covered once per run");
    assert!(steps.1 >= 2);
}
