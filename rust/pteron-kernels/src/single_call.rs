//! One kernel call outside a program: prepare, bind, run and finish a kernel on tensors held here. For calls that load
//! makes, for tests, fuzzing and benches. Unsafe island (it plays the executor's part).

use crate::grid_kernel::Preparation;
use crate::vector_math::SimdLevel;
use pteron_core::{
    AliasRule, AlignedBuffer, ArgSpec, Args, BindArgs, Bound, ConstantKey, ConstantView, CpuProfile, DType,
    DimOrder, Dims, Dynamism, Element, Error, Grid, Isa, Kernel, PackStore, PrepareContext, Prepared,
    RandomStream, Result, Scalar, Schema, TensorSlot, TensorSpec, Value, ValueId, ValueKind, WorkerScratch,
    kernel::PrepareFn,
};
use std::borrow::Cow;

/// Memory of a tensor or of scratch.
///
/// # Safety
/// From `start`, aligned to 64 bytes or as the tensor's elements ask for, `len` bytes can be read and written for as long as
/// the value lives; it can be moved meanwhile.
pub unsafe trait Memory: std::fmt::Debug {
    /// Where it begins.
    fn start(&self) -> *mut u8;
    /// Bytes.
    fn len(&self) -> usize;
    /// No bytes?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: the buffer owns its bytes, aligned to 64, on the heap or in a mapping of its own.
unsafe impl Memory for AlignedBuffer {
    fn start(&self) -> *mut u8 {
        self.as_ptr()
    }
    fn len(&self) -> usize {
        self.len()
    }
}

/// A dense tensor with its own memory.
#[derive(Debug)]
pub struct HostTensor {
    /// What `prepare` sees of it.
    spec: TensorSpec,
    /// Extents when the kernel is bound.
    now: Dims,
    /// May it shrink only if `spec` says so, whatever argument it is?
    is_exact: bool,
    memory: Box<dyn Memory>,
}

impl HostTensor {
    /// A tensor that `prepare` sees as `spec` and that has the extents `now` when it is bound. Memory with fewer bytes than
    /// `spec` asks for is enough for [`prepare`] alone.
    pub fn in_memory(spec: TensorSpec, now: Dims, memory: Box<dyn Memory>) -> Self {
        HostTensor { spec, now, is_exact: true, memory }
    }

    /// A copy of `data`, the bytes of a tensor of `spec` in its memory order; an error when there are too few.
    pub fn of_bytes(spec: &TensorSpec, data: &[u8]) -> Result<Self> {
        let Some(data) = data.get(..spec.nbytes()?) else {
            return Err(Error::internal("a tensor has fewer bytes than its shape asks for"));
        };
        // At least one element, so that even empty tensors have a pointer.
        let mut memory = AlignedBuffer::zeroed(data.len().max(16))?;
        memory.as_mut_slice()[..data.len()].copy_from_slice(data);
        Ok(HostTensor { spec: spec.clone(), now: spec.shape, is_exact: false, memory: Box::new(memory) })
    }

    /// Zeros of `shape` in `dim_order`.
    pub fn zeros_in_order(dtype: DType, shape: &[usize], dim_order: DimOrder) -> Result<Self> {
        let mut spec = TensorSpec::contiguous(dtype, shape)?;
        spec.dim_order = dim_order;
        let memory = Box::new(AlignedBuffer::zeroed(spec.nbytes()?.max(16))?);
        Ok(HostTensor { now: spec.shape, spec, is_exact: false, memory })
    }

    /// Zeros of `shape`, row-major.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::zeros_in_order(dtype, shape, DimOrder::contiguous(shape.len()))
    }

    /// `values` in memory order; an error when their number does not fit `shape`.
    pub fn new<T: Element>(shape: &[usize], values: &[T]) -> Result<Self> {
        Self::in_order(shape, DimOrder::contiguous(shape.len()), values)
    }

    /// `values` in memory order of a tensor that lies in `dim_order`.
    pub fn in_order<T: Element>(shape: &[usize], dim_order: DimOrder, values: &[T]) -> Result<Self> {
        let mut spec = TensorSpec::contiguous(T::DTYPE, shape)?;
        spec.dim_order = dim_order;
        if spec.shape.numel()? != values.len() {
            return Err(Error::internal("a test tensor has another number of values than its shape")
                .expected(format!("{shape:?}"))
                .got(values.len().to_string()));
        }
        Self::of_bytes(&spec, bytemuck::cast_slice(values))
    }

