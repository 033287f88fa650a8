//! Fast reductions over neighbouring dimensions, which make one result of many elements of `outer × reduced × inner`: what the
//! kernels for floats and those for other dtypes have in common. Unsafe island (vector loads).
//!
//! A unit of work is a row when the innermost dimension is reduced, else a block of neighbouring columns. Few long rows are
//! cut into parts of one length, whatever the number of threads; their states are joined in order when all are there.

use super::shape::{DimsArg, ReducedDims, Volumes};
use crate::chunk::{CHUNK, ChunkOf, ChunkOfMut};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{BindArgs, Element, Error, PrepareContext, Result, Scratch};
use std::ops::Range;

/// Columns that one unit reduces together at most: a KiB of every row and more, which memory is quick to bring.
pub const COLUMNS: usize = 256;
/// As many at least, if there are so many, where there would be few units for the threads.
const LEAST_COLUMNS: usize = 64;
/// Units that wide rows are cut into at least.
const UNITS: usize = 16;
/// Elements of a part of a long row. Sums are made of blocks that divide it.
const PART: usize = 64 << 10;
/// So many rows are enough for all threads and stay whole.
const MANY_ROWS: usize = 64;

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

    /// Bytes of [`FoldUnits::State`].
    fn state_size(&self) -> usize;

    /// Computes a chunk: hands what combines the elements to [`Call::compute`].
    fn run(&self, call: Call, chunk: &mut Chunk<'_, '_>) -> Result<()>;
}

/// The outputs of a fold.
#[derive(Debug, Clone, Copy)]
pub struct Outputs {
    /// For the results of [`FoldUnits::finish`].
    pub first: usize,
    /// For those of [`FoldUnits::second`], of the same dtype.
    pub second: Option<usize>,
}

/// How a bound call is cut into units.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cut {
    volumes: Volumes,
    /// Parts of a row.
    parts: usize,
    /// Columns of a unit.
    columns: usize,
}

impl Cut {
    /// `states` are those that there is room for.
    fn of(volumes: Volumes, states: usize) -> Cut {
        let columns = (volumes.inner / UNITS).next_multiple_of(LEAST_COLUMNS).clamp(LEAST_COLUMNS, COLUMNS);
        let parts = volumes.reduced.div_ceil(PART);
        let is_long = volumes.inner == 1 && volumes.outer < MANY_ROWS && parts > 1;
        let has_room = volumes.outer.checked_mul(parts).is_some_and(|n| n <= states);
        Cut { volumes, parts: if is_long && has_room { parts } else { 1 }, columns }
    }

    /// States of the largest call that there may be.
    fn most_states(volumes: Volumes) -> usize {
        match volumes.reduced.div_ceil(PART) {
            0 | 1 => 0,
            parts => volumes.outer.min(MANY_ROWS).saturating_mul(parts),
        }
    }

    fn split(&self, ns_per_element: f64) -> Split {
        let Volumes { outer, reduced, .. } = self.volumes;
        if self.parts > 1 {
            let size = PART.min(reduced);
            return Split::sized(outer * self.parts, size, size, ns_per_element).then_join();
        }
        let (units, size) = self.volumes.units(self.columns);
        Split::sized(units, size, CHUNK, ns_per_element)
    }
}

struct FoldKernel<F> {
    dims: ReducedDims,
    outputs: Outputs,
    fold: F,
    states: usize,
}

/// The kernel of a fold, if the reduced dimensions are neighbours; the parts of its name.
pub fn fold_kernel<F: Fold>(
    ctx: &PrepareContext<'_>,
    outputs: Outputs,
    form: DimsArg,
    name: [&str; 3],
    fold: F,
) -> Preparation {
    let neighbours = |out: usize| ReducedDims::neighbours(ctx, out, form);
    match neighbours(outputs.first) {
        Some(dims) if outputs.second.is_none_or(|out| neighbours(out).is_some()) => {
            let states = Cut::most_states(dims.most(ctx));
            framed(name.join("."), FoldKernel { dims, outputs, fold, states })
        }
        _ => ctx.decline("takes reduced dimensions that are neighbours in memory"),
    }
}

impl<F: Fold> UnitKernel for FoldKernel<F> {
    type Problem = Cut;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 0, shared: self.states.saturating_mul(self.fold.state_size()) }
    }

    fn bind(&self, args: &mut BindArgs<'_>, cut: &mut Cut) -> Result<Split> {
        let volumes = self.dims.bind(args, self.outputs.first)?;
        if let Some(second) = self.outputs.second {
            self.dims.bind(args, second)?;
        }
        let outputs = volumes.outer * volumes.inner;
        if volumes.reduced == 0 && outputs > 0 && self.fold.needs_elements() {
            return Err(Error::kernel("the largest or smallest of no elements is not defined")
                .expected("a non-zero extent in every reduced dimension")
                .got(args.args().tensor(0)?.shape().to_string()));
        }
        *cut = Cut::of(volumes, self.states);
        Ok(if outputs == 0 { Split::NONE } else { cut.split(F::NS_PER_ELEMENT) })
    }

    fn run(&self, cut: &Cut, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.fold.run(Call { cut: *cut, outputs: self.outputs, is_join: false }, chunk)
    }

    fn join(&self, cut: &Cut, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.fold.run(Call { cut: *cut, outputs: self.outputs, is_join: true }, chunk)
    }
}

/// How the elements of a unit are combined on one instruction set.
pub trait FoldUnits<T, O> {
    /// What is known of some neighbours of a row.
    type State: bytemuck::Pod;

    /// The state of `n` neighbours.
    ///
    /// # Safety
    /// `n` elements behind `x`; at least one where the fold needs elements.
    unsafe fn part<S: Simd>(&self, s: S, x: *const T, n: usize) -> Self::State;

