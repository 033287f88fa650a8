//! Kernels made of two plain functions: `bind` computes output shapes, `run` computes everything in
//! one chunk, or one item of a batch.

pub use crate::grid_kernel::Preparation;
use crate::grid_kernel::{GridKernel, Part, prepared};
use pteron_core::{
    AliasRule, Args, BindArgs, DType, Error, Grid, PrepareContext, Result, Scratch, WorkerScratch,
};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Takes the shapes and resizes outputs.
pub type BindFn = fn(&mut BindArgs<'_>) -> Result<()>;

/// Computes the whole call. May use slices of its arguments: nothing overlaps.
pub type RunFn = fn(&Args<'_>, &mut WorkerScratch<'_>) -> Result<()>;

/// Computes item `n` of a batch.
pub type RunItemFn = fn(&Args<'_>, usize, &mut WorkerScratch<'_>) -> Result<()>;

/// Takes the shapes, resizes outputs, and says how many items there are and how many nanoseconds one takes.
pub type BindItemsFn = fn(&mut BindArgs<'_>) -> Result<(usize, usize)>;

/// What a kernel does while binding and running.
enum Work {
    /// Everything while binding: scalar results and views.
    BindOnly(BindFn),
    /// The whole call in one chunk.
    Whole(BindFn, RunFn),
    /// The items of a batch alike and apart from each other, one per chunk.
    Items(BindItemsFn, RunItemFn),
}

/// A kernel made of plain functions. Inputs and outputs do not overlap, but for the output of an update, which may be
/// argument 0.
pub struct Routine {
    work: Work,
    finish: Option<BindFn>,
    scratch: usize,
    alias: AliasRule,
}

impl Routine {
    fn prepared(work: Work, finish: Option<BindFn>, scratch: usize, alias: AliasRule) -> Preparation {
        prepared("reference", Routine { work, finish, scratch, alias })
    }

    /// A kernel that binds and runs.
    pub fn prepare(bind: BindFn, run: RunFn) -> Preparation {
        Routine::prepare_with_scratch(0, bind, run)
    }

    /// A kernel that needs `scratch` bytes of its own.
    pub fn prepare_with_scratch(scratch: usize, bind: BindFn, run: RunFn) -> Preparation {
        Routine::prepared(Work::Whole(bind, run), None, scratch, AliasRule::None)
    }

    /// A kernel that gives its outputs their shape or value after running.
    pub fn prepare_with_finish(bind: BindFn, run: RunFn, finish: BindFn) -> Preparation {
        Routine::prepare_with_finish_and_scratch(0, bind, run, finish)
    }

    /// Both of these.
    pub fn prepare_with_finish_and_scratch(
        scratch: usize,
        bind: BindFn,
        run: RunFn,
        finish: BindFn,
    ) -> Preparation {
        Routine::prepared(Work::Whole(bind, run), Some(finish), scratch, AliasRule::None)
    }

    /// A kernel whose output may be argument 0, see [`AliasRule::Update`].
    pub fn prepare_update(scratch: usize, bind: BindFn, run: RunFn) -> Preparation {
        Routine::prepared(Work::Whole(bind, run), None, scratch, AliasRule::Update)
    }

    /// A fast kernel whose output may be argument 0, with its name in listings.
    pub fn named_update(name: &'static str, bind: BindFn, run: RunFn) -> Preparation {
        let work = Work::Whole(bind, run);
        prepared(name, Routine { work, finish: None, scratch: 0, alias: AliasRule::Update })
    }

    /// A kernel of items that needs `scratch` bytes for one. Items write disjoint elements.
    pub fn per_item(scratch: usize, bind: BindItemsFn, run: RunItemFn) -> Preparation {
        Routine::prepared(Work::Items(bind, run), None, scratch, AliasRule::None)
    }

    /// A kernel with scalar results.
    pub fn scalar(bind: BindFn) -> Preparation {
        Routine::prepared(Work::BindOnly(bind), None, 0, AliasRule::None)
    }

    /// A kernel whose output is a view of argument 0.
    pub fn view(bind: BindFn) -> Preparation {
        Routine::prepared(Work::BindOnly(bind), None, 0, AliasRule::View)
    }
}

impl GridKernel for Routine {
    type Problem = ();

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn alias(&self) -> AliasRule {
        self.alias
    }

    fn new_problem(&self) {}

    fn bind(&self, args: &mut BindArgs<'_>, _problem: &mut ()) -> Result<Grid> {
        match self.work {
            Work::BindOnly(bind) => bind(args).map(|()| Grid::EMPTY),
            Work::Whole(bind, _) => bind(args).map(|()| Grid::SINGLE),
            Work::Items(bind, _) => {
                let (items, nanoseconds) = bind(args)?;
                if u32::try_from(items).is_err() {
                    return Err(Error::kernel("the batch has too many items").got(items.to_string()));
                }
                Ok(Grid::chunks(items, nanoseconds))
            }
        }
    }

    fn run(&self, _problem: &(), mut part: Part<'_>) -> Result<()> {
        match self.work {
            Work::BindOnly(_) => Ok(()),
            Work::Whole(_, run) => run(part.args, &mut part.scratch),
            Work::Items(_, run) => run(part.args, part.chunk, &mut part.scratch),
        }
    }

    fn has_finish(&self) -> bool {
        self.finish.is_some()
    }

    fn finish(&self, args: &mut BindArgs<'_>, _problem: &mut ()) -> Result<()> {
        self.finish.map_or(Ok(()), |f| f(args))
    }
}

/// Computes the whole call and says how many things it found.
pub type FindFn = Box<dyn Fn(&Args<'_>, &mut WorkerScratch<'_>) -> Result<usize> + Send + Sync>;

/// Takes the shapes and resizes outputs; the number is what was found, `None` before the run.
pub type BindFoundFn = Box<dyn Fn(&mut BindArgs<'_>, Option<usize>) -> Result<()> + Send + Sync>;

/// A kernel, in one chunk, whose outputs get their shape from how much it found.
pub struct Finding {
    bind: BindFoundFn,
    run: FindFn,
    scratch: usize,
}

impl Finding {
    /// A kernel that needs `scratch` bytes of its own.
    pub fn prepare(scratch: usize, bind: BindFoundFn, run: FindFn) -> Preparation {
        Finding::named("reference", scratch, bind, run)
    }

    /// As [`Finding::prepare`], with another name in listings than the plain kernel's.
    pub fn named(
        name: impl Into<Cow<'static, str>>,
        scratch: usize,
        bind: BindFoundFn,
        run: FindFn,
    ) -> Preparation {
        prepared(name, Finding { bind, run, scratch })
    }
}

impl GridKernel for Finding {
    type Problem = AtomicUsize;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }
    fn new_problem(&self) -> AtomicUsize {
        AtomicUsize::new(0)
    }
    fn bind(&self, args: &mut BindArgs<'_>, _problem: &mut AtomicUsize) -> Result<Grid> {
        (self.bind)(args, None)?;
        Ok(Grid::SINGLE)
    }
    fn run(&self, found: &AtomicUsize, mut part: Part<'_>) -> Result<()> {
        found.store((self.run)(part.args, &mut part.scratch)?, Ordering::Relaxed);
        Ok(())
    }
    fn has_finish(&self) -> bool {
        true
    }
    fn finish(&self, args: &mut BindArgs<'_>, found: &mut AtomicUsize) -> Result<()> {
        (self.bind)(args, Some(*found.get_mut()))
    }
}

/// The dtype of tensor argument `i` at prepare time; an error when there is none.
pub fn dtype_of(ctx: &PrepareContext<'_>, i: usize) -> Result<DType> {
    ctx.tensor(i)
        .map(|t| t.dtype)
        .ok_or_else(|| Error::kernel(format!("argument {i} has the wrong kind")).expected("Tensor"))
}