    fn bytes(&self, nbytes: usize) -> Result<&[u8]> {
        if nbytes > self.memory.len() {
            return Err(Error::internal("a tensor has fewer bytes than its shape asks for"));
        }
        // SAFETY: the memory has as many bytes, as `Memory` promises; a call writes them only where it holds the tensor itself,
        // which this borrow excludes.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.start(), nbytes) })
    }

    fn slot(&self) -> Result<Value> {
        let mut slot = TensorSlot::new(&self.spec)?;
        if self.spec.nbytes()? > self.memory.len() {
            return Err(Error::internal("a tensor has fewer bytes than its shape asks for"));
        }
        // SAFETY: the memory has as many bytes, as `Memory` promises, and lives in the same call as the slot.
        unsafe { slot.set_data(self.memory.start(), self.memory.len()) };
        if self.now != self.spec.shape {
            slot.resize(&self.now)?;
        }
        Ok(Value::Tensor(Box::new(slot)))
    }
}

/// An argument of a [`SingleCall`].
#[derive(Debug)]
pub enum CallArg {
    /// `None`.
    None,
    /// A number.
    Number(Scalar),
    /// A string.
    String(Cow<'static, str>),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Doubles(Vec<f64>),
    /// Bools.
    Bools(Vec<bool>),
    /// A tensor that is written by the program (input or output) and may shrink.
    Tensor(HostTensor),
    /// A tensor whose contents are known at load.
    Constant(HostTensor),
    /// A tensor that shares the bytes of the tensor argument at this position.
    SameBytesAs(usize),
    /// Tensors.
    Tensors(Vec<HostTensor>),
    /// Tensors, some absent.
    OptionalTensors(Vec<Option<HostTensor>>),
}

impl CallArg {
    /// A float known at load.
    pub fn double(v: f64) -> Self {
        CallArg::Number(Scalar::Double(v))
    }
    /// An integer known at load.
    pub fn int(v: i64) -> Self {
        CallArg::Number(Scalar::Int(v))
    }
    /// A bool known at load.
    pub fn bool(v: bool) -> Self {
        CallArg::Number(Scalar::Bool(v))
    }

    fn kind(&self) -> ValueKind {
        match self {
            CallArg::None => ValueKind::None,
            CallArg::Number(Scalar::Int(_)) => ValueKind::Int,
            CallArg::Number(Scalar::Double(_)) => ValueKind::Double,
            CallArg::Number(Scalar::Bool(_)) => ValueKind::Bool,
            CallArg::String(_) => ValueKind::String,
            CallArg::Ints(_) => ValueKind::IntList,
            CallArg::Doubles(_) => ValueKind::DoubleList,
            CallArg::Bools(_) => ValueKind::BoolList,
            CallArg::Tensor(_) | CallArg::Constant(_) | CallArg::SameBytesAs(_) => ValueKind::Tensor,
            CallArg::Tensors(_) => ValueKind::TensorList,
            CallArg::OptionalTensors(list) if list.iter().all(Option::is_some) => ValueKind::TensorList,
            CallArg::OptionalTensors(_) => ValueKind::OptionalTensorList,
        }
    }
}

/// What a call is given beside its arguments.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The processor.
    pub cpu: &'a CpuProfile,
    /// Where packed weights are kept.
    pub packs: &'a PackStore,
    /// Are numbers known at load?
    pub is_known: bool,
}

/// What stands behind the arguments of an instruction.
#[derive(Clone, Copy)]
enum Returned {
    Nothing,
    /// A number that the kernel writes.
    Number,
    /// The output at this position, once more.
    Argument(usize),
}

impl Returned {
    fn of(schema: &Schema) -> Self {
        match schema.outputs().next() {
            _ if schema.has_scalar_return => Returned::Number,
            Some(first) if schema.returns > 0 => Returned::Argument(first),
            _ => Returned::Nothing,
        }
    }
}

/// A kernel prepared for one call.
pub struct SingleCall {
    prepared: Box<dyn Prepared>,
    bound: Bound,
    values: Vec<Value>,
    ids: Vec<ValueId>,
    // Where the slots point.
    tensors: Vec<HostTensor>,
    // Worker and shared scratch, from the first `bind` on.
    scratch: Option<[Box<dyn Memory>; 2]>,
    random: RandomStream,
}

/// The processor of this machine, limited to `isa`; `None` when it lacks that instruction set.
pub fn profile(isa: Isa) -> Option<CpuProfile> {
    (SimdLevel::at_most(isa).isa() == isa).then_some(CpuProfile {
        isa,
        l1_bytes: 32 << 10,
        l2_bytes: 1 << 20,
        load_threads: 1,
    })
}

