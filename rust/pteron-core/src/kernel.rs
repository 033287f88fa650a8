//! The three stages in a kernel's life: a [`Kernel`] *prepares* once per call site at load, the
//! [`Prepared`] it returns *binds* shapes when they change, then *runs* chunk by chunk.
//!
//! Kernels never touch the thread pool: `bind` states a grid of phases × chunks, the executor
//! schedules it. Every output element has one reduction order that does not depend on the grid's
//! distribution over threads, so results are the same bytes for any number of threads.

use crate::{Args, BindArgs, ConstantView, CpuProfile, PackStore, Result, Schema, TensorSpec};
use std::any::Any;
use std::cell::Cell;

/// What `prepare` knows about one argument.
#[allow(
    clippy::large_enum_variant,
    reason = "a tensor's entry is far larger than the others; the list lives for one `prepare` call, at load"
)]
#[derive(Debug, Clone)]
pub enum ArgSpec<'a> {
    /// Absent optional.
    None,
    /// Integer; the value when nothing in the program writes it.
    Int(Option<i64>),
    /// Float.
    Double(Option<f64>),
    /// Bool.
    Bool(Option<bool>),
    /// String.
    String(&'a str),
    /// Tensor with its upper-bound spec; its contents when it is constant.
    Tensor(TensorSpec, Option<ConstantView<'a>>),
    /// Integers; each with its value when known.
    IntList(Vec<Option<i64>>),
    /// Floats.
    DoubleList(&'a [f64]),
    /// Bools.
    BoolList(&'a [bool]),
    /// Tensors, `None` for absent ones.
    TensorList(Vec<Option<TensorSpec>>),
}

impl<'a> ArgSpec<'a> {
    /// The spec, if this is a tensor.
    pub fn tensor(&self) -> Option<&TensorSpec> {
        match self {
            ArgSpec::Tensor(spec, _) => Some(spec),
            _ => None,
        }
    }
    /// The contents, if this is a constant tensor.
    pub fn constant(&self) -> Option<&ConstantView<'a>> {
        match self {
            ArgSpec::Tensor(_, constant) => constant.as_ref(),
            _ => None,
        }
    }
    /// The number as f64, if it is one and known.
    pub fn number(&self) -> Option<f64> {
        match self {
            ArgSpec::Int(v) => v.map(|v| v as f64),
            ArgSpec::Double(v) => *v,
            ArgSpec::Bool(v) => v.map(|v| v as u8 as f64),
            _ => None,
        }
    }
    /// The integers, if all are known.
    pub fn ints(&self) -> Option<Vec<i64>> {
        match self {
            ArgSpec::IntList(v) => v.iter().copied().collect(),
            _ => None,
        }
    }
}

/// What `prepare` is given.
pub struct PrepareContext<'a> {
    /// One entry per argument, in the order of the instruction.
    pub args: &'a [ArgSpec<'a>],
    /// Where packed weights are kept and shared.
    pub packs: &'a PackStore,
    /// The processor to prepare for.
    pub cpu: &'a CpuProfile,
    /// What [`PrepareContext::decline`] was told last.
    declined: Cell<Option<&'static str>>,
}

impl<'a> PrepareContext<'a> {
    /// For one call: its arguments, the store of packed weights, the processor.
    pub fn new(args: &'a [ArgSpec<'a>], packs: &'a PackStore, cpu: &'a CpuProfile) -> Self {
        PrepareContext { args, packs, cpu, declined: Cell::new(None) }
    }

    /// Leaves the call to the next kernel: what [`Kernel::prepare`] returns then. Tools show `why`, a phrase that
    /// states what the kernel takes, or what the call has that it does not take.
    pub fn decline<T>(&self, why: &'static str) -> Result<Option<T>> {
        self.declined.set(Some(why));
        Ok(None)
    }

    /// Why the kernel that was asked last declined, if it said so.
    pub fn take_declined(&self) -> Option<&'static str> {
        self.declined.take()
    }

    /// The spec of the tensor at `i`, if it is one.
    pub fn tensor(&self, i: usize) -> Option<&TensorSpec> {
        self.args.get(i).and_then(ArgSpec::tensor)
    }
}

