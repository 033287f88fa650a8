//! Distances of row-major float32 and float64: a row and several others at a time, eight features beside each other. Every
//! distance is a unit of its own, whose sums have one order whatever chunk it is in and whatever instructions there are.
//!
//! float32 is summed in float32, stretch by stretch, where that neither overflows nor loses digits to underflow. Distances
//! where it does, and those with a power that needs a function, are computed in float64.

use super::{bind_cdist, bind_pdist, cdist_extents, exponent};
use crate::chunk::CHUNK;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::strided::loops::{Walk, broadcast_strides};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Dims, Element, Isa, PrepareContext, Result, TensorMeta};
use std::marker::PhantomData;
use std::ops::{Add, Mul, Range, Sub};

/// Features that are computed beside each other.
const LANES: usize = 8;
/// Features whose sums are those of the float; float64 adds them up.
const STRETCH: usize = 1024;
/// Rows that a row is compared with at a time.
const ROWS: usize = 4;

/// The rows of a call.
#[derive(Default)]
struct Tables {
    /// Rows with all rows behind them, of one table; otherwise with all rows of another.
    is_triangle: bool,
    /// Where the tables of a batch begin.
    starts: Option<[Walk; 2]>,
    rows: usize,
    others: usize,
    /// Features.
    len: usize,
}

impl Tables {
    /// The first pair of row `i` of a triangle.
    fn first_of(&self, i: usize) -> usize {
        i * (2 * self.rows - i - 1) / 2
    }

    /// Where the row of pair `position` begins, where the other row, and how many pairs of this row there are from it on.
    fn pairs_from(&self, position: usize) -> (usize, usize, usize) {
        if self.is_triangle {
            let (mut low, mut high) = (0, self.rows - 1);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if self.first_of(middle) <= position { low = middle } else { high = middle }
            }
            let other = low + 1 + position - self.first_of(low);
            return (low * self.len, other * self.len, self.rows - other);
        }
        let (row, other) = (position / self.others, position % self.others);
        let start = |k: usize| self.starts.as_ref().map_or(0, |s| s[k].offset(row / self.rows) as usize);
        (start(0) + row % self.rows * self.len, start(1) + other * self.len, self.others - other)
    }
}

struct Distances<T> {
    level: SimdLevel,
    is_triangle: bool,
    element: PhantomData<T>,
}

/// The kernel of cdist, if it takes the call.
pub(super) fn prepare_cdist(ctx: &PrepareContext<'_>) -> Preparation {
    prepare(ctx, &[0, 1, 4], false)
}

/// The kernel of pdist, if it takes the call.
pub(super) fn prepare_pdist(ctx: &PrepareContext<'_>) -> Preparation {
    prepare(ctx, &[0, 2], true)
}

fn prepare(ctx: &PrepareContext<'_>, tensors: &[usize], is_triangle: bool) -> Preparation {
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_alike =
        |i: &usize| ctx.tensor(*i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous());
    if !tensors.iter().all(is_alike) {
        return ctx.decline("takes row-major tensors of one dtype");
    }
    match dtype {
        DType::Float32 => of::<f32>(ctx, is_triangle),
        DType::Float64 => of::<f64>(ctx, is_triangle),
        _ => ctx.decline("takes float32 and float64"),
    }
}

