//! What the runtime costs around the kernels: a step, a delegate call, a call, loading an instruction.
//!
//! `cargo bench -p pteron-runtime --bench dispatch`; the table in nanoseconds is printed at the end.

use criterion::Criterion;
use pteron_core::{
    ArgView, Args, Backend, BindArgs, Bound, CompileSpec, DType, Delegate, ExecuteContext, Grid, InitContext,
    Kernel, OutputView, PrepareContext, Prepared, Result, WorkerScratch,
};
use pteron_format::write::{
    ChainDraft, DelegateDraft, InstructionDraft, MethodDraft, OperatorDraft, ProgramDraft, TensorDraft,
    ValueDraft, WriteOptions,
};
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, Method, MethodOptions, Program, ProgramSource, Runtime,
    RuntimeOptions, TensorInput,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const STEPS: usize = 1000;

/// Copies one element: the least a kernel can do.
struct Touch;

const TOUCH: &str = "bench::touch.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)";

impl Kernel for Touch {
    fn schema(&self) -> &str {
        TOUCH
    }
    fn variant(&self) -> &str {
        "bench"
    }
    fn prepare(&self, _: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
        Ok(Some(Box::new(Touch)))
    }
}

impl Prepared for Touch {
    fn name(&self) -> &str {
        "touch"
    }
    fn bind(&self, args: &mut BindArgs<'_>, _: &mut Bound) -> Result<Grid> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(1, &shape)?;
        Ok(Grid::SINGLE)
    }
    unsafe fn run(
        &self,
        _: &Bound,
        args: &Args<'_>,
        _: u32,
        _: u32,
        _: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let (x, y) = (args.tensor(0)?.ptr::<f32>()?, args.output(1)?.ptr::<f32>()?);
        // SAFETY: both tensors have one element.
        unsafe { *y = *x };
        Ok(())
    }
}

struct Nothing;

impl Backend for Nothing {
    fn name(&self) -> &str {
        "Nothing"
    }
    fn init(&self, _: &InitContext<'_>, _: &[u8], _: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
        Ok(Box::new(Nothing))
    }
}