/// What `prepare` learns of an argument.
fn describe<'a>(position: usize, all: &'a [CallArg], is_known: bool) -> Result<ArgSpec<'a>> {
    let Some(arg) = all.get(position) else {
        return Err(Error::internal("an argument shares bytes with one that is not there"));
    };
    Ok(match arg {
        CallArg::None => ArgSpec::None,
        CallArg::Number(Scalar::Int(v)) => ArgSpec::Int(is_known.then_some(*v)),
        CallArg::Number(Scalar::Double(v)) => ArgSpec::Double(is_known.then_some(*v)),
        CallArg::Number(Scalar::Bool(v)) => ArgSpec::Bool(is_known.then_some(*v)),
        CallArg::String(s) => ArgSpec::String(s),
        CallArg::Ints(v) => ArgSpec::IntList(v.iter().map(|v| is_known.then_some(*v)).collect()),
        CallArg::Doubles(v) => ArgSpec::DoubleList(v),
        CallArg::Bools(v) => ArgSpec::BoolList(v),
        CallArg::Tensor(t) => ArgSpec::Tensor(t.spec.clone(), None),
        CallArg::SameBytesAs(i) => match all.get(*i) {
            Some(CallArg::Tensor(t) | CallArg::Constant(t)) => ArgSpec::Tensor(t.spec.clone(), None),
            _ => return Err(Error::internal("argument shares bytes with a non-tensor")),
        },
        CallArg::Constant(t) => {
            let nbytes = t.spec.nbytes()?;
            let view = ConstantView {
                key: ConstantKey { origin: 0, offset: position as u64, nbytes: nbytes as u64 },
                data: t.bytes(nbytes)?,
                dtype: t.spec.dtype,
                offset: 0,
                shape: t.spec.shape,
                strides: t.spec.dim_order.strides(&t.spec.shape),
            };
            ArgSpec::Tensor(t.spec.clone(), Some(view))
        }
        CallArg::Tensors(list) => ArgSpec::TensorList(list.iter().map(|t| Some(t.spec.clone())).collect()),
        CallArg::OptionalTensors(list) => {
            ArgSpec::TensorList(list.iter().map(|t| t.as_ref().map(|t| t.spec.clone())).collect())
        }
    })
}

