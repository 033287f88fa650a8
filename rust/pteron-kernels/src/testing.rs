//! Runs one reference kernel on given arguments, the way an executor does. For tests only.
//! Unsafe island: it plays the executor's part of the kernel contract.

use pteron_core::{
    AliasRule, AlignedBuffer, ArgSpec, Args, BindArgs, CpuProfile, DType, DimOrder, Dims, Dynamism, Element,
    Error, Isa, Kernel, PackStore, PrepareContext, RandomStream, Result, Schema, TensorSlot, TensorSpec,
    Value, ValueId, WorkerScratch, kernel::PrepareFn,
};
use std::sync::Arc;

/// A tensor with its bytes in memory order.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Metadata; upper bounds if `spec.dynamism` says so.
    pub spec: TensorSpec,
    /// Elements in memory order.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A contiguous tensor of `values`.
    pub fn of<T: Element>(shape: &[usize], values: &[T]) -> Tensor {
        let spec = TensorSpec::contiguous(T::DTYPE, shape).unwrap();
        assert_eq!(spec.shape.numel().unwrap(), values.len());
        Tensor { spec, bytes: bytemuck::cast_slice(values).to_vec() }
    }

    /// A tensor of zeros that may shrink: the place for an output.
    pub fn output(dtype: DType, shape: &[usize]) -> Tensor {
        let mut spec = TensorSpec::contiguous(dtype, shape).unwrap();
        spec.dynamism = Dynamism::Bounded;
        Tensor { bytes: vec![0; spec.nbytes().unwrap()], spec }
    }

    /// The same bytes in another dim order (the shape stays).
    pub fn in_order(mut self, order: &[u8]) -> Tensor {
        self.spec.dim_order = DimOrder::new(order).unwrap();
        self
    }

    /// Elements in memory order.
    pub fn values<T: Element>(&self) -> Vec<T> {
        assert_eq!(self.spec.dtype, T::DTYPE);
        self.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.spec.shape
    }
}

/// One argument of a call; outputs are tensors too.
#[derive(Debug, Clone)]
pub enum Arg {
    /// Absent.
    None,
    /// Integer.
    Int(i64),
    /// Float.
    Double(f64),
    /// Bool.
    Bool(bool),
    /// String.
    String(String),
    /// Tensor.
    Tensor(Tensor),
    /// Integers.
    IntList(Vec<i64>),
    /// Floats.
    DoubleList(Vec<f64>),
    /// Bools.
    BoolList(Vec<bool>),
    /// Tensors, some possibly absent.
    TensorList(Vec<Option<Tensor>>),
}

macro_rules! from { ($($t:ty => $v:ident),*) => { $( impl From<$t> for Arg { fn from(x: $t) -> Arg { Arg::$v(x) } } )* } }
from!(i64 => Int, f64 => Double, bool => Bool, Tensor => Tensor, Vec<i64> => IntList);
impl From<&str> for Arg {
    fn from(s: &str) -> Arg {
        Arg::String(s.to_string())
    }
}

/// Values of a call, their memory, and which of them are the arguments.
struct Frame {
    values: Vec<Value>,
    ids: Vec<ValueId>,
    memory: Vec<AlignedBuffer>,
}

