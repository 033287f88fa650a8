//! The programs that are measured: kernels and delegates that do next to nothing, and a chain that is fused.

use pteron_core::{
    ArgView, Args, Backend, BindArgs, Bound, CompileSpec, DType, Delegate, ExecuteContext, Grid, InitContext,
    Kernel, OutputView, PrepareContext, Prepared, Result, WorkerScratch,
};
use pteron_cpu::plan::RuleSwitches;
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

/// Steps of the long programs.
pub const STEPS: usize = 1000;
/// Elementwise steps of the chain.
pub const CHAIN: usize = 200;

/// Copies one element: the least a kernel can do.
pub struct Touch;

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

/// What the steps are.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Touch,
    Delegate,
}

/// `steps` steps of a kind, over one element.
pub fn program(kind: Kind, steps: usize, is_dynamic: bool) -> Vec<u8> {
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

/// A runtime of one thread that knows them.
pub fn runtime(rules: RuleSwitches) -> Arc<Runtime> {
    let runtime = Runtime::new(RuntimeOptions { threads: Some(1), rules, ..Default::default() }).unwrap();
    runtime.register_kernel(Arc::new(Touch)).unwrap();
    runtime.register_backend(Arc::new(Nothing), false).unwrap();
    runtime
}

/// A session.
pub fn load(runtime: &Arc<Runtime>, bytes: &Arc<Vec<u8>>) -> Method {
    let program = Program::load(runtime, ProgramSource::Bytes(bytes.clone()), Limits::default()).unwrap();
    program.load_method("forward", MethodOptions::default()).unwrap()
}

/// `CHAIN` products of 16 elements, each with the input of the method.
pub fn chain() -> Vec<u8> {
    let tensor = || TensorDraft::contiguous(DType::Float32, &[16]).unwrap();
    let mut values = vec![ValueDraft::from(tensor())];
    let mut instructions = Vec::new();
    for i in 0..CHAIN as i32 {
        values.push(tensor().planned(1, (i as u64 % 2) * 64).into());
        instructions.push(InstructionDraft::Kernel { operator: 0, args: vec![i, 0, i + 1, i + 1] });
    }
    let method = MethodDraft {
        name: "forward".into(),
        values,
        inputs: vec![0],
        outputs: vec![CHAIN as i32],
        chains: vec![ChainDraft { instructions, ..Default::default() }],
        operators: vec![OperatorDraft { name: "aten::mul".into(), overload: "out".into() }],
        non_const_buffer_sizes: vec![0, 128],
        ..Default::default()
    };
    let draft =
        ProgramDraft { methods: vec![method], constants: vec![Vec::new().into()], ..Default::default() };
    draft.to_bytes(&WriteOptions::default()).unwrap()
}

/// A call with ones, as many as the method takes.
pub fn call(method: &Method) {
    let x = [1.0f32; 16];
    let count = if is_chain(method) { 16 } else { 1 };
    let shape = [count];
    let inputs = [InputValue::Tensor(TensorInput::from_slice(&shape, &x[..count]).unwrap())];
    black_box(method.execute(black_box(&inputs), ExecuteOptions::default()).unwrap());
}

fn is_chain(method: &Method) -> bool {
    matches!(&method.inputs()[0].kind, pteron_runtime::IoKind::Tensor(t) if *t.bound == [16])
}
