//! Kernels whose output splits into chunks of positions that are computed apart from each other. Unsafe
//! island: the `Prepared` contract is turned into safe calls here.

pub use crate::chunk::{CHUNK, part};
use crate::routine::Preparation;
use pteron_core::{AliasRule, Args, BindArgs, Bound, Grid, Prepared, Result, Scratch, WorkerScratch};
use std::ops::Range;

/// Takes the shapes, resizes outputs, fills the state, and gives the number of positions.
pub type BindChunks<S> = Box<dyn Fn(&mut BindArgs<'_>, &mut S) -> Result<usize> + Send + Sync>;

/// Computes a range of positions.
pub type RunChunk<S> = Box<dyn Fn(&S, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync>;

/// A kernel in chunks of [`CHUNK`] positions; outputs overlap nothing.
struct Chunked<S> {
    bind: BindChunks<S>,
    run: RunChunk<S>,
    takes_random: bool,
}

/// A kernel that binds a state `S` and computes positions.
pub fn prepare<S: Default + Send + Sync + 'static>(
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<usize> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    Ok(Some(Box::new(Chunked { bind: Box::new(bind), run: Box::new(run), takes_random: false })))
}

/// As [`prepare`], for a kernel that draws random numbers while binding.
pub fn prepare_random<S: Default + Send + Sync + 'static>(
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<usize> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    Ok(Some(Box::new(Chunked { bind: Box::new(bind), run: Box::new(run), takes_random: true })))
}

impl<S: Default + Send + Sync + 'static> Prepared for Chunked<S> {
    fn name(&self) -> &str {
        "reference"
    }

    fn scratch(&self) -> Scratch {
        Scratch::NONE
    }

    fn takes_random(&self) -> bool {
        self.takes_random
    }

    fn new_bound(&self) -> Bound {
        Bound::of((S::default(), 0usize))
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let (state, count) = bound.get_mut::<(S, usize)>()?;
        *count = (self.bind)(args, state)?;
        Ok(Grid::chunks(count.div_ceil(CHUNK), CHUNK))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let (state, count) = bound.get::<(S, usize)>()?;
        (self.run)(state, args, part(chunk as usize, CHUNK, *count))
    }
}

/// A kernel that keeps itself as the state of a bound call and says how the call splits.
pub trait Work: Clone + Send + Sync + 'static {
    /// Takes the shapes, resizes outputs, keeps what [`Work::run`] needs. Must not allocate.
    fn bind(&mut self, args: &mut BindArgs<'_>) -> Result<Grid>;

    /// Computes a chunk of a phase; `scratch` is the worker's own.
    fn run(&self, args: &Args<'_>, phase: u32, chunk: usize, scratch: &mut [u8]) -> Result<()>;
}

/// A kernel in phases and chunks.
struct Phased<W> {
    work: W,
    scratch: usize,
    alias: AliasRule,
}

/// A kernel whose outputs overlap nothing, with `scratch` bytes per worker.
pub fn prepare_work<W: Work>(work: W, scratch: usize) -> Preparation {
    Ok(Some(Box::new(Phased { work, scratch, alias: AliasRule::None })))
}

/// As [`prepare_work`], for a kernel whose output may be argument 0, see [`AliasRule::Update`].
pub fn prepare_update<W: Work>(work: W, scratch: usize) -> Preparation {
    Ok(Some(Box::new(Phased { work, scratch, alias: AliasRule::Update })))
}

impl<W: Work> Prepared for Phased<W> {
    fn name(&self) -> &str {
        "reference"
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        self.alias
    }

    fn new_bound(&self) -> Bound {
        Bound::of(self.work.clone())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        bound.get_mut::<W>()?.bind(args)
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        bound.get::<W>()?.run(args, phase, chunk as usize, scratch.worker)
    }
}
