//! Kernels whose output splits into chunks of positions that are computed apart from each other.

pub use crate::chunk::{CHUNK, part};
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_core::{AliasRule, Args, BindArgs, Grid, Result, Scratch};
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
    prepared(Chunked { bind: Box::new(bind), run: Box::new(run), takes_random: false })
}

/// As [`prepare`], for a kernel that draws random numbers while binding.
pub fn prepare_random<S: Default + Send + Sync + 'static>(
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<usize> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    prepared(Chunked { bind: Box::new(bind), run: Box::new(run), takes_random: true })
}

impl<S: Default + Send + Sync + 'static> GridKernel for Chunked<S> {
    type Problem = (S, usize);

    fn name(&self) -> &str {
        "reference"
    }

    fn takes_random(&self) -> bool {
        self.takes_random
    }

    fn new_problem(&self) -> (S, usize) {
        Default::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, (state, count): &mut (S, usize)) -> Result<Grid> {
        *count = (self.bind)(args, state)?;
        Ok(Grid::chunks(count.div_ceil(CHUNK), CHUNK))
    }

    fn run(&self, (state, count): &(S, usize), chunk: Part<'_>) -> Result<()> {
        (self.run)(state, chunk.args, part(chunk.chunk, CHUNK, *count))
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
    prepared(Phased { work, scratch, alias: AliasRule::None })
}

/// As [`prepare_work`], for a kernel whose output may be argument 0, see [`AliasRule::Update`].
pub fn prepare_update<W: Work>(work: W, scratch: usize) -> Preparation {
    prepared(Phased { work, scratch, alias: AliasRule::Update })
}

impl<W: Work> GridKernel for Phased<W> {
    type Problem = W;

    fn name(&self) -> &str {
        "reference"
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        self.alias
    }

    fn new_problem(&self) -> W {
        self.work.clone()
    }

    fn bind(&self, args: &mut BindArgs<'_>, work: &mut W) -> Result<Grid> {
        work.bind(args)
    }

    fn run(&self, work: &W, part: Part<'_>) -> Result<()> {
        work.run(part.args, part.phase, part.chunk, part.scratch.worker)
    }
}
