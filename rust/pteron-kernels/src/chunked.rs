//! Plain kernels that compute ranges of positions (elements, lines, results) apart from each other.

pub use crate::chunk::{CHUNK, part};
use crate::frame::Split;
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared};
use pteron_core::{Args, BindArgs, Grid, Result, Scratch};
use std::borrow::Cow;
use std::ops::Range;

/// Takes the shapes, resizes outputs, fills the state, and says how many positions there are and how they split.
pub type BindRanges<S> = Box<dyn Fn(&mut BindArgs<'_>, &mut S) -> Result<Split> + Send + Sync>;

/// Computes a range of positions; the bytes are scratch.
pub type RunRange<S> = Box<dyn Fn(&S, &Args<'_>, Range<usize>, &mut [u8]) -> Result<()> + Send + Sync>;

/// A kernel in ranges of positions; outputs overlap nothing.
struct Ranges<S> {
    bind: BindRanges<S>,
    run: RunRange<S>,
    scratch: usize,
    takes_random: bool,
}

/// A kernel that binds a state `S` and computes positions, [`CHUNK`] of them at a time.
pub fn prepare<S: Default + Send + Sync + 'static>(
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<usize> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    let bind = move |args: &mut BindArgs<'_>, state: &mut S| Ok(Split::new(bind(args, state)?, CHUNK, CHUNK));
    in_ranges(0, bind, move |state, args, range, _| run(state, args, range))
}

/// As [`prepare`], for a kernel that draws random numbers while binding.
pub fn prepare_random<S: Default + Send + Sync + 'static>(
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<usize> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    let bind = move |args: &mut BindArgs<'_>, state: &mut S| Ok(Split::new(bind(args, state)?, CHUNK, CHUNK));
    random_in_ranges("reference", 0, bind, move |state, args, range, _| run(state, args, range))
}

/// As [`in_ranges`], for a kernel that draws random numbers while binding; with its name in listings.
pub fn random_in_ranges<S: Default + Send + Sync + 'static>(
    name: impl Into<Cow<'static, str>>,
    scratch: usize,
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<Split> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>, &mut [u8]) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    prepared(name, Ranges { bind: Box::new(bind), run: Box::new(run), scratch, takes_random: true })
}

/// A kernel that binds a state `S`, says how its positions split, and computes ranges of them with `scratch` bytes per
/// worker.
pub fn in_ranges<S: Default + Send + Sync + 'static>(
    scratch: usize,
    bind: impl Fn(&mut BindArgs<'_>, &mut S) -> Result<Split> + Send + Sync + 'static,
    run: impl Fn(&S, &Args<'_>, Range<usize>, &mut [u8]) -> Result<()> + Send + Sync + 'static,
) -> Preparation {
    prepared("reference", Ranges { bind: Box::new(bind), run: Box::new(run), scratch, takes_random: false })
}

impl<S: Default + Send + Sync + 'static> GridKernel for Ranges<S> {
    type Problem = (S, Split);

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch, shared: 0 }
    }

    fn takes_random(&self) -> bool {
        self.takes_random
    }

    fn new_problem(&self) -> (S, Split) {
        Default::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, (state, split): &mut (S, Split)) -> Result<Grid> {
        *split = (self.bind)(args, state)?;
        Ok(split.grid())
    }

    fn run(&self, (state, split): &(S, Split), part: Part<'_>) -> Result<()> {
        (self.run)(state, part.args, split.units_of(part.chunk), part.scratch.worker)
    }
}