impl Frame {
    fn push(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    fn tensor(&mut self, tensor: &Tensor) -> Result<ValueId> {
        let memory = AlignedBuffer::copy_of(&tensor.bytes)?;
        let mut slot = TensorSlot::new(&tensor.spec)?;
        // SAFETY: the frame keeps the memory for as long as the slot.
        unsafe { slot.set_data(memory.as_ptr(), memory.len()) };
        self.memory.push(memory);
        Ok(self.push(Value::Tensor(Box::new(slot))))
    }

    fn add(&mut self, arg: &Arg) -> Result<ValueId> {
        Ok(match arg {
            Arg::None => self.push(Value::None),
            Arg::Int(v) => self.push(Value::Int(*v)),
            Arg::Double(v) => self.push(Value::Double(*v)),
            Arg::Bool(v) => self.push(Value::Bool(*v)),
            Arg::String(v) => self.push(Value::String(Arc::from(v.as_str()))),
            Arg::Tensor(t) => self.tensor(t)?,
            Arg::IntList(v) => {
                let ids: Vec<_> = v.iter().map(|i| self.push(Value::Int(*i))).collect();
                self.push(Value::IntList(ids.into()))
            }
            Arg::DoubleList(v) => self.push(Value::DoubleList(v.as_slice().into())),
            Arg::BoolList(v) => self.push(Value::BoolList(v.as_slice().into())),
            Arg::TensorList(v) => {
                let ids: Result<Vec<_>> =
                    v.iter().map(|t| t.as_ref().map(|t| self.tensor(t)).transpose()).collect();
                let ids = ids?;
                if ids.iter().all(Option::is_some) {
                    self.push(Value::TensorList(ids.into_iter().flatten().collect()))
                } else {
                    self.push(Value::OptionalTensorList(ids.into()))
                }
            }
        })
    }

    fn back(&self, value: &Value, like: &Arg) -> Arg {
        let tensor = |slot: &TensorSlot, like: &Tensor| {
            let view = slot.view();
            let spec = TensorSpec { shape: *view.shape(), ..like.spec.clone() };
            Tensor { spec, bytes: view.as_bytes().to_vec() }
        };
        match (value, like) {
            (Value::Tensor(slot), Arg::Tensor(t)) => Arg::Tensor(tensor(slot, t)),
            (Value::TensorList(ids), Arg::TensorList(list)) => Arg::TensorList(
                ids.iter()
                    .zip(list)
                    .map(|(id, t)| Some(tensor(self.values[id.index()].as_tensor()?, t.as_ref()?)))
                    .collect(),
            ),
            (Value::Int(v), _) => Arg::Int(*v),
            (Value::Bool(v), _) => Arg::Bool(*v),
            (Value::Double(v), _) => Arg::Double(*v),
            _ => like.clone(),
        }
    }
}

fn spec_of(arg: &Arg) -> ArgSpec<'_> {
    match arg {
        Arg::None => ArgSpec::None,
        Arg::Int(v) => ArgSpec::Int(Some(*v)),
        Arg::Double(v) => ArgSpec::Double(Some(*v)),
        Arg::Bool(v) => ArgSpec::Bool(Some(*v)),
        Arg::String(v) => ArgSpec::String(v),
        Arg::Tensor(t) => ArgSpec::Tensor(t.spec.clone(), None),
        Arg::IntList(v) => ArgSpec::IntList(v.iter().map(|i| Some(*i)).collect()),
        Arg::DoubleList(v) => ArgSpec::DoubleList(v),
        Arg::BoolList(v) => ArgSpec::BoolList(v),
        Arg::TensorList(v) => {
            ArgSpec::TensorList(v.iter().map(|t| t.as_ref().map(|t| t.spec.clone())).collect())
        }
    }
}

/// Runs the reference kernel of `operator` on `args` (every schema argument, outputs included) and
/// gives the arguments back as they are afterwards; a scalar result is appended. Chunks run in reverse
/// order, since the order within a phase must not matter.
pub fn call(operator: &str, args: &[Arg]) -> Result<Vec<Arg>> {
    for kernel in crate::plain_kernels() {
        let schema = Schema::parse(kernel.schema)?;
        if schema.name == operator
            && let Some(done) = call_if_taken(&kernel, &schema, args)?
        {
            return Ok(done);
        }
    }
    Err(Error::missing_operator("no reference kernel").operator(operator))
}

/// As [`call`], for a given kernel, which must take it.
pub fn call_kernel(kernel: &dyn Kernel, schema: &Schema, args: &[Arg]) -> Result<Vec<Arg>> {
    call_if_taken(kernel, schema, args)?.ok_or_else(|| Error::internal("the kernel declined the call"))
}