fn of<T: Feature>(ctx: &PrepareContext<'_>, is_triangle: bool) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa.min(Isa::Avx2));
    let name = format!("distances.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Distances::<T> { level, is_triangle, element: PhantomData })
}

impl<T: Feature> Distances<T> {
    /// Where the exponent stands.
    fn exponent(&self, args: &Args<'_>) -> Result<f64> {
        exponent(args, if self.is_triangle { 1 } else { 2 })
    }
}

/// Where the tables of each item of a batch begin.
fn starts(batch: &Dims, meta: &TensorMeta) -> Result<Walk> {
    let rank = meta.rank().saturating_sub(2);
    let outer = |all: &[usize]| Dims::new(all.get(..rank).unwrap_or_default());
    let (extents, strides) = (outer(meta.shape())?, outer(meta.strides())?);
    Ok(Walk::row_major(batch, &broadcast_strides(&extents, &strides, batch.len())))
}

impl<T: Feature> UnitKernel for Distances<T> {
    type Problem = Tables;

    fn bind(&self, args: &mut BindArgs<'_>, tables: &mut Tables) -> Result<Split> {
        let p = self.exponent(&args.args())?;
        if self.is_triangle {
            bind_pdist(args)?;
            let shape = *args.args().tensor(0)?.shape();
            let (rows, len) = (shape.first().copied().unwrap_or(0), shape.get(1).copied().unwrap_or(0));
            *tables = Tables { is_triangle: true, starts: None, rows, others: rows, len };
        } else {
            bind_cdist(args)?;
            let view = args.args();
            let (batch, rows, others, len) = cdist_extents(&view)?;
            let starts = [starts(&batch, view.tensor(0)?.meta())?, starts(&batch, view.tensor(1)?.meta())?];
            *tables = Tables { is_triangle: false, starts: Some(starts), rows, others, len };
        }
        let pairs = args.args().output(if self.is_triangle { 2 } else { 4 })?.numel();
        let cost = if [0.0, 1.0, 2.0, f64::INFINITY].contains(&p) { 0.2 } else { 20.0 };
        Ok(Split::sized(pairs, tables.len.max(LANES), 4 * CHUNK, cost))
    }

    fn run(&self, tables: &Tables, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let p = self.exponent(chunk.args())?;
        let pairs = chunk.units.clone();
        let first = chunk.input::<T>(0)?.as_slice()?;
        let second = if self.is_triangle { first } else { chunk.input::<T>(1)?.as_slice()? };
        let out = chunk.output_units(if self.is_triangle { 2 } else { 4 }, 1)?.into_slice()?;
        self.level.dispatch_narrow(PairsTask { p, tables, pairs, first, second, out });
        Ok(())
    }
}

/// A number that is computed with.
trait Real: Copy + PartialOrd + Into<f64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    const ZERO: Self;
    const ONE: Self;
    fn size(self) -> Self;
    fn is_nan(self) -> bool;
}

/// An element.
trait Feature: Element + Real {
    /// Is a sum of terms, some of them squares, as good as that of float64?
    fn is_near(sum: f64) -> bool;
    fn of_double(v: f64) -> Self;
}

macro_rules! real {
    ($($t:ty, |$sum:ident| $near:expr;)*) => { $(
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            #[inline(always)]
            fn size(self) -> $t { self.abs() }
            #[inline(always)]
            fn is_nan(self) -> bool { <$t>::is_nan(self) }
        }
        impl Feature for $t {
            #[inline(always)]
            fn is_near($sum: f64) -> bool { $near }
            #[inline(always)]
            fn of_double(v: f64) -> $t { v as $t }
        }
    )* };
}
real! {
    // Squares that underflow lose less than 1e-44, far below the last place of these sums.
    f32, |sum| (sum > 1e-30) & (sum < f64::INFINITY);
    f64, |_sum| true;
}

/// What a difference adds to a distance. A trait and not closures, which need not be compiled for the instruction set of
/// their caller.
trait Norm: Copy {
    /// Joins the size of a difference to those before it.
    fn join<W: Real>(self, sum: W, size: W) -> W;
    /// Joins two sums.
    #[inline(always)]
    fn merge<W: Real>(self, a: W, b: W) -> W {
        a + b
    }
    /// The distance of all that was joined.
    #[inline(always)]
    fn root(self, sum: f64) -> f64 {
        sum
    }
}

/// How many features differ.
#[derive(Clone, Copy)]
struct Differing;
/// The sum of differences.
#[derive(Clone, Copy)]
struct Absolute;
/// The root of the sum of squares.
#[derive(Clone, Copy)]
struct Euclidean;
/// The largest difference.
#[derive(Clone, Copy)]
struct Largest;
/// The root of the sum of powers.
#[derive(Clone, Copy)]
struct Powers(f64);

impl Norm for Differing {
    #[inline(always)]
    fn join<W: Real>(self, sum: W, size: W) -> W {
        sum + if (size == W::ZERO) | size.is_nan() { size } else { W::ONE }
    }
}

impl Norm for Absolute {
    #[inline(always)]
    fn join<W: Real>(self, sum: W, size: W) -> W {
        sum + size
    }
}

impl Norm for Euclidean {
    #[inline(always)]
    fn join<W: Real>(self, sum: W, size: W) -> W {
        sum + size * size
    }
    #[inline(always)]
    fn root(self, sum: f64) -> f64 {
        sum.sqrt()
    }
}

impl Norm for Largest {
    #[inline(always)]
    fn join<W: Real>(self, sum: W, size: W) -> W {
        if (size > sum) | size.is_nan() { size } else { sum }
    }
    #[inline(always)]
    fn merge<W: Real>(self, a: W, b: W) -> W {
        self.join(a, b)
    }
}

/// Pairs of a chunk.
struct PairsTask<'a, T> {
    p: f64,
    tables: &'a Tables,
    pairs: Range<usize>,
    first: &'a [T],
    second: &'a [T],
    out: &'a mut [T],
}

