//! upsample_linear1d on row-major floats. Where an output reads, and with which weights, is found when the call is bound and
//! used for every row. A row is resampled in blocks: the two neighbours of each output are copied side by side, and
//! then summed in a loop that the compiler vectorises.
//!
//! Halves are computed in f32 and rounded once. No product is fused with a sum: the bytes are equal for every
//! instruction set.

use super::{Axis, axes, bind, weighted_form};
use crate::chunk::CHUNK;
use crate::compute::Compute;
use crate::elementwise::operand::{Half, convert};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::memory_reserve::{out_of_memory, try_with_capacity};
use pteron_core::{BindArgs, DType, Element, Error, PrepareContext, Result, Scratch, TensorSpec};
use std::marker::PhantomData;

/// Outputs whose neighbours are copied at a time.
const BLOCK: usize = 64;

/// Most elements of a row; the plain kernel takes longer ones.
const LONGEST_ROW: usize = 1 << 20;

/// Where the outputs of a row read.
#[derive(Default)]
struct Columns<T> {
    /// The first of two neighbours.
    firsts: Vec<u32>,
    /// Weights of the second, from 0 to 1.
    parts: Vec<T>,
    /// Outputs whose second neighbour is the next element; those behind them read the last element twice.
    inner: usize,
}

impl<T: Compute> Columns<T> {
    /// A table without room where memory cannot be had: `fill` says so.
    fn with_room(n: usize) -> Columns<T> {
        let firsts = try_with_capacity(n).unwrap_or_default();
        Columns { firsts, parts: try_with_capacity(n).unwrap_or_default(), inner: 0 }
    }

    /// Fills the table without allocating.
    ///
    /// Errors: the row is longer than its upper bound.
    fn fill(&mut self, axis: Axis) -> Result<()> {
        let count = axis.output as usize;
        let room = self.firsts.capacity().min(self.parts.capacity());
        if count > room && room == 0 {
            return Err(out_of_memory("a table of the weights of a resampling"));
        }
        if count > room {
            return Err(Error::kernel("an output is larger than the upper bound of its extents allows")
                .got(count.to_string())
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        self.firsts.clear();
        self.parts.clear();
        self.inner = 0;
        for o in 0..axis.output {
            let [(first, _), (second, part), ..] = axis.linear(o).taps;
            self.firsts.push(first as u32);
            self.parts.push(T::from_f64(part));
            // Positions never fall.
            if second > first {
                self.inner = self.firsts.len();
            }
        }
        Ok(())
    }
}

/// Resamples one row, all of a type that sums are computed in.
struct Spread<'a, T> {
    columns: &'a Columns<T>,
    row: &'a [T],
    out: &'a mut [T],
}

/// `a (1 - part) + b part`, as the plain kernel sums: from zero on.
#[inline(always)]
fn between<T: Compute>([a, b]: [T; 2], part: T) -> T {
    let rest = T::ONE.plus(part.times(T::from_f64(-1.0)));
    T::ZERO.plus(a.times(rest)).plus(b.times(part))
}

impl<T: Compute> SimdTask for Spread<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Columns { firsts, parts, inner } = self.columns;
        let (firsts, last) = (firsts.split_at(*inner).0, self.row.last().copied().unwrap_or(T::ZERO));
        let (out, edge) = self.out.split_at_mut(*inner);
        let (parts, edge_parts) = parts.split_at(*inner);
        let mut pairs = [[T::ZERO; 2]; BLOCK];
        for ((firsts, parts), out) in firsts.chunks(BLOCK).zip(parts.chunks(BLOCK)).zip(out.chunks_mut(BLOCK))
        {
            for (pair, first) in pairs.iter_mut().zip(firsts) {
                let first = *first as usize;
                if let Some([a, b]) = self.row.get(first..first + 2) {
                    *pair = [*a, *b];
                }
            }
            for ((slot, pair), part) in out.iter_mut().zip(&pairs).zip(parts) {
                *slot = between(*pair, *part);
            }
        }
        for (slot, part) in edge.iter_mut().zip(edge_parts) {
            *slot = between([last; 2], *part);
        }
    }
}

/// An element that signals are of.
trait Signal: Element {
    /// What sums are computed in.
    type Sum: Compute + Element;
    /// Are rows converted? Then the buffers have room for an input row and an output row.
    const IS_HALF: bool = false;

    /// Resamples a row.
    fn spread(
        level: SimdLevel,
        columns: &Columns<Self::Sum>,
        row: &[Self],
        out: &mut [Self],
        buffers: &mut [&mut [Self::Sum]; 2],
    );
}

