//! Matrix products: mm, bmm, addmm, baddbmm, linear, mv, dot.
//!
//! Shape: rows of the first by columns of the second operand. Dtype: all operands the same, bool
//! refused; float16 and bfloat16 accumulate in float32. Edge cases: an empty inner dimension gives
//! zeros; `beta` 0 leaves the addend out, NaN included.

use crate::complex_number::Number;
use crate::compute::{BLOCK, Class, Compute, Kind, unsupported};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_expandable, check_rank, check_same};
use crate::strided::loops::broadcast_strides;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

/// A matrix within a tensor: first element, stride of rows, stride of columns.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub offset: isize,
    pub row: isize,
    pub column: isize,
}

/// Dot product of two runs, in eight lanes.
fn dot<C: Compute>(a: &[C], b: &[C]) -> C {
    let mut lanes = [C::ZERO; 8];
    let (mut pa, mut pb) = (a.chunks_exact(8), b.chunks_exact(8));
    for (x, y) in pa.by_ref().zip(pb.by_ref()) {
        for i in 0..8 {
            lanes[i] = lanes[i].plus(x[i].times(y[i]));
        }
    }
    for (lane, (x, y)) in lanes.iter_mut().zip(pa.remainder().iter().zip(pb.remainder())) {
        *lane = lane.plus(x.times(*y));
    }
    lanes.into_iter().fold(C::ZERO, C::plus)
}

/// Multiplies `[m, k]` by `[k, n]` and hands out blocks of result rows: `(row, first column, values)`.
pub(super) fn multiply<C: Compute>(
    (a, am): (&Reader<'_, C>, Matrix),
    (b, bm): (&Reader<'_, C>, Matrix),
    [m, n, k]: [usize; 3],
    mut emit: impl FnMut(usize, usize, &mut [C]) -> Result<()>,
) -> Result<()> {
    let (mut left, mut right, mut sums) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK], [C::ZERO; BLOCK]);
    for i in 0..m {
        for first in (0..n).step_by(BLOCK) {
            let columns = (n - first).min(BLOCK);
            let sums = &mut sums[..columns];
            sums.fill(C::ZERO);
            for start in (0..k).step_by(BLOCK) {
                let depth = (k - start).min(BLOCK);
                let at = am.offset + i as isize * am.row + start as isize * am.column;
                let left = a.block(at, am.column, depth, &mut left)?;
                if bm.row == 1 {
                    // Columns lie in memory one after another: dot products.
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let at = bm.offset + (first + j) as isize * bm.column + start as isize;
                        *sum = sum.plus(dot(left, b.block(at, 1, depth, &mut right)?));
                    }
                } else {
                    for (p, factor) in left.iter().enumerate() {
                        let at = bm.offset + (start + p) as isize * bm.row + first as isize * bm.column;
                        let row = b.block(at, bm.column, columns, &mut right)?;
                        for (sum, x) in sums.iter_mut().zip(row) {
                            *sum = sum.plus(factor.times(*x));
                        }
                    }
                }
            }
            emit(i, first, sums)?;
        }
    }
    Ok(())
}

/// Strides of the last two dimensions.
pub(super) fn matrix(strides: &[usize], offset: usize) -> Matrix {
    let n = strides.len();
    Matrix { offset: offset as isize, row: strides[n - 2] as isize, column: strides[n - 1] as isize }
}

/// What a product is combined with: `beta * addend + alpha * product`.
struct Combine<'a, C: Compute> {
    addend: Option<(Reader<'a, C>, [isize; pteron_core::MAX_RANK])>,
    alpha: C,
    beta: C,
}

impl<C: Compute> Combine<'_, C> {
    const NOTHING: Self = Combine { addend: None, alpha: C::ONE, beta: C::ONE };

    /// Combines the results of one batch, row and block of columns in place.
    fn apply(&self, [batch, row, column]: [usize; 3], values: &mut [C]) -> Result<()> {
        if self.alpha != C::ONE {
            values.iter_mut().for_each(|v| *v = v.times(self.alpha));
        }
        if let Some((addend, [b, r, c, ..])) = &self.addend {
            let mut buffer = [C::ZERO; BLOCK];
            let at = batch as isize * b + row as isize * r + column as isize * c;
            let block = addend.block(at, *c, values.len(), &mut buffer)?;
            for (v, x) in values.iter_mut().zip(block) {
                *v = v.plus(self.beta.times(*x));
            }
        }
        Ok(())
    }
}

