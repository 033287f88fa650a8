//! The exponential with the fewest products of matrices, block by block: even powers up to the sixth give both parts of the
//! numerator, of degree 13 for float64 and of degree 7 for float32. It takes every call.

use super::{PADE, THETA, bind};
use crate::grid_kernel::take_scratch;
use crate::ops::dense::update::How;
use crate::ops::dense::{Blocked, Dense, Method, blocked, of_blocks, tenth};
use crate::ops::matrix_batch::{bytes_for, largest, load, rooms, split_square, store};
use crate::routine::Preparation;
use pteron_core::{Args, DType, PrepareContext, Result};

/// As [`PADE`], of degree 7.
const PADE_SINGLE: [f64; 8] = [17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0];
/// Largest norm that this approximant is exact to single precision for.
const THETA_SINGLE: f64 = 3.92572478313866;

/// Powers of the scaled matrix, the two parts, and a matrix beside them.
struct Powers<'a, T> {
    powers: [&'a mut [T]; 3],
    even: &'a mut [T],
    odd: &'a mut [T],
    next: &'a mut [T],
}

/// `out` becomes the sum of even powers with coefficients from `first` on by two, of which `ONES` has the zeroth.
fn combine<T: Dense, const ONES: bool>(
    powers: &[&mut [T]; 3],
    coefficients: &[f64],
    first: usize,
    n: usize,
    out: &mut [T],
) {
    let of = |i: usize| coefficients.get(first + 2 * i).map_or(T::ZERO, |v| T::from_f64(*v));
    let start = usize::from(ONES);
    let [a, b, c] = [of(start), of(start + 1), of(start + 2)];
    let [square, fourth, sixth] = powers;
    for (out, ((x, y), z)) in out.iter_mut().zip(square.iter().zip(fourth.iter()).zip(sixth.iter())) {
        *out = a * *x + b * *y + c * *z;
    }
    if ONES {
        out.iter_mut().step_by(n + 1).for_each(|v| *v += of(0));
    }
}

fn exponential<T: Dense>(
    method: Blocked<T>,
    a: &mut [T],
    n: usize,
    memory: Powers<'_, T>,
    pivots: &mut [f64],
    room: &mut [T],
) {
    let Powers { powers, even, odd, next } = memory;
    let (theta, coefficients) = match T::DTYPE {
        DType::Float32 => (THETA_SINGLE, &PADE_SINGLE[..]),
        _ => (THETA, &PADE[..]),
    };
    let norm = largest_column(a, n, even);
    let squarings = if norm > theta && norm.is_finite() { (norm / theta).log2().ceil() as i32 } else { 0 };
    let scale = T::from_f64(2f64.powi(-squarings));
    a.iter_mut().for_each(|v| *v = *v * scale);
    let [square, fourth, sixth] = powers;
    method.multiply([a, a], n, How::Set, square, room);
    method.multiply([square, square], n, How::Set, fourth, room);
    method.multiply([square, fourth], n, How::Set, sixth, room);
    let powers = [square, fourth, sixth];
    combine::<T, true>(&powers, coefficients, 0, n, even);
    combine::<T, true>(&powers, coefficients, 1, n, odd);
    if coefficients.len() > PADE_SINGLE.len() {
        combine::<T, false>(&powers, coefficients, 8, n, next);
        method.multiply([&*powers[2], next], n, How::Add, even, room);
        combine::<T, false>(&powers, coefficients, 9, n, next);
        method.multiply([&*powers[2], next], n, How::Add, odd, room);
    }
    method.multiply([a, odd], n, How::Set, next, room);
    // (even - odd) · X = even + odd
    let [divisor, other, _] = powers;
    for (((x, y), e), o) in divisor.iter_mut().zip(a.iter_mut()).zip(even.iter()).zip(next.iter()) {
        (*x, *y) = (*e - *o, *e + *o);
    }
    method.factor(divisor, [n, n], pivots, room);
    method.solve(divisor, pivots, (&mut *a, n), false, room);
    for _ in 0..squarings {
        method.multiply([a, a], n, How::Set, other, room);
        a.copy_from_slice(other);
    }
}

/// The largest sum of sizes of a column; NaN counts as nothing.
fn largest_column<T: Dense>(a: &[T], n: usize, sums: &mut [T]) -> f64 {
    let sums = &mut sums[..n];
    sums.fill(T::ZERO);
    for row in a.chunks_exact(n.max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v.size());
    }
    sums.iter().fold(0.0, |norm, sum| norm.max(sum.to_f64()))
}

fn run<T: Dense>(method: Blocked<T>, args: &Args<'_>, item: usize, mut memory: &mut [u8]) -> Result<()> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let pivots = take_scratch(&mut memory, n)?;
    let size = n * n;
    let [room, a, square, fourth, sixth, even, odd, next] =
        rooms(memory, [Blocked::<T>::room(n), size, size, size, size, size, size, size])?;
    load(args, (0, 2), &batch, item, a)?;
    let memory = Powers { powers: [square, fourth, sixth], even, odd, next };
    exponential(method, a, n, memory, pivots, room);
    store(args, (1, 2), &batch, item, a)
}

/// linalg_matrix_exp.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    super::check(ctx)?;
    let [n, _] = largest(ctx, 0);
    of_blocks(ctx, 0, bytes_for(&[&[7, n, n], &[n]]), |args| bind(args).map(tenth), blocked!(run, 0))
}