macro_rules! signal {
    ($($t:ty),*) => { $(
        impl Signal for $t {
            type Sum = $t;
            fn spread(level: SimdLevel, columns: &Columns<$t>, row: &[$t], out: &mut [$t], _: &mut [&mut [$t]; 2]) {
                level.dispatch_narrow(Spread { columns, row, out });
            }
        }
    )* };
}
signal!(f32, f64);

fn spread_halves<A: Half>(
    level: SimdLevel,
    columns: &Columns<f32>,
    (row, out): (&[A], &mut [A]),
    [wide, sums]: &mut [&mut [f32]; 2],
) {
    convert(level, row, wide);
    level.dispatch_narrow(Spread { columns, row: wide, out: sums });
    convert(level, sums, out);
}

macro_rules! half_signal {
    ($($t:ty),*) => { $(
        impl Signal for $t {
            type Sum = f32;
            const IS_HALF: bool = true;
            fn spread(level: SimdLevel, columns: &Columns<f32>, row: &[$t], out: &mut [$t], buffers: &mut [&mut [f32]; 2]) {
                spread_halves(level, columns, (row, out), buffers);
            }
        }
    )* };
}
half_signal!(f16, bf16);

struct LinearRows<A> {
    level: SimdLevel,
    /// Elements of an input and of an output row at most.
    longest: [usize; 2],
    element: PhantomData<A>,
}

/// A bound call. Units are rows.
#[derive(Default)]
struct Problem<T> {
    /// Elements of an input and of an output row.
    lengths: [usize; 2],
    columns: Columns<T>,
}

/// The kernel for floats, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(x), Some(y)) = (ctx.tensor(0), ctx.tensor(weighted_form(1).out)) else {
        return ctx.decline("takes tensors");
    };
    let is_taken = |t: &TensorSpec| t.shape.len() == 3 && t.dtype == x.dtype && t.dim_order.is_contiguous();
    if !(is_taken(x) && is_taken(y)) {
        return ctx.decline("takes row-major signals of one dtype");
    }
    let longest = [x.shape[2], y.shape[2]];
    if longest.iter().any(|n| *n > LONGEST_ROW) {
        return ctx.decline("rows are longer than 1,048,576 elements");
    }
    match x.dtype {
        DType::Float32 => LinearRows::<f32>::framed(ctx, longest),
        DType::Float64 => LinearRows::<f64>::framed(ctx, longest),
        DType::Float16 => LinearRows::<f16>::framed(ctx, longest),
        DType::BFloat16 => LinearRows::<bf16>::framed(ctx, longest),
        _ => ctx.decline("takes floats"),
    }
}

impl<A: Signal> LinearRows<A>
where
    A::Sum: Default,
{
    fn framed(ctx: &PrepareContext<'_>, longest: [usize; 2]) -> Preparation {
        let level = SimdLevel::at_most(ctx.cpu.isa);
        let name = format!("upsample_linear1d.{}.{}", A::DTYPE.name(), level.isa().name());
        framed(name, LinearRows::<A> { level, longest, element: PhantomData })
    }
}

impl<A: Signal> UnitKernel for LinearRows<A> {
    type Problem = Problem<A::Sum>;

    fn new_problem(&self) -> Problem<A::Sum> {
        Problem { columns: Columns::with_room(self.longest[1]), lengths: [0; 2] }
    }

    fn scratch(&self) -> Scratch {
        // `prepare` has bounded the rows.
        let elements = if A::IS_HALF { self.longest[0] + self.longest[1] } else { 0 };
        Scratch { per_worker: elements * size_of::<A::Sum>(), shared: 0 }
    }

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem<A::Sum>) -> Result<Split> {
        bind::<1>(args, weighted_form(1))?;
        let view = args.args();
        let [.., wide] = axes::<1>(&view, weighted_form(1))?;
        problem.columns.fill(wide)?;
        problem.lengths = [wide.input as usize, wide.output as usize];
        let shape = view.tensor(0)?.shape();
        Ok(Split::sized(shape[0] * shape[1], problem.lengths[1], CHUNK, 1.0))
    }

    fn run(&self, problem: &Problem<A::Sum>, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let [from, to] = problem.lengths;
        let input = chunk.input_units::<A>(0, from)?.as_slice()?;
        let out = chunk.output_units::<A>(weighted_form(1).out, to)?.into_slice()?;
        let mut buffers: [&mut [A::Sum]; 2] = match A::IS_HALF {
            true => [chunk.take_scratch(from)?, chunk.take_scratch(to)?],
            false => [&mut [], &mut []],
        };
        for (row, out) in input.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
            A::spread(self.level, &problem.columns, row, out, &mut buffers);
        }
        Ok(())
    }
}
