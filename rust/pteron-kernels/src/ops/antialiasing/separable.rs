//! Antialiased resampling of row-major f32 and f64 images in two passes. The input rows that an output row reads are
//! summed first, along whole rows of memory, which the compiler vectorises; the sum is resampled along its length once.
//! The positions and weights of every output row and column are found when the call is bound.
//!
//! An output row is computed apart from all others, so the bytes are equal for every split into chunks. Neither pass
//! fuses a product with a sum: the bytes are equal for every instruction set, too.

use super::{Filter, Taps, weighted_form};
use crate::chunk::CHUNK;
use crate::compute::Compute;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::resampling::{Axis, axes, bind};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::memory_reserve::{out_of_memory, try_with_capacity};
use pteron_core::{ArgSpec, BindArgs, DType, Element, Error, PrepareContext, Result, Scratch, TensorSpec};
use std::marker::PhantomData;

/// Most weights of one dimension: 2 MiB of f64. The plain kernel takes calls that need more.
const MOST_WEIGHTS: usize = 1 << 18;

/// What one output reads along a dimension.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// The first input position.
    start: usize,
    /// Its weight's place in the table.
    weight: usize,
    count: usize,
}

/// Input positions and weights of all outputs along one dimension.
#[derive(Default)]
struct Table<T> {
    spans: Vec<Span>,
    weights: Vec<T>,
}

impl<T: Compute> Table<T> {
    /// A table without room where memory cannot be had: `fill` says so.
    fn with_room([spans, weights]: [usize; 2]) -> Table<T> {
        let spans = try_with_capacity(spans).unwrap_or_default();
        Table { spans, weights: try_with_capacity(weights).unwrap_or_default() }
    }

    /// Fills the table without allocating.
    ///
    /// Errors: no memory was had for it, or too little.
    fn fill(&mut self, axis: Axis, filter: Filter) -> Result<()> {
        self.spans.clear();
        self.weights.clear();
        for o in 0..axis.output {
            let taps = Taps::new(axis, o, filter);
            let weight = self.weights.len();
            let count = usize::try_from(taps.end - taps.start).unwrap_or(0);
            // An output beside the image, where a factor does not fit the extents, reads nothing.
            let start = if count == 0 { 0 } else { taps.start as usize };
            let has_room = self.spans.len() < self.spans.capacity()
                && count <= self.weights.capacity() - self.weights.len();
            if !has_room && self.spans.capacity().min(self.weights.capacity()) == 0 {
                return Err(out_of_memory("a table of the weights of a resampling"));
            }
            if !has_room {
                return Err(Error::internal("a table of weights has too little room for its extents"));
            }
            self.spans.push(Span { start, weight, count });
            self.weights.extend((taps.start..taps.end).map(|i| T::from_f64(taps.weight(i))));
        }
        Ok(())
    }

    /// The first input position of output `o`, and the weights from there on.
    #[inline(always)]
    fn get(&self, o: usize) -> (usize, &[T]) {
        let span = self.spans[o];
        (span.start, &self.weights[span.weight..span.weight + span.count])
    }
}

/// Room for the outputs and the weights of a dimension of at most these extents; `None` where it would be too much.
fn room(input: usize, output: usize, factor: &ArgSpec<'_>, filter: Filter) -> Option<[usize; 2]> {
    // An output reads the filter's reach on both sides, times the step where that is above one. Steps are at most twice the
    // extents' ratio, where corners are aligned; a factor says another step.
    let (input, outputs, reach) = (input as f64, output as f64, filter.reach);
    let by_factor = match factor {
        ArgSpec::None => 0.0,
        other => outputs / other.number()?,
    };
    let most = outputs * (2.0 * reach + 3.0) + (4.0 * reach * input).max(2.0 * reach * by_factor);
    let most = most.min(outputs * input);
    // NaN is too much.
    (most <= MOST_WEIGHTS as f64 && output <= MOST_WEIGHTS).then_some([output, most as usize + 1])
}

struct Separable<T> {
    level: SimdLevel,
    filter: Filter,
    /// Room for the tables of rows and of columns.
    rooms: [[usize; 2]; 2],
    /// Input columns at most.
    wide: usize,
    element: PhantomData<T>,
}

/// A bound call. Units are output rows of all planes.
#[derive(Default)]
struct Problem<T> {
    /// Height and width.
    input: [usize; 2],
    output: [usize; 2],
    rows: Table<T>,
    columns: Table<T>,
    /// Vertical and horizontal; none before the first call.
    axes: Option<[Axis; 2]>,
}

/// The kernel for f32 or f64, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>, filter: Filter) -> Preparation {
    let form = weighted_form(2);
    let (Some(x), Some(y)) = (ctx.tensor(0), ctx.tensor(form.out)) else {
        return ctx.decline("takes tensors");
    };
    let is_taken = |t: &TensorSpec| t.shape.len() == 4 && t.dtype == x.dtype && t.dim_order.is_contiguous();
    if !(is_taken(x) && is_taken(y)) {
        return ctx.decline("takes row-major images of one dtype");
    }
    let room_of = |d: usize| {
        room(x.shape[2 + d], y.shape[2 + d], ctx.args.get(form.factors + d).unwrap_or(&ArgSpec::None), filter)
    };
    let (Some(high), Some(wide)) = (room_of(0), room_of(1)) else {
        return ctx.decline("an extent is too large, or a factor is not known at load");
    };
    if x.shape[3] > MOST_WEIGHTS {
        return ctx.decline("rows are longer than 262,144 columns");
    }
    let (rooms, wide) = ([high, wide], x.shape[3]);
    match x.dtype {
        DType::Float32 => Separable::<f32>::framed(ctx, filter, rooms, wide),
        DType::Float64 => Separable::<f64>::framed(ctx, filter, rooms, wide),
        _ => ctx.decline("takes float32 and float64"),
    }
}

