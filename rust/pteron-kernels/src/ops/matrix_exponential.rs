//! The exponential of a matrix.
//!
//! Scaling and squaring with the Padé approximant of degree 13. Shape: batches of square matrices. Dtype:
//! float32 and float64, computed in float64 or, block by block, in their own dtype. Edge cases: what is not
//! finite gives NaN. Source: N. Higham, The Scaling and Squaring Method for the Matrix Exponential Revisited,
//! 2005.

mod fast;

use crate::operator::{Operator, kernel};
use crate::ops::dense::{Method, Plain};
use crate::ops::layout::same_dtype;
use crate::ops::matrix_batch::{bytes_for, items, largest, load, rooms, split_square, store};
use crate::ops::sums::check_float;
use crate::routine::{Preparation, Routine};
use pteron_core::{Args, BindArgs, PrepareContext, Result};

/// Coefficients of the numerator; those of the denominator alternate in sign.
const PADE: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];
/// Largest norm that the approximant is exact to double precision for.
const THETA: f64 = 5.371920351148152;

fn multiply(a: &[f64], b: &[f64], n: usize, out: &mut [f64]) {
    out.fill(0.0);
    for i in 0..n {
        for k in 0..n {
            let factor = a[i * n + k];
            for (o, v) in out[i * n..(i + 1) * n].iter_mut().zip(&b[k * n..(k + 1) * n]) {
                *o += factor * v;
            }
        }
    }
}

/// `even` and `odd` become the even and the odd part of the numerator, with powers of `a` by Horner's rule.
fn parts(a: &[f64], n: usize, even: &mut [f64], odd: &mut [f64], [square, next]: [&mut [f64]; 2]) {
    multiply(a, a, n, square);
    for (first, part) in [(12, &mut *even), (13, &mut *odd)] {
        part.fill(0.0);
        part.iter_mut().step_by(n + 1).for_each(|v| *v = PADE[first]);
        for coefficient in PADE[..first].iter().rev().skip(1).step_by(2) {
            multiply(part, square, n, next);
            next.iter_mut().step_by(n + 1).for_each(|v| *v += coefficient);
            part.copy_from_slice(next);
        }
    }
    multiply(a, odd, n, next);
    odd.copy_from_slice(next);
}

fn exponential(a: &mut [f64], n: usize, rooms: [&mut [f64]; 5]) {
    let [even, odd, square, next, pivots] = rooms;
    let column = |j: usize| (0..n).map(|i| a[i * n + j].abs()).sum::<f64>();
    let norm = (0..n).map(column).fold(0.0, f64::max);
    let squarings = if norm > THETA && norm.is_finite() { (norm / THETA).log2().ceil() as i32 } else { 0 };
    let scale = 2f64.powi(-squarings);
    a.iter_mut().for_each(|v| *v *= scale);
    parts(a, n, even, odd, [square, next]);
    // (even - odd) · X = even + odd
    square.iter_mut().zip(even.iter().zip(odd.iter())).for_each(|(s, (e, o))| *s = e - o);
    a.iter_mut().zip(even.iter().zip(odd.iter())).for_each(|(s, (e, o))| *s = e + o);
    Plain.factor(square, [n, n], pivots, &mut []);
    Plain.solve(square, pivots, (&mut *a, n), false, &mut []);
    for _ in 0..squarings {
        multiply(a, a, n, next);
        a.copy_from_slice(next);
    }
}

fn bind(args: &mut BindArgs<'_>) -> Result<(usize, usize)> {
    let shape = *args.args().tensor(0)?.shape();
    let (batch, n) = split_square(&shape, "self")?;
    args.resize(1, &shape)?;
    items(&batch, &[20, n, n, n])
}

fn run(args: &Args<'_>, item: usize, memory: &mut [u8]) -> Result<()> {
    let (batch, n) = split_square(args.tensor(0)?.shape(), "self")?;
    let [a, even, odd, square, next, pivots] = rooms(memory, [n * n, n * n, n * n, n * n, n * n, n])?;
    load(args, (0, 2), &batch, item, a)?;
    exponential(a, n, [even, odd, square, next, pivots]);
    store(args, (1, 2), &batch, item, a)
}

fn check(ctx: &PrepareContext<'_>) -> Result<()> {
    check_float(ctx, 1)?;
    same_dtype(ctx, 0, 1).map(drop)
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx)?;
    let [n, _] = largest(ctx, 0);
    Routine::per_item(bytes_for(&[&[5, n, n], &[n]])?, bind, |args, n, s| run(args, n, s.worker))
}

/// linalg_matrix_exp.
pub static OPERATORS: &[Operator] =
    &[kernel("aten::linalg_matrix_exp.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", prepare)
        .fast("blocks", fast::prepare)];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, run_out};
    use pteron_core::DType;

    #[test]
    fn rotations() {
        let run = |angle: f64| {
            let x = Tensor::of(&[2, 2], &[0.0, -angle, angle, 0.0]);
            run_out("aten::linalg_matrix_exp.out", &[x.into()], DType::Float64, &[2, 2])
                .unwrap()
                .values::<f64>()
        };
        for angle in [0.0f64, 1.0, 3.0, 40.0] {
            for (got, want) in run(angle).iter().zip([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]) {
                assert!((got - want).abs() < 1e-13 * (1.0 + angle));
            }
        }
    }
}