impl<T: Feature> SimdTask for PairsTask<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let len = self.tables.len;
        let (mut at, mut out) = (self.pairs.start, self.out);
        while !out.is_empty() {
            let (row, other, count) = self.tables.pairs_from(at);
            let count = count.min(out.len());
            let (part, rest) = out.split_at_mut(count);
            let row = self.first.get(row..row + len).unwrap_or_default();
            let others = self.second.get(other..other + count * len).unwrap_or_default();
            match self.p {
                _ if len == 0 => part.fill(T::ZERO),
                0.0 => distances(Differing, row, others, part),
                1.0 => distances(Absolute, row, others, part),
                2.0 => distances(Euclidean, row, others, part),
                f64::INFINITY => distances(Largest, row, others, part),
                p => powers(Powers(p), row, others, part),
            }
            (at, out) = (at + count, rest);
        }
    }
}

/// The distances of a row from others, which lie one behind the other.
#[inline(always)]
fn distances<N: Norm, T: Feature>(norm: N, row: &[T], others: &[T], out: &mut [T]) {
    for (others, out) in others.chunks(ROWS * row.len()).zip(out.chunks_mut(ROWS)) {
        let mut rows = [row; ROWS];
        rows.iter_mut().zip(others.chunks_exact(row.len())).for_each(|(slot, other)| *slot = other);
        let sums = sums::<N, T, T, ROWS>(norm, row, rows);
        let mut lengths = [0.0; ROWS];
        for (length, sum) in lengths.iter_mut().zip(sums) {
            *length = norm.root(sum);
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = T::of_double(lengths[i]);
            if !T::is_near(sums[i]) {
                *out = far(norm, row, rows[i]);
            }
        }
    }
}

/// A distance that the element's float has no place for.
#[cold]
#[inline(never)]
fn far<N: Norm, T: Feature>(norm: N, row: &[T], other: &[T]) -> T {
    let [sum] = sums::<N, T, f64, 1>(norm, row, [other]);
    T::of_double(norm.root(sum))
}

/// The same with a power that a function computes.
fn powers<T: Feature>(norm: Powers, row: &[T], others: &[T], out: &mut [T]) {
    for (other, out) in others.chunks_exact(row.len()).zip(out) {
        let mut sums = [0.0; LANES];
        for (i, (a, b)) in row.iter().zip(other).enumerate() {
            let (a, b): (f64, f64) = ((*a).into(), (*b).into());
            sums[i % LANES] += (a - b).abs().powf(norm.0);
        }
        *out = T::of_double(merged(Absolute, sums).powf(1.0 / norm.0));
    }
}

/// What the differences of a row to each of others join to, computed in `W`.
#[inline(always)]
fn sums<N: Norm, T: Element + Into<W>, W: Real, const J: usize>(
    norm: N,
    row: &[T],
    others: [&[T]; J],
) -> [f64; J] {
    let mut totals = [0.0; J];
    for at in (0..row.len()).step_by(STRETCH) {
        let end = row.len().min(at + STRETCH);
        let (groups, tail) = row[at..end].as_chunks::<LANES>();
        let others = others.map(|other| other.get(at..end).unwrap_or_default().as_chunks::<LANES>());
        let mut lanes = [[W::ZERO; LANES]; J];
        for (k, group) in groups.iter().enumerate() {
            for j in 0..J {
                if let Some(other) = others[j].0.get(k) {
                    lanes[j] = joined(norm, lanes[j], group, other);
                }
            }
        }
        if !tail.is_empty() {
            for j in 0..J {
                // Lanes without a feature have no difference.
                let (mut group, mut other) = ([T::zeroed(); LANES], [T::zeroed(); LANES]);
                group.iter_mut().zip(tail).for_each(|(slot, v)| *slot = *v);
                other.iter_mut().zip(others[j].1).for_each(|(slot, v)| *slot = *v);
                lanes[j] = joined(norm, lanes[j], &group, &other);
            }
        }
        for j in 0..J {
            totals[j] = norm.merge(totals[j], merged(norm, lanes[j]).into());
        }
    }
    totals
}

/// A group of features joins those before it.
#[inline(always)]
fn joined<N: Norm, T: Element + Into<W>, W: Real>(
    norm: N,
    mut lanes: [W; LANES],
    group: &[T; LANES],
    other: &[T; LANES],
) -> [W; LANES] {
    for l in 0..LANES {
        lanes[l] = norm.join(lanes[l], (group[l].into() - other[l].into()).size());
    }
    lanes
}