impl Delegate for Nothing {
    fn num_outputs(&self) -> usize {
        1
    }
    fn execute(
        &mut self,
        _: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        black_box((inputs.len(), outputs.len()));
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Touch,
    Delegate,
}

fn program(kind: Kind, steps: usize, is_dynamic: bool) -> Vec<u8> {
    let tensor = || TensorDraft::contiguous(DType::Float32, &[1]).unwrap();
    let dynamic = |t: TensorDraft| if is_dynamic { t.bounded() } else { t };
    let values = vec![
        ValueDraft::from(dynamic(tensor())),
        dynamic(tensor().planned(1, 0)).into(),
        dynamic(tensor().planned(1, 64)).into(),
    ];
    let instructions = (0..steps)
        .map(|i| {
            let (from, to) = if i == 0 { (0, 1) } else { (2 - (i as i32 % 2), 1 + (i as i32 % 2)) };
            match kind {
                Kind::Touch => InstructionDraft::Kernel { operator: 0, args: vec![from, to, to] },
                Kind::Delegate => InstructionDraft::Delegate { delegate: 0, args: vec![from, to] },
            }
        })
        .collect();
    let method = MethodDraft {
        name: "forward".into(),
        values,
        inputs: vec![0],
        outputs: vec![1],
        chains: vec![ChainDraft { instructions, ..Default::default() }],
        operators: vec![OperatorDraft { name: "bench::touch".into(), overload: "out".into() }],
        delegates: match kind {
            Kind::Touch => vec![],
            Kind::Delegate => vec![DelegateDraft { id: "Nothing".into(), blob: 0, specs: vec![] }],
        },
        non_const_buffer_sizes: vec![0, 128],
        ..Default::default()
    };
    let draft = ProgramDraft {
        methods: vec![method],
        constants: vec![Vec::new().into()],
        delegate_data: match kind {
            Kind::Touch => vec![],
            Kind::Delegate => vec![b"blob".to_vec().into()],
        },
        ..Default::default()
    };
    draft.to_bytes(&WriteOptions::default()).unwrap()
}

fn runtime() -> Arc<Runtime> {
    let runtime = Runtime::new(RuntimeOptions { threads: Some(1), ..Default::default() }).unwrap();
    runtime.register_kernel(Arc::new(Touch)).unwrap();
    runtime.register_backend(Arc::new(Nothing), false).unwrap();
    runtime
}

fn load(runtime: &Arc<Runtime>, bytes: &Arc<Vec<u8>>) -> Method {
    let program = Program::load(runtime, ProgramSource::Bytes(bytes.clone()), Limits::default()).unwrap();
    program.load_method("forward", MethodOptions::default()).unwrap()
}

/// Median nanoseconds of `f` over `rounds` rounds.
fn median(rounds: usize, mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}

/// The kernel called by itself, without a runtime around it.
fn kernel_alone() -> f64 {
    let spec = pteron_core::TensorSpec::contiguous(DType::Float32, &[1]).unwrap();
    let mut data = [0f32; 2];
    let mut values = Vec::new();
    for d in &mut data {
        let mut slot = pteron_core::TensorSlot::new(&spec).unwrap();
        // SAFETY: `data` outlives the values.
        unsafe { slot.set_data((d as *mut f32).cast(), 4) };
        values.push(pteron_core::Value::Tensor(Box::new(slot)));
    }
    let ids = [pteron_core::ValueId(0), pteron_core::ValueId(1)];
    let prepared: Box<dyn Prepared> = Box::new(Touch);
    let bound = prepared.new_bound();
    let mut scratch = WorkerScratch { worker: &mut [], shared: std::ptr::null_mut() };
    median(2000, || {
        for _ in 0..STEPS {
            // SAFETY: both slots have memory for one element.
            unsafe {
                let args = Args::new(black_box(&values), &ids);
                black_box(&*prepared).run(&bound, &args, 0, 0, &mut scratch).unwrap();
            }
        }
    }) / STEPS as f64
}

fn main() {
    let runtime = runtime();
    let x = [1.0f32];
    let inputs = [InputValue::Tensor(TensorInput::from_slice(&[1], &x).unwrap())];
    let call = |method: &Method| {
        black_box(method.execute(black_box(&inputs), ExecuteOptions::default()).unwrap());
    };
    let mut criterion = Criterion::default().configure_from_args();
    let mut rows: Vec<(&str, f64)> = vec![("kernel alone, per call", kernel_alone())];
    let cases = [
        ("step, bound once", Kind::Touch, false),
        ("step, bound every time", Kind::Touch, true),
        ("Rust delegate call", Kind::Delegate, false),
    ];
    for (name, kind, is_dynamic) in cases {
        let (long, short) = (program(kind, STEPS, is_dynamic), program(kind, 1, is_dynamic));
        let (long, short) = (load(&runtime, &Arc::new(long)), load(&runtime, &Arc::new(short)));
        criterion.bench_function(&format!("1000 steps: {name}"), |b| b.iter(|| call(&long)));
        let (many, one) = (median(2000, || call(&long)), median(2000, || call(&short)));
        rows.push((name, (many - one) / (STEPS - 1) as f64));
        if kind == Kind::Touch && !is_dynamic {
            rows.push(("whole call of a one-step method", one));
        }
    }
    let bytes = Arc::new(program(Kind::Touch, STEPS, false));
    let empty = Arc::new(program(Kind::Touch, 1, false));
    criterion.bench_function("load 1000 instructions", |b| b.iter(|| black_box(load(&runtime, &bytes))));
    let load_ns = |b: &Arc<Vec<u8>>| median(200, || drop(black_box(load(&runtime, b))));
    rows.push((
        "load and prepare, per instruction",
        (load_ns(&bytes) - load_ns(&empty)) / (STEPS - 1) as f64,
    ));
    println!("\n{:<40} {:>9}", "what", "ns");
    for (name, ns) in rows {
        println!("{name:<40} {ns:>9.1}");
    }
}
