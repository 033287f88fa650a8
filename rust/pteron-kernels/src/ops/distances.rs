//! Distances between rows: _cdist_forward, _pdist_forward.
//!
//! Shape: cdist takes `[.., P, M]` and `[.., R, M]`, batches broadcast, and gives `[.., P, R]`; pdist takes
//! `[N, M]` and gives the upper triangle, `[N (N - 1) / 2]`. Dtype: floats, computed in float64. Edge cases:
//! p = 0 counts the places that differ, p = inf takes the largest difference; rows without elements are at
//! distance 0; NaN stays NaN. `rows` is the fast kernel of float32 and float64; it sums float32 as such where that loses
//! nothing but last places.

use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::reduction::plain::{LaneSum, row_major};
use crate::routine::Routine;
use crate::shape::{broadcast, check_rank};
use crate::strided::loops::{Walk, broadcast_strides};
use pteron_core::{Args, BindArgs, Dims, Error, Result};

mod rows;

/// The norm's exponent, checked.
fn exponent(args: &Args<'_>, i: usize) -> Result<f64> {
    let p = args.double(i)?;
    if p >= 0.0 {
        Ok(p)
    } else {
        Err(Error::kernel("the exponent must not be negative").argument("p").got(p.to_string()))
    }
}

/// Elements of a tensor by offset and stride.
type Row<'a> = (&'a Reader<'a, f64>, usize, usize);

/// The p-norm of the difference of two rows of `len` elements.
fn distance(p: f64, len: usize, (a, a_first, a_step): Row<'_>, (b, b_first, b_step): Row<'_>) -> Result<f64> {
    let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
    let (mut sums, mut largest) = (LaneSum::default(), 0.0f64);
    for i in (0..len).step_by(BLOCK) {
        let n = (len - i).min(BLOCK);
        a.read((a_first + i * a_step) as isize, a_step as isize, &mut left[..n])?;
        let other = b.block((b_first + i * b_step) as isize, b_step as isize, n, &mut right)?;
        for (d, other) in left.iter_mut().zip(other) {
            *d = (*d - other).abs();
        }
        let differences = &left[..n];
        if p == f64::INFINITY {
            largest = differences.iter().fold(largest, |l, d| if *d > l || d.is_nan() { *d } else { l });
        } else if p == 0.0 {
            sums.add(differences, |d| if d == 0.0 || d.is_nan() { d } else { 1.0 });
        } else if p == 1.0 {
            sums.add(differences, |d| d);
        } else if p == 2.0 {
            sums.add(differences, |d| d * d);
        } else {
            sums.add(differences, |d| d.powf(p));
        }
    }
    Ok(match p {
        f64::INFINITY => largest,
        0.0 | 1.0 => sums.total(),
        2.0 => sums.total().sqrt(),
        _ => sums.total().powf(1.0 / p),
    })
}

/// Batch extents of the result, rows of the first, rows of the second, elements of a row.
fn cdist_extents(args: &Args<'_>) -> Result<(Dims, usize, usize, usize)> {
    let (a, b) = (args.tensor(0)?, args.tensor(1)?);
    let (a, b) = (a.shape(), b.shape());
    match (a.split_last_chunk::<2>(), b.split_last_chunk::<2>()) {
        (Some((left, &[p, m])), Some((right, &[r, k]))) if m == k => Ok((broadcast(left, right)?, p, r, m)),
        _ => Err(Error::kernel("both arguments need rows of the same length")
            .argument("x2")
            .expected(format!("rows as in {a}"))
            .got(b.to_string())),
    }
}

fn bind_cdist(args: &mut BindArgs<'_>) -> Result<()> {
    let (mut shape, p, r, _) = cdist_extents(&args.args())?;
    shape.push(p)?;
    shape.push(r)?;
    args.resize(4, &shape)
}

