//! The frame of a convolution kernel: shapes are bound, operands and worker scratch are taken apart, and the split of a
//! call is kept here, once for all methods. A method says how a call splits and computes one chunk.

use super::geometry::{Extents, Geometry, WEIGHT};
use super::operands::{Operands, bind_shapes};
use crate::epilogue::Epilogue;
use pteron_core::{BindArgs, Error, Grid, Result, Scratch};
use pteron_kernels::grid_kernel::{self, GridKernel, Preparation, prepared};

/// A method of convolution with a packed constant weight.
pub(super) trait Method: Send + Sync + 'static {
    /// How a call of given extents is divided.
    type Split: Copy + Send + Sync + 'static;

    /// What is computed.
    fn layer(&self) -> (&Geometry, &Epilogue);

    /// Table entries and floats of worker scratch.
    fn scratch_parts(&self) -> [usize; 2];

    /// Floats that all workers share.
    fn shared_floats(&self) -> usize {
        0
    }

    /// Divides a call that has images.
    fn split(&self, extents: Extents) -> Result<(Self::Split, Grid)>;

    /// Computes a chunk.
    fn run(&self, split: Self::Split, operands: Operands, part: Part<'_>) -> Result<()>;
}

/// A chunk of a call, with the memory of the worker that computes it.
pub(super) struct Part<'a> {
    pub phase: u32,
    pub chunk: usize,
    pub table: &'a mut [usize],
    pub floats: &'a mut [f32],
    /// [`Method::shared_floats`] of them.
    pub shared: *mut f32,
}

struct Convolution<M>(M);

/// The method as a kernel with its name in listings.
pub(super) fn framed<M: Method>(name: String, method: M) -> Preparation {
    prepared(name, Convolution(method))
}

impl<M: Method> GridKernel for Convolution<M> {
    type Problem = Option<M::Split>;

    fn scratch(&self) -> Scratch {
        let [entries, floats] = self.0.scratch_parts();
        let bytes = size_of::<f32>();
        Scratch {
            per_worker: entries * size_of::<usize>() + floats * bytes,
            shared: self.0.shared_floats().saturating_mul(bytes),
        }
    }

    fn needs(&self, index: usize) -> bool {
        index != WEIGHT
    }

    fn new_problem(&self) -> Option<M::Split> {
        None
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Option<M::Split>) -> Result<Grid> {
        let (geometry, epilogue) = self.0.layer();
        let extents = bind_shapes(args, geometry, epilogue)?;
        if extents.images == 0 {
            return Ok(Grid::EMPTY);
        }
        let (split, grid) = self.0.split(extents)?;
        *bound = Some(split);
        Ok(grid)
    }

    fn run(&self, bound: &Option<M::Split>, mut part: grid_kernel::Part<'_>) -> Result<()> {
        let split = bound.ok_or_else(|| Error::internal("the call is not bound"))?;
        let operands = Operands::of(part.args, self.0.layer().1)?;
        let [entries, floats] = self.0.scratch_parts();
        let (table, floats) = (part.take_scratch(entries)?, part.take_scratch(floats)?);
        let (phase, chunk, shared) = (part.phase, part.chunk, part.scratch.shared.cast());
        self.0.run(split, operands, Part { phase, chunk, table, floats, shared })
    }
}
