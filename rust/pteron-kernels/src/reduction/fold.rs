//! Fast reductions over neighbouring dimensions, which make one result of many elements of `outer × reduced × inner`: what the
//! kernels for floats and those for other dtypes have in common. Unsafe island (vector loads).
//!
//! A unit of work is a row when the innermost dimension is reduced, else a block of neighbouring columns.

use super::shape::{DimsArg, ReducedDims, Volumes};
use crate::chunk::{CHUNK, ChunkOf, ChunkOfMut};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{BindArgs, Element, Error, PrepareContext, Result};
use std::ops::Range;

/// Columns that one unit reduces together: what one pass over the rows keeps in registers.
pub const COLUMNS: usize = 64;

/// What is made of many elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Σ x.
    Sum,
    /// Σ x / n.
    Mean,
    /// Π x.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// ln Σ e^x.
    LogSumExp,
}

impl Kind {
    /// As kernels are called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sum => "sum",
            Kind::Mean => "mean",
            Kind::Product => "prod",
            Kind::Max => "amax",
            Kind::Min => "amin",
            Kind::LogSumExp => "logsumexp",
        }
    }
}

/// How a kernel combines the elements of a call.
pub trait Fold: Send + Sync + 'static {
    /// Nanoseconds that an element of the input takes, about.
    const NS_PER_ELEMENT: f64;

    /// Is there no result without elements?
    fn needs_elements(&self) -> bool;

    /// Computes the units of a chunk into output `out`.
    fn run(&self, volumes: Volumes, out: usize, chunk: &mut Chunk<'_, '_>) -> Result<()>;
}

struct FoldKernel<F> {
    dims: ReducedDims,
    out: usize,
    fold: F,
}

/// The kernel of a fold into output `out`, if the reduced dimensions are neighbours; the parts of its name.
pub fn fold_kernel<F: Fold>(
    ctx: &PrepareContext<'_>,
    out: usize,
    form: DimsArg,
    name: [&str; 3],
    fold: F,
) -> Preparation {
    match ReducedDims::neighbours(ctx, out, form) {
        Some(dims) => framed(name.join("."), FoldKernel { dims, out, fold }),
        None => ctx.decline("takes reduced dimensions that are neighbours in memory"),
    }
}

impl<F: Fold> UnitKernel for FoldKernel<F> {
    type Problem = Volumes;

    fn bind(&self, args: &mut BindArgs<'_>, volumes: &mut Volumes) -> Result<Split> {
        *volumes = self.dims.bind(args, self.out)?;
        let outputs = volumes.outer * volumes.inner;
        if volumes.reduced == 0 && outputs > 0 && self.fold.needs_elements() {
            return Err(Error::kernel("the largest or smallest of no elements is not defined")
                .expected("a non-zero extent in every reduced dimension")
                .got(args.args().tensor(0)?.shape().to_string()));
        }
        if outputs == 0 {
            return Ok(Split::NONE);
        }
        let (units, size) = volumes.units(COLUMNS);
        Ok(Split::sized(units, size, CHUNK, F::NS_PER_ELEMENT))
    }

    fn run(&self, volumes: &Volumes, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.fold.run(*volumes, self.out, chunk)
    }
}

/// How the elements of a unit are combined on one instruction set.
pub trait FoldUnits<T, O> {
    /// The result of a row.
    ///
    /// # Safety
    /// `n` elements behind `x`; at least one where the fold needs elements.
    unsafe fn row<S: Simd>(&self, s: S, x: *const T, n: usize) -> O;

    /// The results of `n ≤ COLUMNS` neighbouring columns.
    ///
    /// # Safety
    /// `n` elements of each of `volumes.reduced` rows, `volumes.inner` apart, behind `x`, and `n` elements behind `y`; at
    /// least one row where the fold needs elements.
    unsafe fn columns<S: Simd>(&self, s: S, x: *const T, y: *mut O, volumes: Volumes, n: usize);
}

/// The units of a chunk.
pub struct FoldTask<'a, F, T, O> {
    fold: F,
    volumes: Volumes,
    units: Range<usize>,
    input: ChunkOf<'a, T>,
    out: ChunkOfMut<'a, O>,
}

impl<'a, F: FoldUnits<T, O>, T: Element, O: Element> FoldTask<'a, F, T, O> {
    /// The units of `chunk`, from input 0 into output `out`.
    ///
    /// Errors: the tensors have other dtypes or fewer elements.
    pub fn new(fold: F, volumes: Volumes, out: usize, chunk: &mut Chunk<'a, '_>) -> Result<Self> {
        let Volumes { outer, reduced, inner } = volumes;
        let units = chunk.units.clone();
        let (input, out) = (chunk.input(0)?, chunk.output_shared(out)?);
        let (count, _) = volumes.units(COLUMNS);
        if units.end > count || input.len() < outer * reduced * inner || out.len() < outer * inner {
            return Err(Error::internal("a reduction would leave its tensors"));
        }
        Ok(FoldTask { fold, volumes, units, input, out })
    }
}

impl<F: FoldUnits<T, O>, T: Element, O: Element> SimdTask for FoldTask<'_, F, T, O> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Volumes { reduced, inner, .. } = self.volumes;
        let (input, out) = (self.input.as_ptr(), self.out.as_ptr());
        let blocks = inner.div_ceil(COLUMNS);
        for unit in self.units.clone() {
            // SAFETY: `new` found every unit inside both tensors; `bind` refused folds that need elements and have none. The
            // frame gives a unit to one chunk, so no other thread writes its results.
            unsafe {
                if inner == 1 {
                    *out.add(unit) = self.fold.row(s, input.add(unit * reduced), reduced);
                    continue;
                }
                let (outer, first) = (unit / blocks, unit % blocks * COLUMNS);
                let (x, y) = (input.add(outer * reduced * inner + first), out.add(outer * inner + first));
                self.fold.columns(s, x, y, self.volumes, COLUMNS.min(inner - first));
            }
        }
    }
}