/// `[b, m, k] x [b, k, n]`, or without the batch dimension.
fn product<C: Compute>(
    args: &Args<'_>,
    left: usize,
    right: usize,
    out: usize,
    combine: &Combine<'_, C>,
) -> Result<()> {
    let (a, b) = (Reader::<C>::new(args.tensor(left)?)?, Reader::<C>::new(args.tensor(right)?)?);
    let mut y = Writer::<C>::new(args.output(out)?)?;
    let rank = a.meta().rank();
    let shape = a.meta().shape();
    let [m, k, n] = [shape[rank - 2], shape[rank - 1], b.meta().shape()[rank - 1]];
    let batches = if rank == 3 { shape[0] } else { 1 };
    let lead = |strides: &[usize], batch: usize| if rank == 3 { batch * strides[0] } else { 0 };
    for batch in 0..batches {
        let am = matrix(a.meta().strides(), lead(a.meta().strides(), batch));
        let bm = matrix(b.meta().strides(), lead(b.meta().strides(), batch));
        let ym = matrix(y.meta().strides(), lead(y.meta().strides(), batch));
        multiply((&a, am), (&b, bm), [m, n, k], |row, column, values| {
            combine.apply([batch, row, column], values)?;
            y.write(ym.offset + row as isize * ym.row + column as isize * ym.column, ym.column, values)
        })?;
    }
    Ok(())
}

/// The result shape of a product of arguments `left` and `right` of rank `rank`.
fn product_shape(args: &Args<'_>, left: usize, right: usize, rank: usize) -> Result<pteron_core::Dims> {
    let (a, b) = (args.tensor(left)?, args.tensor(right)?);
    check_rank("the first matrix", rank, a.shape())?;
    check_rank("the second matrix", rank, b.shape())?;
    let (x, y) = (a.shape(), b.shape());
    if x[rank - 1] != y[rank - 2] || x[..rank - 2] != y[..rank - 2] {
        return Err(Error::kernel("the matrices do not fit together")
            .expected("columns of the first equal to rows of the second, equal batches")
            .got(format!("{x} and {y}")));
    }
    let mut shape = *x;
    shape[rank - 1] = y[rank - 1];
    Ok(shape)
}

/// Runs a function generic over the compute type for the class of argument 0's dtype.
macro_rules! by_class {
    ($args:expr, $function:ident $(, $extra:expr)*) => {
        match Class::of($args.tensor(0)?.dtype()) {
            Some(Class::F64) => $function::<f64>($args $(, $extra)*),
            Some(Class::I64) => $function::<i64>($args $(, $extra)*),
            None => $function::<Number>($args $(, $extra)*),
            _ => $function::<f32>($args $(, $extra)*),
        }
    };
}

fn plain<C: Compute>(args: &Args<'_>) -> Result<()> {
    product::<C>(args, 0, 1, 2, &Combine::NOTHING)
}

fn combined<C: Compute>(args: &Args<'_>) -> Result<()> {
    let (alpha, beta) = (C::from_scalar(args.scalar(4)?), C::from_scalar(args.scalar(3)?));
    let out = args.output(5)?;
    let addend = if beta == C::ZERO {
        None
    } else {
        let t = args.tensor(0)?;
        let mut strides = broadcast_strides(t.shape(), t.strides(), out.rank());
        if out.rank() == 2 {
            strides.rotate_right(1);
        }
        Some((Reader::<C>::new(t)?, strides))
    };
    product::<C>(args, 1, 2, 5, &Combine { addend, alpha, beta })
}

fn bind_combined(args: &mut BindArgs<'_>, rank: usize) -> Result<()> {
    let shape = product_shape(&args.args(), 1, 2, rank)?;
    check_expandable(args.args().tensor(0)?.shape(), &shape).map_err(|e| e.argument("self"))?;
    args.resize(5, &shape)
}

fn bind_linear(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (x, w) = (view.tensor(0)?, view.tensor(1)?);
    check_rank("the weight", 2, w.shape())?;
    if x.shape().last() != Some(&w.shape()[1]) {
        return Err(Error::kernel("the weight does not fit the input")
            .argument("weight")
            .expected(format!("[features, {}]", x.shape().last().copied().unwrap_or(0)))
            .got(w.shape().to_string()));
    }
    if let Some(bias) = view.optional_tensor(2)? {
        check_expandable(bias.shape(), &[w.shape()[0]]).map_err(|e| e.argument("bias"))?;
    }
    let mut shape = *x.shape();
    shape.remove(x.rank() - 1)?;
    shape.push(w.shape()[0])?;
    args.resize(3, &shape)
}