/// Lanes join by halves.
#[inline(always)]
fn merged<N: Norm, W: Real>(norm: N, lanes: [W; LANES]) -> W {
    let four: [W; 4] = std::array::from_fn(|l| norm.merge(lanes[l], lanes[l + 4]));
    let two = [norm.merge(four[0], four[2]), norm.merge(four[1], four[3])];
    norm.merge(two[0], two[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};

    fn call<T: Element>(
        variant: &str,
        isa: Isa,
        tables: &[(&[usize], &[T])],
        p: f64,
        out: &[usize],
    ) -> Option<Result<Vec<T>>> {
        let tensor = |(shape, x): &(&[usize], &[T])| CallArg::Tensor(HostTensor::new(shape, x).unwrap());
        let mut args: Vec<CallArg> = tables.iter().map(tensor).collect();
        args.push(CallArg::double(p));
        let operator = if args.len() == 2 { "aten::_pdist_forward.out" } else { "aten::_cdist_forward.out" };
        args.extend((args.len() == 3).then_some(CallArg::None));
        args.push(CallArg::Tensor(HostTensor::zeros(T::DTYPE, out).unwrap()));
        let last = args.len() - 1;
        let mut call = SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
        Some(call.call().and_then(|()| call.output::<T>(last)))
    }

    const EXPONENTS: [f64; 6] = [0.0, 1.0, 2.0, 3.5, 0.5, f64::INFINITY];

    fn check<T: Feature>(tables: &[(&[usize], &[T])], out: &[usize], tolerance: f64) {
        for p in EXPONENTS {
            let want = call("reference", Isa::Portable, tables, p, out).unwrap().unwrap();
            for isa in Isa::ALL {
                let Some(got) = call("rows", isa, tables, p, out) else { continue };
                for (i, (got, want)) in got.unwrap().iter().zip(&want).enumerate() {
                    let (got, want): (f64, f64) = ((*got).into(), (*want).into());
                    let is_near = got == want || (got - want).abs() <= tolerance * want.abs();
                    assert!(
                        is_near || (got.is_nan() && want.is_nan()),
                        "{:?} {isa:?} {p} {i}: {got} instead of {want}",
                        T::DTYPE
                    );
                }
            }
        }
    }

    /// Rows at distances that a float has no squares for, equal rows, infinite ones, and NaN.
    fn table<T>(rows: usize, len: usize, seed: u64, of: impl Fn(f64) -> T) -> Vec<T> {
        let mut x: Vec<f64> = numbers(rows * len, seed).iter().map(|v| f64::from(*v)).collect();
        for (row, x) in x.chunks_mut(len.max(1)).enumerate() {
            match row {
                0 | 1 => x.iter_mut().for_each(|v| *v *= 1e-30),
                2 | 3 => x.iter_mut().for_each(|v| *v *= 2e25),
                5 => x[len / 2] = f64::INFINITY,
                6 => x[len - 1] = f64::NAN,
                8 | 9 => x.fill(0.75),
                _ => {}
            }
        }
        x.into_iter().map(of).collect()
    }

    fn check_shapes<T: Feature>(of: impl Fn(f64) -> T + Copy, tolerance: f64) {
        for (rows, len) in [(11, 5), (13, 32), (3, 8), (10, 1), (2, 2100), (1, 4), (0, 4), (4, 0)] {
            let x = table(rows, len, 7, of);
            check(&[(&[rows, len], &x)], &[rows * rows.saturating_sub(1) / 2], tolerance);
        }
        for (a, b, len) in [(11, 12, 5), (2, 9, 33), (1, 70, 16), (4, 0, 3), (0, 3, 3), (3, 2, 0)] {
            let (x, y) = (table(a, len, 3, of), table(b, len, 4, of));
            check(&[(&[a, len], &x), (&[b, len], &y)], &[a, b], tolerance);
        }
        // One table for all of a batch, and two for each.
        let (x, y) = (table(10, 9, 5, of), table(12, 9, 6, of));
        check(&[(&[10, 9], &x), (&[4, 3, 9], &y)], &[4, 10, 3], tolerance);
        check(&[(&[1, 2, 5, 9], &x), (&[4, 1, 3, 9], &y)], &[4, 2, 5, 3], tolerance);
    }

    #[test]
    fn distances_are_those_of_the_plain_kernel() {
        check_shapes(|v| v, 1e-14);
        check_shapes(|v| v as f32, 1e-6);
    }

    #[test]
    fn negative_exponents_are_refused_even_where_nothing_is_computed() {
        for rows in [0, 3] {
            let x = vec![1f32; rows * 2];
            let got = call("rows", Isa::Portable, &[(&[rows, 2], &x)], -1.0, &[rows]).unwrap();
            assert!(got.unwrap_err().to_string().contains("negative"));
        }
    }
}