    /// The state of the elements of both; none is empty.
    fn join(&self, a: Self::State, b: Self::State) -> Self::State;

    /// The result of `n` elements.
    fn finish(&self, state: Self::State, n: usize) -> O;

    /// The second result, of folds that have one.
    fn second(&self, _state: Self::State) -> Option<O> {
        None
    }

    /// The results of `n ≤ COLUMNS` neighbouring columns; the second ones, if the call has them, behind the second pointer,
    /// which is null else.
    ///
    /// # Safety
    /// `n` elements of each of `volumes.reduced` rows, `volumes.inner` apart, behind `x`, and `n` elements behind `y`; at
    /// least one row where the fold needs elements.
    unsafe fn columns<S: Simd>(&self, s: S, x: *const T, y: [*mut O; 2], volumes: Volumes, n: usize);
}

/// A chunk of a bound call, and what there is to do with it.
#[derive(Clone, Copy)]
pub struct Call {
    cut: Cut,
    outputs: Outputs,
    is_join: bool,
}

impl Call {
    /// Computes the chunk; `dispatch` runs the task on an instruction set.
    ///
    /// Errors: the tensors have other dtypes or fewer elements.
    pub fn compute<'a, 's, F: FoldUnits<T, O>, T: Element, O: Element>(
        self,
        fold: F,
        chunk: &mut Chunk<'a, 's>,
        dispatch: impl FnOnce(FoldTask<'a, 's, F, T, O>),
    ) -> Result<()> {
        let Call { cut: Cut { volumes, parts, columns }, outputs, is_join } = self;
        let Volumes { outer, reduced, inner } = volumes;
        if is_join {
            return self.join(&fold, chunk);
        }
        let units = chunk.units.clone();
        let states = if parts > 1 { Some(chunk.shared_units::<F::State>(1)?) } else { None };
        let (input, out) = (chunk.input(0)?, chunk.output_shared(outputs.first)?);
        let second = outputs.second.map(|second| chunk.output_shared::<O>(second)).transpose()?;
        let count = if parts > 1 { outer * parts } else { volumes.units(columns).0 };
        let has_room = |out: &ChunkOfMut<'_, O>| out.len() >= outer * inner;
        let has_all = has_room(&out) && second.as_ref().is_none_or(has_room);
        if units.end > count || input.len() < outer * reduced * inner || !has_all {
            return Err(Error::internal("a reduction would leave its tensors"));
        }
        dispatch(FoldTask { fold, cut: self.cut, units, input, out, second, states });
        Ok(())
    }

    /// Makes the results of long rows of the states of their parts.
    fn join<F: FoldUnits<T, O>, T, O: Element>(self, fold: &F, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let Call { cut: Cut { volumes: Volumes { outer, reduced, .. }, parts, .. }, outputs, .. } = self;
        let states = chunk.shared_units::<F::State>(1)?;
        let out = chunk.output_part::<O>(outputs.first, 0..outer)?.into_slice()?;
        let second = match outputs.second {
            Some(second) => chunk.output_part::<O>(second, 0..outer)?.into_slice()?,
            None => &mut [],
        };
        for (row, (states, out)) in states.chunks(parts.max(1)).zip(out).enumerate() {
            let Some((first, rest)) = states.split_first() else { continue };
            let total = rest.iter().fold(*first, |total, state| fold.join(total, *state));
            *out = fold.finish(total, reduced);
            if let (Some(slot), Some(result)) = (second.get_mut(row), fold.second(total)) {
                *slot = result;
            }
        }
        Ok(())
    }
}

/// The units of a chunk.
pub struct FoldTask<'a, 's, F: FoldUnits<T, O>, T, O> {
    fold: F,
    cut: Cut,
    units: Range<usize>,
    input: ChunkOf<'a, T>,
    out: ChunkOfMut<'a, O>,
    second: Option<ChunkOfMut<'a, O>>,
    /// For the states of the units, which are parts of rows then.
    states: Option<&'s mut [F::State]>,
}

impl<F: FoldUnits<T, O>, T: Element, O: Element> SimdTask for FoldTask<'_, '_, F, T, O> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Cut { volumes, parts, columns } = self.cut;
        let Volumes { reduced, inner, .. } = volumes;
        let (input, out) = (self.input.as_ptr(), self.out.as_ptr());
        let second = self.second.as_ref().map_or(std::ptr::null_mut(), |second| second.as_ptr());
        let blocks = inner.div_ceil(columns);
        for (i, unit) in self.units.clone().enumerate() {
            // SAFETY: `compute` found every unit inside the tensors; `bind` refused folds that need elements and have none. The
            // frame gives a unit to one chunk, so no other thread writes its results.
            unsafe {
                if inner == 1 {
                    let (row, start) =
                        if parts > 1 { (unit / parts, unit % parts * PART) } else { (unit, 0) };
                    let n = if parts > 1 { PART.min(reduced - start) } else { reduced };
                    let state = self.fold.part(s, input.add(row * reduced + start), n);
                    if let Some(states) = &mut self.states {
                        if let Some(slot) = states.get_mut(i) {
                            *slot = state;
                        }
                        continue;
                    }
                    *out.add(row) = self.fold.finish(state, reduced);
                    if !second.is_null()
                        && let Some(result) = self.fold.second(state)
                    {
                        *second.add(row) = result;
                    }
                    continue;
                }
                let (outer, first) = (unit / blocks, unit % blocks * columns);
                let at = outer * inner + first;
                let second = if second.is_null() { second } else { second.add(at) };
                let x = input.add(outer * reduced * inner + first);
                self.fold.columns(s, x, [out.add(at), second], volumes, columns.min(inner - first));
            }
        }
    }
}