/// Rows of any number of leading dimensions times a transposed weight.
fn linear<C: Compute>(args: &Args<'_>) -> Result<()> {
    use crate::reduction::plain::Reduction;
    let (x, w) = (Reader::<C>::new(args.tensor(0)?)?, Reader::<C>::new(args.tensor(1)?)?);
    let mut y = Writer::<C>::new(args.output(3)?)?;
    let last = x.meta().rank() - 1;
    let (k, n) = (x.meta().shape()[last], y.meta().shape()[last]);
    let addend = match args.optional_tensor(2)? {
        Some(bias) => {
            let strides = broadcast_strides(bias.shape(), bias.strides(), 3);
            Some((Reader::<C>::new(bias)?, strides))
        }
        None => None,
    };
    let combine = Combine { addend, alpha: C::ONE, beta: C::ONE };
    let (from, to) = (Reduction::new(x.meta(), 1 << last), Reduction::new(y.meta(), 1 << last));
    let (x_stride, y_stride) = (x.meta().strides()[last] as isize, y.meta().strides()[last] as isize);
    let [w_n, w_k] = [w.meta().strides()[0] as isize, w.meta().strides()[1] as isize];
    from.for_each(|position, base| {
        let target = to.outer.offset(position);
        let row = Matrix { offset: base, row: 0, column: x_stride };
        multiply(
            (&x, row),
            (&w, Matrix { offset: 0, row: w_k, column: w_n }),
            [1, n, k],
            |_, column, values| {
                combine.apply([0, 0, column], values)?;
                y.write(target + column as isize * y_stride, y_stride, values)
            },
        )
    })
}

/// `[m, k] x [k]` and `[k] x [k]`.
fn vector<C: Compute>(args: &Args<'_>) -> Result<()> {
    let (a, x) = (Reader::<C>::new(args.tensor(0)?)?, Reader::<C>::new(args.tensor(1)?)?);
    let mut y = Writer::<C>::new(args.output(2)?)?;
    let k = x.meta().numel();
    let (rows, left) = if a.meta().rank() == 2 {
        (a.meta().shape()[0], matrix(a.meta().strides(), 0))
    } else {
        (1, Matrix { offset: 0, row: 0, column: 1 })
    };
    let right = Matrix { offset: 0, row: 1, column: 0 };
    multiply((&a, left), (&x, right), [rows, 1, k], |row, _, values| y.put(row, values[0]))
}

fn bind_vector(args: &mut BindArgs<'_>, rank: usize) -> Result<()> {
    let view = args.args();
    let (a, x) = (view.tensor(0)?, view.tensor(1)?);
    check_rank("the first operand", rank, a.shape())?;
    check_same("the vector", &a.shape()[rank - 1..], x.shape())?;
    let rows = *a.shape();
    args.resize(2, &rows[..rank - 1])
}

/// An error unless all tensors have the same dtype, and one that multiplies.
fn check(ctx: &PrepareContext<'_>, tensors: &[usize]) -> Result<()> {
    let dtype = dtype_of(ctx, 0)?;
    for i in tensors {
        if let Some(spec) = ctx.tensor(*i)
            && spec.dtype != dtype
        {
            return Err(Error::kernel("matrix products need operands of one dtype")
                .expected(dtype.name())
                .got(spec.dtype.name()));
        }
    }
    if dtype == DType::Bool {
        return Err(unsupported(dtype));
    }
    Kind::of(dtype).map(|_| ())
}

fn mm(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx, &[1, 2])?;
    Routine::prepare(
        |args| {
            let shape = product_shape(&args.args(), 0, 1, 2)?;
            args.resize(2, &shape)
        },
        |args, _| by_class!(args, plain),
    )
}

/// `mm` of int8 (the first may be uint8) in int32, which wraps.
fn int_mm(ctx: &PrepareContext<'_>) -> Preparation {
    for (i, name, expected) in [
        (0, "self", [DType::Int8, DType::UInt8]),
        (1, "mat2", [DType::Int8; 2]),
        (2, "out", [DType::Int32; 2]),
    ] {
        let dtype = dtype_of(ctx, i)?;
        if !expected.contains(&dtype) {
            return Err(Error::kernel("a product of eight-bit integers is int32")
                .argument(name)
                .expected(expected[0].name())
                .got(dtype.name()));
        }
    }
    Routine::prepare(
        |args| {
            let shape = product_shape(&args.args(), 0, 1, 2)?;
            args.resize(2, &shape)
        },
        |args, _| plain::<i64>(args),
    )
}

fn bmm(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx, &[1, 2])?;
    Routine::prepare(
        |args| {
            let shape = product_shape(&args.args(), 0, 1, 3)?;
            args.resize(2, &shape)
        },
        |args, _| by_class!(args, plain),
    )
}