fn call_if_taken(kernel: &dyn Kernel, schema: &Schema, args: &[Arg]) -> Result<Option<Vec<Arg>>> {
    if args.len() != schema.args.len() {
        return Err(Error::kernel("wrong number of arguments")
            .expected(schema.args.len().to_string())
            .got(args.len().to_string()));
    }
    let mut frame = Frame { values: Vec::new(), ids: Vec::new(), memory: Vec::new() };
    for (arg, declared) in args.iter().zip(&schema.args) {
        let id = frame.add(arg)?;
        let kind = frame.values[id.index()].kind();
        if !declared.kind.accepts(kind) {
            return Err(Error::kernel("argument of a wrong kind")
                .argument(declared.name.clone())
                .expected(declared.kind.name())
                .got(kind.to_string()));
        }
        frame.ids.push(id);
    }
    let mut specs: Vec<ArgSpec<'_>> = args.iter().map(spec_of).collect();
    let mut args = args.to_vec();
    if schema.has_scalar_return {
        let id = frame.push(Value::None);
        frame.ids.push(id);
        specs.push(ArgSpec::None);
        args.push(Arg::None);
    } else if let Some(first) = schema.outputs().next()
        && schema.returns > 0
    {
        let id = frame.ids[first];
        frame.ids.push(id);
        specs.push(specs[first].clone());
    }
    if !execute(kernel, &specs, &mut frame)? {
        return Ok(None);
    }
    Ok(Some(args.iter().zip(&frame.ids).map(|(a, id)| frame.back(&frame.values[id.index()], a)).collect()))
}

/// False: not the kernel's case.
fn execute(kernel: &dyn Kernel, specs: &[ArgSpec<'_>], frame: &mut Frame) -> Result<bool> {
    let packs = PackStore::new();
    let cpu = CpuProfile { isa: Isa::Portable, l1_bytes: 32 << 10, l2_bytes: 1 << 20, load_threads: 1 };
    let Some(prepared) = kernel.prepare(&PrepareContext { args: specs, packs: &packs, cpu: &cpu })? else {
        return Ok(false);
    };
    let mut bound = prepared.new_bound();
    let mut random = RandomStream::new(0);
    // SAFETY: every tensor of the frame has memory of its own.
    let mut bind_args = unsafe { BindArgs::new(&mut frame.values, &frame.ids) }.with_random(&mut random);
    let grid = prepared.bind(&mut bind_args, &mut bound)?;
    if prepared.alias() == AliasRule::View && grid.phase_count() > 0 {
        return Err(Error::internal("a view has nothing to run"));
    }
    let scratch = prepared.scratch();
    let mut worker = AlignedBuffer::zeroed(scratch.per_worker)?;
    worker.as_mut_slice().fill(0xa5);
    let shared = AlignedBuffer::zeroed(scratch.shared)?;
    for phase in 0..grid.phase_count() {
        for chunk in (0..grid.chunk_count(phase)).rev() {
            let mut scratch = WorkerScratch { worker: worker.as_mut_slice(), shared: shared.as_ptr() };
            // SAFETY: bound just now; each chunk once; memory as above.
            unsafe {
                let args = Args::new(&frame.values, &frame.ids);
                prepared.run(&bound, &args, phase, chunk, &mut scratch)?;
            }
        }
    }
    if prepared.has_finish() {
        // SAFETY: the frame's slots point to its own memory, and nothing else uses them.
        prepared.finish(&mut unsafe { BindArgs::new(&mut frame.values, &frame.ids) }, &mut bound)?;
    }
    Ok(true)
}

/// How the kernel `variant` of an operator in the table is prepared.
pub fn prepare_of(operator: &str, variant: &str) -> PrepareFn {
    let row = crate::operators().find(|row| row.name() == operator).expect("the operator is in the table");
    row.kernels().find(|kernel| kernel.variant == variant).expect("the operator has the kernel").prepare
}

/// Runs `operator` on `inputs` with one output of `dtype` and at most `shape` extents; the output.
pub fn run_out(operator: &str, inputs: &[Arg], dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let mut args = inputs.to_vec();
    args.push(Arg::Tensor(Tensor::output(dtype, shape)));
    match call(operator, &args)?.pop() {
        Some(Arg::Tensor(t)) => Ok(t),
        _ => Err(Error::internal("the last argument is not a tensor")),
    }
}

/// An error's text, or a panic when there is none.
pub fn error_text<T>(result: Result<T>) -> String {
    match result {
        Err(e) => e.to_string(),
        Ok(_) => panic!("an error was expected"),
    }
}

/// Extents as [`Dims`].
pub fn dims(shape: &[usize]) -> Dims {
    Dims::new(shape).unwrap()
}

/// Numbers of mixed sign and size, reproducible.
pub fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 8.0
        })
        .collect()
}
