//! One kernel call outside a program: prepare, bind and run a kernel on tensors held here. For calls that
//! load makes, for tests, benches and writers of kernels. Unsafe island (it plays the executor's part).

use crate::vector_math::SimdLevel;
use pteron_core::{
    AlignedBuffer, ArgSpec, Args, BindArgs, Bound, ConstantKey, ConstantView, CpuProfile, DType, DimOrder,
    Dims, Dynamism, Element, Error, Grid, Isa, PackStore, PrepareContext, Prepared, Result, Scalar, Scratch,
    TensorSlot, TensorSpec, Value, ValueId, WorkerScratch, kernel::PrepareFn,
};

/// A dense tensor with its own memory.
#[derive(Debug)]
pub struct HostTensor {
    spec: TensorSpec,
    data: AlignedBuffer,
}

impl HostTensor {
    /// Zeros of `shape` in `dim_order`.
    pub fn zeros_in_order(dtype: DType, shape: &[usize], dim_order: DimOrder) -> Result<Self> {
        let mut spec = TensorSpec::contiguous(dtype, shape)?;
        spec.dim_order = dim_order;
        // At least one element, so that even empty tensors have a pointer.
        let data = AlignedBuffer::zeroed(spec.nbytes()?.max(16))?;
        Ok(HostTensor { spec, data })
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
        let mut out = Self::zeros_in_order(T::DTYPE, shape, dim_order)?;
        if out.spec.shape.numel()? != values.len() {
            return Err(Error::internal("a test tensor has another number of values than its shape")
                .expected(format!("{shape:?}"))
                .got(values.len().to_string()));
        }
        out.data.as_mut_elements::<T>()[..values.len()].copy_from_slice(values);
        Ok(out)
    }

    /// A tensor of `spec` with the bytes of `data`, in its memory order; an error when there are too few.
    pub fn of_bytes(spec: &TensorSpec, data: &[u8]) -> Result<Self> {
        let mut out = Self::zeros_in_order(spec.dtype, &spec.shape, spec.dim_order)?;
        let nbytes = spec.nbytes()?;
        match (out.data.as_mut_slice().get_mut(..nbytes), data.get(..nbytes)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return Err(Error::internal("a tensor has fewer bytes than its shape asks for")),
        }
        Ok(out)
    }

    /// The elements in memory order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.data.as_elements::<T>()[..self.spec.shape.numel()?].to_vec())
    }
}