/// Matrix products.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", mm),
    kernel("aten::_int_mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", int_mm),
    kernel("aten::bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", bmm),
    kernel(
        "aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check(ctx, &[1, 2, 5])?;
            Routine::prepare(|args| bind_combined(args, 2), |args, _| by_class!(args, combined))
        },
    ),
    kernel(
        "aten::baddbmm.out(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check(ctx, &[1, 2, 5])?;
            Routine::prepare(|args| bind_combined(args, 3), |args, _| by_class!(args, combined))
        },
    ),
    kernel(
        "aten::linear.out(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check(ctx, &[1, 2, 3])?;
            Routine::prepare(bind_linear, |args, _| by_class!(args, linear))
        },
    ),
    kernel("aten::mv.out(Tensor self, Tensor vec, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check(ctx, &[1, 2])?;
        Routine::prepare(|args| bind_vector(args, 2), |args, _| by_class!(args, vector))
    }),
    kernel("aten::dot.out(Tensor self, Tensor tensor, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check(ctx, &[1, 2])?;
        Routine::prepare(|args| bind_vector(args, 1), |args, _| by_class!(args, vector))
    }),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::{Bool8, DType};

    #[test]
    fn products_agree_with_plain_loops_in_both_orders() {
        let (m, k, n) = (3usize, 300usize, 270usize);
        let a: Vec<i64> = (0..m * k).map(|i| i as i64 % 13 - 6).collect();
        let b: Vec<i64> = (0..k * n).map(|i| i as i64 % 11 - 5).collect();
        let mut want = vec![0i64; m * n];
        for i in 0..m {
            for j in 0..n {
                want[i * n + j] = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
            }
        }
        let plain = [Tensor::of(&[m, k], &a).into(), Tensor::of(&[k, n], &b).into()];
        assert_eq!(run_out("aten::mm.out", &plain, DType::Int64, &[m, n]).unwrap().values::<i64>(), want);
        let transposed: Vec<f64> = (0..n * k).map(|i| b[(i % k) * n + i / k] as f64).collect();
        let a: Vec<f64> = a.iter().map(|v| *v as f64).collect();
        let args =
            [Tensor::of(&[m, k], &a).into(), Tensor::of(&[k, n], &transposed).in_order(&[1, 0]).into()];
        let want: Vec<f64> = want.iter().map(|v| *v as f64).collect();
        assert_eq!(run_out("aten::mm.out", &args, DType::Float64, &[m, n]).unwrap().values::<f64>(), want);
        let args = [Tensor::of(&[1, m, k], &a).into(), Tensor::of(&[n, k], &transposed).into(), Arg::None];
        assert_eq!(
            run_out("aten::linear.out", &args, DType::Float64, &[1, m, n]).unwrap().values::<f64>(),
            want
        );
    }

    #[test]
    fn addmm_scales_and_beta_zero_forgets_nan() {
        let (a, b) = (Tensor::of(&[1, 1], &[2f32]), Tensor::of(&[1, 2], &[3f32, 4.0]));
        let add = |bias: &[f32], beta: f64| {
            let args =
                [Tensor::of(&[2], bias).into(), a.clone().into(), b.clone().into(), beta.into(), 0.5.into()];
            run_out("aten::addmm.out", &args, DType::Float32, &[1, 2]).unwrap().values::<f32>()
        };
        assert_eq!(add(&[10.0, 20.0], 2.0), [23.0, 44.0]);
        assert_eq!(add(&[f32::NAN, 0.0], 0.0), [3.0, 4.0]);
    }

    #[test]
    fn nothing_to_sum_gives_zeros() {
        let args = [Tensor::of::<f32>(&[2, 0], &[]).into(), Tensor::of::<f32>(&[0, 1], &[]).into()];
        assert_eq!(
            run_out("aten::mm.out", &args, DType::Float32, &[2, 1]).unwrap().values::<f32>(),
            [0.0, 0.0]
        );
    }

    #[test]
    fn misfits_are_refused() {
        let args = [Tensor::of(&[1, 2], &[1f32; 2]).into(), Tensor::of(&[3, 1], &[1f32; 3]).into()];
        assert!(
            error_text(run_out("aten::mm.out", &args, DType::Float32, &[1, 1])).contains("[1, 2] and [3, 1]")
        );
        let args = [Tensor::of(&[1, 1], &[Bool8(1)]).into(), Tensor::of(&[1, 1], &[Bool8(1)]).into()];
        assert!(error_text(run_out("aten::mm.out", &args, DType::Bool, &[1, 1])).contains("bool"));
    }
}
