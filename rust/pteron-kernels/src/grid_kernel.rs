//! The frame of every kernel: the typed problem of a call, from `bind` to `run`, and the memory of the worker that computes
//! a chunk. A [`GridKernel`] states the phases and chunks of a call; kernels of independent units ([`crate::frame`]), of plain
//! functions ([`crate::routine`], [`crate::chunked`]) and of the engine stand on it. Unsafe island: the contract of
//! [`Prepared::run`] is turned into safe calls here, and nowhere else.

use pteron_core::{AliasRule, Args, BindArgs, Bound, Error, Grid, Prepared, Result, Scratch, WorkerScratch};
use std::borrow::Cow;

/// What `prepare` returns.
pub type Preparation = Result<Option<Box<dyn Prepared>>>;

/// A kernel whose calls split into phases and chunks; [`prepared`] makes a [`Prepared`] of it.
pub trait GridKernel: Send + Sync + 'static {
    /// What `bind` finds out about the shapes of a call.
    type Problem: Send + Sync + 'static;

    /// See [`Prepared::scratch`].
    fn scratch(&self) -> Scratch {
        Scratch::NONE
    }

    /// See [`Prepared::alias`].
    fn alias(&self) -> AliasRule {
        AliasRule::None
    }

    /// See [`Prepared::needs`].
    fn needs(&self, _index: usize) -> bool {
        true
    }

    /// See [`Prepared::takes_random`].
    fn takes_random(&self) -> bool {
        false
    }

    /// A problem with room for what `bind` finds out, which must not allocate; see [`Prepared::new_bound`].
    fn new_problem(&self) -> Self::Problem;

    /// Takes the shapes, resizes outputs, fills the problem; see [`Prepared::bind`].
    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Self::Problem) -> Result<Grid>;

    /// Computes a chunk. The frame alone calls this, with the problem and the arguments of the last successful `bind`, once
    /// for each chunk, phases in order.
    fn run(&self, problem: &Self::Problem, part: Part<'_>) -> Result<()>;

    /// See [`Prepared::has_finish`].
    fn has_finish(&self) -> bool {
        false
    }

    /// See [`Prepared::finish`].
    fn finish(&self, _args: &mut BindArgs<'_>, _problem: &mut Self::Problem) -> Result<()> {
        Ok(())
    }
}

/// A chunk of a call, with the memory of the worker that computes it.
pub struct Part<'a> {
    /// The phase of the chunk.
    pub phase: u32,
    /// Its number in the phase.
    pub chunk: usize,
    /// The arguments of the call.
    pub args: &'a Args<'a>,
    /// Scratch of the worker, and what all workers share.
    pub scratch: WorkerScratch<'a>,
}

impl<'a> Part<'a> {
    /// `n` elements of this worker's scratch memory, with undefined contents; what is left can be taken later.
    ///
    /// Errors: the kernel asked for less in [`GridKernel::scratch`].
    #[inline(always)]
    pub fn take_scratch<T: bytemuck::Pod>(&mut self, n: usize) -> Result<&'a mut [T]> {
        take_scratch(&mut self.scratch.worker, n)
    }
}

/// The first `n` elements of `scratch`, which keeps the rest.
#[inline(always)]
pub(crate) fn take_scratch<'s, T: bytemuck::Pod>(
    scratch: &mut &'s mut [u8],
    n: usize,
) -> Result<&'s mut [T]> {
    let too_small = || Error::internal("worker scratch is too small or misaligned");
    let nbytes = n.checked_mul(size_of::<T>()).ok_or_else(too_small)?;
    let (part, rest) = std::mem::take(scratch).split_at_mut_checked(nbytes).ok_or_else(too_small)?;
    *scratch = rest;
    bytemuck::try_cast_slice_mut(part).map_err(|_| too_small())
}

struct Framed<K> {
    name: Cow<'static, str>,
    kernel: K,
}

/// The kernel in its frame; `name` as [`Prepared::name`] wants it.
pub fn prepared<K: GridKernel>(name: impl Into<Cow<'static, str>>, kernel: K) -> Preparation {
    Ok(Some(Box::new(Framed { name: name.into(), kernel })))
}

impl<K: GridKernel> Prepared for Framed<K> {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        self.kernel.scratch()
    }

    fn alias(&self) -> AliasRule {
        self.kernel.alias()
    }

    fn needs(&self, index: usize) -> bool {
        self.kernel.needs(index)
    }

    fn takes_random(&self) -> bool {
        self.kernel.takes_random()
    }

    fn new_bound(&self) -> Bound {
        Bound::of(self.kernel.new_problem())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        self.kernel.bind(args, bound.get_mut()?)
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let scratch = WorkerScratch { worker: &mut *scratch.worker, shared: scratch.shared };
        self.kernel.run(bound.get()?, Part { phase, chunk: chunk as usize, args, scratch })
    }

    fn has_finish(&self) -> bool {
        self.kernel.has_finish()
    }

    fn finish(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<()> {
        self.kernel.finish(args, bound.get_mut()?)
    }
}