fn cdist(args: &Args<'_>) -> Result<()> {
    let (batch, rows, columns, len) = cdist_extents(args)?;
    let p = exponent(args, 2)?;
    let (a, b) = (Reader::<f64>::new(args.tensor(0)?)?, Reader::<f64>::new(args.tensor(1)?)?);
    let mut y = Writer::<f64>::new(args.output(4)?)?;
    let to = row_major(y.meta());
    let walk = |meta: &pteron_core::TensorMeta| -> Result<(Walk, [usize; 2])> {
        let (shape, strides) = (meta.shape(), meta.strides());
        let rank = shape.len() - 2;
        let (outer, outer_strides) = (Dims::new(&shape[..rank])?, Dims::new(&strides[..rank])?);
        let walk = Walk::row_major(&batch, &broadcast_strides(&outer, &outer_strides, batch.len()));
        Ok((walk, [strides[rank], strides[rank + 1]]))
    };
    let ((from_a, step_a), (from_b, step_b)) = (walk(a.meta())?, walk(b.meta())?);
    for n in 0..batch.numel()? {
        let (base_a, base_b) = (from_a.offset(n) as usize, from_b.offset(n) as usize);
        for i in 0..rows {
            for j in 0..columns {
                let (row_a, row_b) = (base_a + i * step_a[0], base_b + j * step_b[0]);
                let d = distance(p, len, (&a, row_a, step_a[1]), (&b, row_b, step_b[1]))?;
                y.put(to.offset((n * rows + i) * columns + j) as usize, d)?;
            }
        }
    }
    Ok(())
}

fn bind_pdist(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let x = view.tensor(0)?;
    check_rank("the rows", 2, x.shape())?;
    let n = x.shape()[0];
    let pairs =
        n.checked_mul(n.saturating_sub(1)).ok_or_else(|| Error::kernel("the result is too large"))? / 2;
    args.resize(2, &[pairs])
}

fn pdist(args: &Args<'_>) -> Result<()> {
    let p = exponent(args, 1)?;
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(2)?)?;
    let (shape, strides) = (x.meta().shape(), x.meta().strides());
    let mut at = 0;
    for i in 0..shape[0] {
        for j in i + 1..shape[0] {
            let row = |i: usize| (&x, i * strides[0], strides[1]);
            y.put(at, distance(p, shape[1], row(i), row(j))?)?;
            at += 1;
        }
    }
    Ok(())
}

/// Distances.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::_cdist_forward.out(Tensor x1, Tensor x2, float p, int? compute_mode, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 4)?;
            same_dtype(ctx, 1, 4)?;
            check_float(ctx, 4)?;
            Routine::prepare(bind_cdist, |args, _| cdist(args))
        },
    )
    .fast("rows", rows::prepare_cdist),
    kernel("aten::_pdist_forward.out(Tensor self, float p=2, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        same_dtype(ctx, 0, 2)?;
        check_float(ctx, 2)?;
        Routine::prepare(bind_pdist, |args, _| pdist(args))
    })
    .fast("rows", rows::prepare_pdist),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn rows_of_two_tables() {
        let a = Tensor::of(&[2, 2], &[0f32, 0.0, 3.0, 4.0]);
        let b = Tensor::of(&[1, 2], &[0f32, 0.0]);
        let of = |p: f64| {
            let args = [a.clone().into(), b.clone().into(), Arg::Double(p), Arg::None];
            run_out("aten::_cdist_forward.out", &args, DType::Float32, &[2, 1])
        };
        assert_eq!(of(2.0).unwrap().values::<f32>(), [0.0, 5.0]);
        assert_eq!(of(1.0).unwrap().values::<f32>(), [0.0, 7.0]);
        assert_eq!(of(0.0).unwrap().values::<f32>(), [0.0, 2.0]);
        assert_eq!(of(f64::INFINITY).unwrap().values::<f32>(), [0.0, 4.0]);
        assert!(error_text(of(-1.0)).contains("negative"));
        let args = [a.clone().into(), Arg::Double(2.0)];
        let y = run_out("aten::_pdist_forward.out", &args, DType::Float32, &[1]).unwrap();
        assert_eq!(y.values::<f32>(), [5.0]);
        let long = Tensor::of(&[1, 3], &[0f32; 3]);
        let args = [a.into(), long.into(), Arg::Double(2.0), Arg::None];
        assert!(
            error_text(run_out("aten::_cdist_forward.out", &args, DType::Float32, &[2, 1]))
                .contains("same length")
        );
    }
}