/// An argument of a [`SingleCall`].
#[derive(Debug)]
pub enum CallArg {
    /// `None`.
    None,
    /// A number known at load.
    Number(Scalar),
    /// A string.
    String(&'static str),
    /// Integers known at load.
    Ints(Vec<i64>),
    /// A tensor that is written by the program (input or output).
    Tensor(HostTensor),
    /// A tensor whose contents are known at load.
    Constant(HostTensor),
    /// A tensor that shares the bytes of the tensor argument at this position.
    SameBytesAs(usize),
    /// Tensors.
    Tensors(Vec<HostTensor>),
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
}

/// A kernel prepared for one call.
pub struct SingleCall {
    prepared: Box<dyn Prepared>,
    bound: Bound,
    values: Vec<Value>,
    ids: Vec<ValueId>,
    // Where the slots point; kept alive, and read back through `output`.
    tensors: Vec<Option<HostTensor>>,
    lists: Vec<HostTensor>,
    worker: AlignedBuffer,
    shared: AlignedBuffer,
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

fn spec_of(arg: &CallArg, all: &[CallArg]) -> Option<TensorSpec> {
    let tensor = match arg {
        CallArg::Tensor(t) | CallArg::Constant(t) => t,
        CallArg::SameBytesAs(i) => return all.get(*i).and_then(|a| spec_of(a, &[])),
        _ => return None,
    };
    let mut spec = tensor.spec.clone();
    if matches!(arg, CallArg::Tensor(_)) {
        spec.dynamism = Dynamism::Bounded;
    }
    Some(spec)
}

fn describe<'a>(position: usize, arg: &'a CallArg, all: &'a [CallArg]) -> Result<ArgSpec<'a>> {
    Ok(match arg {
        CallArg::None => ArgSpec::None,
        CallArg::Number(Scalar::Int(v)) => ArgSpec::Int(Some(*v)),
        CallArg::Number(Scalar::Double(v)) => ArgSpec::Double(Some(*v)),
        CallArg::Number(Scalar::Bool(v)) => ArgSpec::Bool(Some(*v)),
        CallArg::String(s) => ArgSpec::String(s),
        CallArg::Ints(v) => ArgSpec::IntList(v.iter().copied().map(Some).collect()),
        CallArg::Tensor(_) | CallArg::SameBytesAs(_) => {
            let spec = spec_of(arg, all)
                .ok_or_else(|| Error::internal("argument shares bytes with a non-tensor"))?;
            ArgSpec::Tensor(spec, None)
        }
        CallArg::Constant(t) => {
            let nbytes = t.spec.nbytes()?;
            let view = ConstantView {
                key: ConstantKey { origin: 0, offset: position as u64, nbytes: nbytes as u64 },
                data: &t.data.as_slice()[..nbytes],
                dtype: t.spec.dtype,
                offset: 0,
                shape: t.spec.shape,
                strides: t.spec.dim_order.strides(&t.spec.shape),
            };
            ArgSpec::Tensor(t.spec.clone(), Some(view))
        }
        CallArg::Tensors(ts) => ArgSpec::TensorList(ts.iter().map(|t| Some(t.spec.clone())).collect()),
    })
}

fn slot(spec: &TensorSpec, data: &AlignedBuffer) -> Result<Value> {
    let mut slot = TensorSlot::new(spec)?;
    // SAFETY: the buffer lives in the same SingleCall as the slot and is written only through it.
    unsafe { slot.set_data(data.as_ptr(), data.len()) };
    Ok(Value::Tensor(Box::new(slot)))
}

impl SingleCall {
    /// Prepares and binds `prepare` for `args`; `None` when the kernel leaves the case to others.
    pub fn new(prepare: PrepareFn, cpu: &CpuProfile, args: Vec<CallArg>) -> Result<Option<Self>> {
        Self::with_packs(prepare, cpu, &PackStore::new(), args)
    }

    /// As [`SingleCall::new`], with a pack store of the caller's.
    pub fn with_packs(
        prepare: PrepareFn,
        cpu: &CpuProfile,
        packs: &PackStore,
        args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        Self::prepared_by(prepare, cpu, packs, args)
    }