/// May an output share bytes with an input?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasRule {
    /// No: every byte of every output is disjoint from every input.
    None,
    /// Yes, if an output and an input are the very same bytes and each output element depends only on
    /// the input element at the same place (same shape, same strides). The kernel uses raw pointers.
    InPlace,
    /// Yes, if the output and argument 0 are the very same bytes with the same shape and strides: the
    /// kernel then changes what it has to and leaves the rest alone. Every other argument is disjoint.
    /// The kernel uses raw pointers.
    Update,
    /// The output *is* a view of argument 0; `run` does nothing.
    View,
}

/// Scratch memory a prepared kernel needs, in bytes, from upper-bound shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scratch {
    /// For each worker; contents undefined at the start of every chunk.
    pub per_worker: usize,
    /// Shared by all workers of one call; survives from phase to phase.
    pub shared: usize,
}

impl Scratch {
    /// None at all.
    pub const NONE: Scratch = Scratch { per_worker: 0, shared: 0 };
}

/// How a bound call splits up: up to [`Grid::MAX_PHASES`] phases, each with a number of independent
/// chunks; a phase starts when the one before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    phases: u32,
    chunks: [u32; Grid::MAX_PHASES],
    /// Estimated work of one chunk in nanoseconds; decides whether threads are worth it.
    pub chunk_ns: u32,
}

impl Grid {
    /// Most phases a kernel may have.
    pub const MAX_PHASES: usize = 4;
    /// Nothing to run (the work was done in `bind`, or the output is empty).
    pub const EMPTY: Grid = Grid { phases: 0, chunks: [0; Grid::MAX_PHASES], chunk_ns: 0 };
    /// One phase, one chunk.
    pub const SINGLE: Grid = Grid { phases: 1, chunks: [1, 0, 0, 0], chunk_ns: 0 };

    /// One phase of `chunks` chunks of about `chunk_ns` nanoseconds each.
    pub fn chunks(chunks: usize, chunk_ns: usize) -> Grid {
        Grid {
            phases: 1,
            chunks: [u32::try_from(chunks).unwrap_or(u32::MAX), 0, 0, 0],
            chunk_ns: u32::try_from(chunk_ns).unwrap_or(u32::MAX),
        }
    }

    /// Several phases (at most [`Grid::MAX_PHASES`]; more are cut, which no kernel asks for).
    pub fn phases(chunks: &[usize], chunk_ns: usize) -> Grid {
        let mut grid = Grid::chunks(0, chunk_ns);
        grid.phases = 0;
        for (slot, n) in grid.chunks.iter_mut().zip(chunks) {
            *slot = u32::try_from(*n).unwrap_or(u32::MAX);
            grid.phases += 1;
        }
        grid
    }

    /// Number of phases.
    #[inline(always)]
    pub fn phase_count(&self) -> u32 {
        self.phases
    }

    /// Chunks of a phase.
    #[inline(always)]
    pub fn chunk_count(&self, phase: u32) -> u32 {
        self.chunks.get(phase as usize).copied().unwrap_or(0)
    }
}

/// Scratch of the worker that runs a chunk.
pub struct WorkerScratch<'a> {
    /// This worker's own bytes, at least `Scratch::per_worker`, 64-byte aligned.
    pub worker: &'a mut [u8],
    /// Bytes shared by all workers, `Scratch::shared` long, 64-byte aligned; null when zero. Workers
    /// write disjoint parts of it.
    pub shared: *mut u8,
}

/// Shape-dependent state of a bound call, owned by the session: whatever type the kernel chooses.
pub struct Bound(Option<Box<dyn Any + Send + Sync>>);

impl Bound {
    /// No state.
    pub const NONE: Bound = Bound(None);

    /// State of type `T`.
    pub fn of<T: Any + Send + Sync>(state: T) -> Self {
        Bound(Some(Box::new(state)))
    }

    /// The state; an internal error when it has another type.
    #[inline(always)]
    pub fn get<T: Any>(&self) -> Result<&T> {
        self.0
            .as_deref()
            .and_then(|b| b.downcast_ref())
            .ok_or_else(|| crate::Error::internal("bound state has another type"))
    }