impl<T: Compute + Element> Separable<T> {
    fn framed(ctx: &PrepareContext<'_>, filter: Filter, rooms: [[usize; 2]; 2], wide: usize) -> Preparation {
        let level = SimdLevel::at_most(ctx.cpu.isa);
        let name = format!("antialiased.{}.{}", T::DTYPE.name(), level.isa().name());
        framed(name, Separable::<T> { level, filter, rooms, wide, element: PhantomData })
    }
}

impl<T: Compute + Element> UnitKernel for Separable<T> {
    type Problem = Problem<T>;

    fn new_problem(&self) -> Problem<T> {
        let [rows, columns] = self.rooms.map(Table::with_room);
        Problem { rows, columns, input: [0; 2], output: [0; 2], axes: None }
    }

    fn scratch(&self) -> Scratch {
        // `prepare` has bounded the width.
        Scratch { per_worker: self.wide * (size_of::<T>() + size_of::<f64>()), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem<T>) -> Result<Split> {
        bind::<2>(args, weighted_form(2))?;
        let view = args.args();
        let [_, high, wide] = axes::<2>(&view, weighted_form(2))?;
        problem.rows.fill(high, self.filter)?;
        problem.columns.fill(wide, self.filter)?;
        problem.axes = Some([high, wide]);
        problem.input = [high.input as usize, wide.input as usize];
        problem.output = [high.output as usize, wide.output as usize];
        let shape = view.tensor(0)?.shape();
        let [height, width] = problem.output;
        Ok(Split::sized(shape[0] * shape[1] * height, width, CHUNK, 3.0))
    }

    fn run(&self, problem: &Problem<T>, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let ([h, w], [height, width]) = (problem.input, problem.output);
        let input = chunk.input::<T>(0)?.as_slice()?;
        let out = chunk.output_units::<T>(weighted_form(2).out, width)?.into_slice()?;
        let planes = chunk.units.end.div_ceil(height);
        if input.len() < planes * h * w {
            return Err(Error::internal("a resampling would leave its tensors"));
        }
        let (first, exact_sums, sums) = (chunk.units.start, chunk.take_scratch(w)?, chunk.take_scratch(w)?);
        self.level.dispatch_narrow(Rows {
            problem,
            filter: self.filter,
            first,
            input,
            out,
            sums,
            exact_sums,
        });
        Ok(())
    }
}

/// The sum of products, from zero on. Few of them, as where an image grows, are summed without a loop.
#[inline(always)]
fn dot<T: Compute>(values: &[T], weights: &[T]) -> T {
    let all = |values: &[T], weights: &[T]| {
        let products = values.iter().zip(weights);
        products.fold(T::ZERO, |sum, (value, weight)| sum.plus(value.times(*weight)))
    };
    match (values, weights) {
        ([a, b], [u, v]) => all(&[*a, *b], &[*u, *v]),
        ([a, b, c], [u, v, w]) => all(&[*a, *b, *c], &[*u, *v, *w]),
        ([a, b, c, d], [u, v, w, x]) => all(&[*a, *b, *c, *d], &[*u, *v, *w, *x]),
        (values, weights) => all(values, weights),
    }
}

/// The units of a chunk from `first` on; the input has their planes.
struct Rows<'a, T> {
    problem: &'a Problem<T>,
    filter: Filter,
    first: usize,
    input: &'a [T],
    out: &'a mut [T],
    /// A sum of input rows.
    sums: &'a mut [T],
    /// The same in f64.
    exact_sums: &'a mut [f64],
}

impl<T: Compute> SimdTask for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let ([h, w], [height, width]) = (self.problem.input, self.problem.output);
        for (i, out) in self.out.chunks_exact_mut(width).enumerate() {
            let (plane, y) = ((self.first + i) / height, (self.first + i) % height);
            let (start, weights) = self.problem.rows.get(y);
            self.sums.fill(T::ZERO);
            for (row, weight) in self.input[(plane * h + start) * w..].chunks_exact(w).zip(weights) {
                for (sum, value) in self.sums.iter_mut().zip(row) {
                    *sum = sum.plus(value.times(*weight));
                }
            }
            let mut is_finite = true;
            for (x, slot) in out.iter_mut().enumerate() {
                let (start, weights) = self.problem.columns.get(x);
                *slot = dot(&self.sums[start..start + weights.len()], weights);
                is_finite &= slot.to_f64().is_finite();
            }
            if let Some(axes) = self.problem.axes
                && !is_finite
            {
                let plane = &self.input[plane * h * w..(plane + 1) * h * w];
                exact_row(axes, self.filter, y, plane, self.exact_sums, out);
            }
        }
    }
}

/// Output row `y` in f64, with weights that are not rounded: a sum of rows may leave the range of f32 where the whole sum
/// does not.
#[cold]
fn exact_row<T: Compute>(
    [high, wide]: [Axis; 2],
    filter: Filter,
    y: usize,
    plane: &[T],
    sums: &mut [f64],
    out: &mut [T],
) {
    let rows = Taps::new(high, y as i64, filter);
    sums.fill(0.0);
    for v in rows.start..rows.end {
        let weight = rows.weight(v);
        for (sum, value) in sums.iter_mut().zip(&plane[v as usize * wide.input as usize..]) {
            *sum += value.to_f64() * weight;
        }
    }
    for (x, slot) in (0..).zip(out) {
        let columns = Taps::new(wide, x, filter);
        let sum = (columns.start..columns.end).fold(0.0, |sum, u| sum + sums[u as usize] * columns.weight(u));
        *slot = T::from_f64(sum);
    }
}