fn prepare_for(
    prepare: impl Fn(&PrepareContext<'_>) -> Preparation,
    setting: Setting<'_>,
    returned: Returned,
    args: &[CallArg],
) -> Preparation {
    let describe = |i: usize| describe(i, args, setting.is_known);
    let mut specs: Vec<ArgSpec<'_>> = (0..args.len()).map(describe).collect::<Result<_>>()?;
    match returned {
        Returned::Nothing => {}
        Returned::Number => specs.push(ArgSpec::None),
        Returned::Argument(i) => specs.push(describe(i)?),
    }
    prepare(&PrepareContext::new(&specs, setting.packs, setting.cpu))
}

/// Prepares `kernel` for a call that is not run; `None` when the kernel leaves it to others.
pub fn prepare(kernel: &dyn Kernel, schema: &Schema, setting: Setting<'_>, args: &[CallArg]) -> Preparation {
    prepare_for(|ctx| kernel.prepare(ctx), setting, Returned::of(schema), args)
}

impl SingleCall {
    /// Prepares `prepare` for `args`; `None` when the kernel leaves the case to others.
    pub fn new(prepare: PrepareFn, cpu: &CpuProfile, args: Vec<CallArg>) -> Result<Option<Self>> {
        Self::of(prepare, cpu, args)
    }

    /// As [`SingleCall::new`], with a pack store of the caller's.
    pub fn with_packs(
        prepare: PrepareFn,
        cpu: &CpuProfile,
        packs: &PackStore,
        args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        Self::prepared_by(prepare, Setting { cpu, packs, is_known: true }, Returned::Nothing, args)
    }

    /// As [`SingleCall::new`], for a plan: `prepare` may capture what it describes.
    pub fn of(
        prepare: impl Fn(&PrepareContext<'_>) -> Preparation,
        cpu: &CpuProfile,
        args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        let packs = &PackStore::new();
        Self::prepared_by(prepare, Setting { cpu, packs, is_known: true }, Returned::Nothing, args)
    }

    /// Prepares `kernel` for a call as an instruction makes it: `args` are those that `schema` declares, outputs included,
    /// and what the operator returns stands behind them.
    ///
    /// Errors: another number of arguments, or arguments of other kinds; those of the kernel.
    pub fn of_schema(
        kernel: &dyn Kernel,
        schema: &Schema,
        setting: Setting<'_>,
        args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        if args.len() != schema.args.len() {
            return Err(Error::program("a call has the wrong number of arguments")
                .expected(schema.args.len().to_string())
                .got(args.len().to_string()));
        }
        for (arg, declared) in args.iter().zip(&schema.args) {
            if !declared.kind.accepts(arg.kind()) {
                return Err(Error::program("an argument of a call has the wrong kind")
                    .argument(declared.name.clone())
                    .expected(declared.kind.name())
                    .got(arg.kind().to_string()));
            }
        }
        Self::prepared_by(|ctx| kernel.prepare(ctx), setting, Returned::of(schema), args)
    }

    fn prepared_by(
        prepare: impl Fn(&PrepareContext<'_>) -> Preparation,
        setting: Setting<'_>,
        returned: Returned,
        mut args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        for arg in &mut args {
            if let CallArg::Tensor(t) = arg
                && !t.is_exact
            {
                t.spec.dynamism = Dynamism::Bounded;
            }
        }
        let Some(prepared) = prepare_for(prepare, setting, returned, &args)? else { return Ok(None) };
        let mut call = SingleCall {
            bound: prepared.new_bound(),
            prepared,
            values: Vec::new(),
            ids: Vec::new(),
            tensors: Vec::new(),
            scratch: None,
            random: RandomStream::new(0),
        };
        for arg in args {
            let id = call.add(arg)?;
            call.ids.push(id);
        }
        match returned {
            Returned::Nothing => {}
            Returned::Number => {
                let id = call.push(Value::None);
                call.ids.push(id);
            }
            Returned::Argument(i) => call.ids.extend(call.ids.get(i).copied()),
        }
        Ok(Some(call))
    }

    fn push(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    fn add_tensor(&mut self, tensor: HostTensor) -> Result<ValueId> {
        let slot = tensor.slot()?;
        self.tensors.push(tensor);
        Ok(self.push(slot))
    }

    fn add(&mut self, arg: CallArg) -> Result<ValueId> {
        let value = match arg {
            CallArg::None => Value::None,
            CallArg::Number(Scalar::Int(v)) => Value::Int(v),
            CallArg::Number(Scalar::Double(v)) => Value::Double(v),
            CallArg::Number(Scalar::Bool(v)) => Value::Bool(v),
            CallArg::String(v) => Value::String(v.as_ref().into()),
            CallArg::Ints(v) => Value::IntList(v.into_iter().map(|v| self.push(Value::Int(v))).collect()),
            CallArg::Doubles(v) => Value::DoubleList(v.into()),
            CallArg::Bools(v) => Value::BoolList(v.into()),
            CallArg::Tensor(t) | CallArg::Constant(t) => return self.add_tensor(t),
            CallArg::SameBytesAs(i) => match self.argument(i) {
                Some(value) => value.clone(),
                None => return Err(Error::internal("shares with a later argument")),
            },
            CallArg::Tensors(list) => {
                let ids: Result<Vec<ValueId>> = list.into_iter().map(|t| self.add_tensor(t)).collect();
                Value::TensorList(ids?.into())
            }
            CallArg::OptionalTensors(list) => {
                let add = |t: Option<HostTensor>| t.map(|t| self.add_tensor(t)).transpose();
                let ids: Vec<Option<ValueId>> = list.into_iter().map(add).collect::<Result<_>>()?;
                match ids.iter().copied().collect::<Option<Vec<ValueId>>>() {
                    Some(all) => Value::TensorList(all.into()),
                    None => Value::OptionalTensorList(ids.into()),
                }
            }
        };
        Ok(self.push(value))
    }

    /// What was prepared.
    pub fn prepared(&self) -> &dyn Prepared {
        &*self.prepared
    }

    /// The value of argument `i`, the returned one behind the others.
    pub fn argument(&self, i: usize) -> Option<&Value> {
        self.ids.get(i).and_then(|id| self.values.get(id.index()))
    }

    /// A tensor of a list.
    pub fn member(&self, id: ValueId) -> Option<&TensorSlot> {
        self.values.get(id.index()).and_then(Value::as_tensor)
    }

    fn tensor(&self, i: usize) -> Result<&TensorSlot> {
        self.argument(i).and_then(Value::as_tensor).ok_or_else(|| Error::internal("not a tensor"))
    }

    /// Gives the input at `i` another shape within its bound, as a dynamic program would.
    pub fn resize(&mut self, i: usize, shape: &[usize]) -> Result<()> {
        match self.ids.get(i).and_then(|id| self.values.get_mut(id.index())) {
            Some(Value::Tensor(t)) => t.resize(shape),
            _ => Err(Error::internal("not a tensor")),
        }
    }

    /// Takes the memory of the call's scratch, for a worker and shared.
    ///
    /// Errors: it is smaller than what the kernel asks for.
    pub fn set_scratch(&mut self, worker: Box<dyn Memory>, shared: Box<dyn Memory>) -> Result<()> {
        let needed = self.prepared.scratch();
        if worker.len() < needed.per_worker || shared.len() < needed.shared {
            return Err(Error::internal("the scratch memory of a call is too small"));
        }
        self.scratch = Some([worker, shared]);
        Ok(())
    }

    /// Binds the current shapes.
    pub fn bind(&mut self) -> Result<Grid> {
        if self.scratch.is_none() {
            let needed = self.prepared.scratch();
            let [mut worker, mut shared] =
                [AlignedBuffer::zeroed(needed.per_worker)?, AlignedBuffer::zeroed(needed.shared)?];
            // Their contents are undefined: not what a kernel would like to find.
            worker.as_mut_slice().fill(0xa5);
            shared.as_mut_slice().fill(0xa5);
            self.set_scratch(Box::new(worker), Box::new(shared))?;
        }
        // SAFETY: every slot points to memory of this call, large enough for its bound.
        let args = unsafe { BindArgs::new(&mut self.values, &self.ids) };
        let grid = self.prepared.bind(&mut args.with_random(&mut self.random), &mut self.bound)?;
        if self.prepared.alias() == AliasRule::View && grid.phase_count() > 0 {
            return Err(Error::internal("a view has nothing to run"));
        }
        Ok(grid)
    }

    /// Runs every chunk of `grid`, the last answer of [`SingleCall::bind`]; backwards within a phase
    /// when `is_reversed`.
    pub fn run(&mut self, grid: Grid, is_reversed: bool) -> Result<()> {
        let Some([worker, shared]) = &self.scratch else {
            return Err(Error::internal("the call is not bound"));
        };
        for phase in 0..grid.phase_count() {
            let n = grid.chunk_count(phase);
            for i in 0..n {
                let chunk = if is_reversed { n - 1 - i } else { i };
                let shared = if shared.is_empty() { std::ptr::null_mut() } else { shared.start() };
                // SAFETY: slots point to memory of this call; arguments share bytes only where the caller said so; chunks run
                // once, phases in order, on this thread. Nothing else looks at the worker's bytes, as many as `Memory`
                // promises, while the chunk runs.
                unsafe {
                    let worker = std::slice::from_raw_parts_mut(worker.start(), worker.len());
                    let args = Args::new(&self.values, &self.ids);
                    let mut scratch = WorkerScratch { worker, shared };
                    self.prepared.run(&self.bound, &args, phase, chunk, &mut scratch)?;
                }
            }
        }
        Ok(())
    }

    /// Gives outputs whose shape depends on data their shape; after [`SingleCall::run`].
    pub fn finish(&mut self) -> Result<()> {
        if !self.prepared.has_finish() {
            return Ok(());
        }
        // SAFETY: every slot points to memory of this call, large enough for its bound.
        let mut args = unsafe { BindArgs::new(&mut self.values, &self.ids) };
        self.prepared.finish(&mut args, &mut self.bound)
    }

    /// Binds, runs and finishes.
    pub fn call(&mut self) -> Result<()> {
        let grid = self.bind()?;
        self.run(grid, false)?;
        self.finish()
    }

    /// The bytes of the tensor at `i` in memory order, at its current shape.
    pub fn output_bytes(&self, i: usize) -> Result<&[u8]> {
        Ok(self.tensor(i)?.view().as_bytes())
    }

    /// The elements of the tensor at `i` in memory order, at its current shape.
    pub fn output<T: Element>(&self, i: usize) -> Result<Vec<T>> {
        Ok(self.tensor(i)?.view().as_slice::<T>()?.to_vec())
    }

    /// The current shape of the tensor at `i`.
    pub fn shape(&self, i: usize) -> Result<Dims> {
        Ok(*self.tensor(i)?.meta().shape())
    }
}