    /// As [`SingleCall::new`], for a plan: `prepare` may capture what it describes.
    pub fn of(
        prepare: impl Fn(&PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>>,
        cpu: &CpuProfile,
        args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        Self::prepared_by(prepare, cpu, &PackStore::new(), args)
    }

    fn prepared_by(
        prepare: impl Fn(&PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>>,
        cpu: &CpuProfile,
        packs: &PackStore,
        args: Vec<CallArg>,
    ) -> Result<Option<Self>> {
        let specs: Vec<ArgSpec<'_>> =
            args.iter().enumerate().map(|(i, a)| describe(i, a, &args)).collect::<Result<_>>()?;
        let Some(prepared) = prepare(&PrepareContext { args: &specs, packs, cpu })? else { return Ok(None) };
        drop(specs);
        let Scratch { per_worker, shared } = prepared.scratch();
        let mut call = SingleCall {
            bound: prepared.new_bound(),
            prepared,
            values: Vec::new(),
            ids: Vec::new(),
            tensors: Vec::new(),
            lists: Vec::new(),
            worker: AlignedBuffer::zeroed(per_worker)?,
            shared: AlignedBuffer::zeroed(shared)?,
        };
        call.add_arguments(args)?;
        Ok(Some(call))
    }

    fn add_arguments(&mut self, args: Vec<CallArg>) -> Result<()> {
        // Values 0.. are the arguments; list elements follow.
        self.ids = (0..args.len()).map(|i| ValueId(i as u32)).collect();
        let mut elements = Vec::new();
        let first_element = args.len();
        for arg in args {
            let spec = spec_of(&arg, &[]);
            let (value, tensor) = match (arg, spec) {
                (CallArg::Tensor(t) | CallArg::Constant(t), Some(spec)) => (slot(&spec, &t.data)?, Some(t)),
                (CallArg::Number(Scalar::Int(v)), _) => (Value::Int(v), None),
                (CallArg::Number(Scalar::Double(v)), _) => (Value::Double(v), None),
                (CallArg::Number(Scalar::Bool(v)), _) => (Value::Bool(v), None),
                (CallArg::String(v), _) => (Value::String(v.into()), None),
                (CallArg::Ints(v), _) => {
                    let ids = v.iter().enumerate();
                    let at = first_element + elements.len();
                    let ids: Vec<ValueId> = ids.map(|(i, _)| ValueId((at + i) as u32)).collect();
                    elements.extend(v.into_iter().map(Value::Int));
                    (Value::IntList(ids.into()), None)
                }
                (CallArg::SameBytesAs(i), _) => (
                    self.values
                        .get(i)
                        .cloned()
                        .ok_or_else(|| Error::internal("shares with a later argument"))?,
                    None,
                ),
                (CallArg::Tensors(ts), _) => {
                    let at = first_element + elements.len();
                    let ids: Vec<ValueId> = (0..ts.len()).map(|i| ValueId((at + i) as u32)).collect();
                    for t in ts {
                        elements.push(slot(&t.spec, &t.data)?);
                        self.lists.push(t);
                    }
                    (Value::TensorList(ids.into()), None)
                }
                _ => (Value::None, None),
            };
            self.values.push(value);
            self.tensors.push(tensor);
        }
        self.values.append(&mut elements);
        Ok(())
    }

    /// What was prepared.
    pub fn prepared(&self) -> &dyn Prepared {
        &*self.prepared
    }

    /// Gives the input at `i` another shape within its bound, as a dynamic program would.
    pub fn resize(&mut self, i: usize, shape: &[usize]) -> Result<()> {
        match self.values.get_mut(i) {
            Some(Value::Tensor(t)) => t.resize(shape),
            _ => Err(Error::internal("not a tensor")),
        }
    }

    /// Binds the current shapes.
    pub fn bind(&mut self) -> Result<Grid> {
        // SAFETY: every slot points to a buffer of this call, large enough for its bound.
        let mut args = unsafe { BindArgs::new(&mut self.values, &self.ids) };
        self.prepared.bind(&mut args, &mut self.bound)
    }

    /// Runs every chunk of `grid`, the last answer of [`SingleCall::bind`]; backwards within a phase
    /// when `is_reversed`.
    pub fn run(&mut self, grid: Grid, is_reversed: bool) -> Result<()> {
        for phase in 0..grid.phase_count() {
            let n = grid.chunk_count(phase);
            for i in 0..n {
                let chunk = if is_reversed { n - 1 - i } else { i };
                let mut scratch =
                    WorkerScratch { worker: self.worker.as_mut_slice(), shared: self.shared.as_ptr() };
                // SAFETY: slots point to buffers of this call; arguments share bytes only where the caller
                // said so; chunks run once, phases in order, on this thread.
                unsafe {
                    let args = Args::new(&self.values, &self.ids);
                    self.prepared.run(&self.bound, &args, phase, chunk, &mut scratch)?;
                }
            }
        }
        Ok(())
    }

    /// Binds and runs.
    pub fn call(&mut self) -> Result<()> {
        let grid = self.bind()?;
        self.run(grid, false)
    }

    /// The bytes of the tensor at `i` in memory order, at its current shape.
    pub fn output_bytes(&self, i: usize) -> Result<&[u8]> {
        match (self.values.get(i), self.tensors.get(i)) {
            (Some(Value::Tensor(t)), Some(Some(held))) => {
                let bytes = held.data.as_slice().get(..t.view().nbytes());
                bytes.ok_or_else(|| Error::internal("a tensor is larger than its bound"))
            }
            _ => Err(Error::internal("not a tensor")),
        }
    }

    /// The elements of the tensor at `i` in memory order, at its current shape.
    pub fn output<T: Element>(&self, i: usize) -> Result<Vec<T>> {
        match self.values.get(i) {
            // SAFETY: the slot points to a buffer of this call.
            Some(Value::Tensor(t)) => Ok(t.view().as_slice::<T>()?.to_vec()),
            _ => Err(Error::internal("not a tensor")),
        }
    }

    /// The current shape of the tensor at `i`.
    pub fn shape(&self, i: usize) -> Result<Dims> {
        match self.values.get(i) {
            Some(Value::Tensor(t)) => Ok(*t.meta().shape()),
            _ => Err(Error::internal("not a tensor")),
        }
    }
}