    /// The state, writable.
    #[inline(always)]
    pub fn get_mut<T: Any>(&mut self) -> Result<&mut T> {
        self.0
            .as_deref_mut()
            .and_then(|b| b.downcast_mut())
            .ok_or_else(|| crate::Error::internal("bound state has another type"))
    }
}

/// A kernel prepared for one call site; immutable and shared by all sessions.
pub trait Prepared: Send + Sync {
    /// What shows in listings and traces, such as `gemm.f32_nr32_v1.avx512`.
    fn name(&self) -> &str;

    /// Scratch for the upper-bound shapes.
    fn scratch(&self) -> Scratch {
        Scratch::NONE
    }

    /// May outputs share bytes with inputs?
    fn alias(&self) -> AliasRule {
        AliasRule::None
    }

    /// Is the memory of argument `index` read or written while binding or running? False for a
    /// constant that was packed in `prepare`: load then need not bring its bytes into memory.
    fn needs(&self, _index: usize) -> bool {
        true
    }

    /// Does `bind` draw from [`BindArgs::random_draws`]? It is then called before every run.
    fn takes_random(&self) -> bool {
        false
    }

    /// Fresh state for a session; may allocate (called once per session, at load).
    fn new_bound(&self) -> Bound {
        Bound::NONE
    }

    /// Takes the argument shapes as they are now: checks them, resizes outputs, writes scalar
    /// results, fills `bound`, and says how the work splits. Must not allocate. Called once per session
    /// when nothing it reads can change, else before every run.
    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid>;

    /// Computes one chunk.
    ///
    /// # Safety
    /// `args` and `bound` must be those of the last successful `bind`; each (phase, chunk) of its grid
    /// is run once, phases in order; tensors follow the contract of [`Args::new`] with this kernel's
    /// [`AliasRule`]; `scratch` is at least as large as [`Prepared::scratch`] says.
    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()>;

    /// Does [`Prepared::finish`] have to be called? True for kernels whose output shape depends on data.
    fn has_finish(&self) -> bool {
        false
    }

    /// Called after the last chunk: gives outputs their final shape.
    fn finish(&self, _args: &mut BindArgs<'_>, _bound: &mut Bound) -> Result<()> {
        Ok(())
    }
}

/// Code for an operator. Several kernels of one operator form an ordered list; the first whose
/// `prepare` accepts the arguments is used (fast ones first, the reference kernel last).
pub trait Kernel: Send + Sync {
    /// The out-variant's schema in PyTorch's syntax,
    /// `aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)`. Or the operator's
    /// name alone, `my_ns::my_op.out`: the kernel takes arguments of any kinds, and which of them are outputs is read
    /// from the calls of a program, which name them once more behind the arguments.
    fn schema(&self) -> &str;

    /// `reference`, or what the fast variant is called.
    fn variant(&self) -> &str;

    /// Prepares for one call site. `Ok(None)`: not my case, ask the next kernel. An error means that
    /// no kernel can do this (a dtype combination that the operator refuses, say).
    fn prepare(&self, ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>>;

    /// As [`Kernel::prepare`], with the schema that applies: for kernels that state none themselves. This is what the
    /// runtime calls.
    ///
    /// # Errors
    /// As [`Kernel::prepare`].
    fn prepare_call(&self, ctx: &PrepareContext<'_>, _schema: &Schema) -> Result<Option<Box<dyn Prepared>>> {
        self.prepare(ctx)
    }
}

/// The `prepare` function of a kernel in a static table.
pub type PrepareFn = fn(&PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>>;

/// A kernel as an entry of a static table.
#[derive(Clone, Copy)]
pub struct StaticKernel {
    /// See [`Kernel::schema`].
    pub schema: &'static str,
    /// See [`Kernel::variant`].
    pub variant: &'static str,
    /// See [`Kernel::prepare`].
    pub prepare: PrepareFn,
}

impl Kernel for StaticKernel {
    fn schema(&self) -> &str {
        self.schema
    }
    fn variant(&self) -> &str {
        self.variant
    }
    fn prepare(&self, ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
        (self.prepare)(ctx)
    }
}
