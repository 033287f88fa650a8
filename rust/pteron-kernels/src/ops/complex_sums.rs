//! Sums and products of complex64 tensors: sum, mean, mm, bmm, and what copies with conversion.
//!
//! Shape and dtype as for real numbers, in complex64; sums are accumulated in float64, products in float32.
//! Edge cases: the mean of nothing is NaN.

use crate::complex_blocks::{ComplexReader, ZERO, number, times};
use crate::ops::complex_elementwise::{check, is_complex, kernel};
use crate::reduction::{Reduction, bind_reduced, listed_dims, row_major};
use crate::routine::{Preparation, Routine};
use crate::shape::{all_dims, check_rank};
use pteron_core::{Args, BindArgs, Complex64, DType, Error, PrepareContext, Result, StaticKernel};

fn reduce(args: &Args<'_>, set: u32, out: usize, is_mean: bool) -> Result<()> {
    let x = ComplexReader::new(args.tensor(0)?)?;
    let reduction = Reduction::new(x.meta(), set);
    let to = row_major(args.output(out)?.meta());
    let out = args.output(out)?.into_slice::<Complex64>()?;
    let count = if is_mean { reduction.count() as f64 } else { 1.0 };
    reduction.for_each(|position, base| {
        let (mut re, mut im) = (0f64, 0f64);
        for i in 0..reduction.count() {
            let value = x.get(base + reduction.inner().offset(i))?;
            re += f64::from(value.re);
            im += f64::from(value.im);
        }
        if let Some(slot) = out.get_mut(to.offset(position) as usize) {
            *slot = number((re / count) as f32, (im / count) as f32);
        }
        Ok(())
    })
}

fn by_dims(ctx: &PrepareContext<'_>, is_mean: bool) -> Preparation {
    if !is_complex(ctx, &[0]) {
        return Ok(None);
    }
    check(ctx, &[0], 4, DType::Complex64)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let (set, keepdim) = (listed_dims(&args.args(), 1)?, args.args().bool(2)?);
        bind_reduced(args, set, keepdim, 4)
    }
    if is_mean {
        Routine::prepare(bind, |args, _| reduce(args, listed_dims(args, 1)?, 4, true))
    } else {
        Routine::prepare(bind, |args, _| reduce(args, listed_dims(args, 1)?, 4, false))
    }
}

fn over_all(ctx: &PrepareContext<'_>, is_mean: bool) -> Preparation {
    if !is_complex(ctx, &[0]) {
        return Ok(None);
    }
    check(ctx, &[0], 2, DType::Complex64)?;
    let run: crate::routine::RunFn = if is_mean {
        |args, _| reduce(args, all_dims(args.tensor(0)?.rank()), 2, true)
    } else {
        |args, _| reduce(args, all_dims(args.tensor(0)?.rank()), 2, false)
    };
    Routine::prepare(|args| args.resize(2, &[]), run)
}

fn bind_product<const RANK: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (a, b) = (*view.tensor(0)?.shape(), *view.tensor(1)?.shape());
    check_rank("the first matrix", RANK, &a)?;
    check_rank("the second matrix", RANK, &b)?;
    if a[RANK - 1] != b[RANK - 2] || a[..RANK - 2] != b[..RANK - 2] {
        return Err(Error::kernel("the matrices do not fit together")
            .expected("columns of the first equal to rows of the second, equal batches")
            .got(format!("{a} and {b}")));
    }
    let mut shape = a;
    shape[RANK - 1] = b[RANK - 1];
    args.resize(2, &shape)
}

fn product(args: &Args<'_>) -> Result<()> {
    let (a, b) = (ComplexReader::new(args.tensor(0)?)?, ComplexReader::new(args.tensor(1)?)?);
    let (from_a, from_b) = (row_major(a.meta()), row_major(b.meta()));
    let to = row_major(args.output(2)?.meta());
    let [.., m, k] = a.meta().shape()[..] else {
        return Err(Error::internal("a matrix has lost its dimensions"));
    };
    let n = b.meta().shape().last().copied().unwrap_or(0);
    let out = args.output(2)?.into_slice::<Complex64>()?;
    for position in 0..out.len() {
        let (row, column) = (position / n, position % n);
        let batch = row / m;
        let mut sum = ZERO;
        for p in 0..k {
            let x = a.get(from_a.offset(row * k + p))?;
            let y = b.get(from_b.offset((batch * k + p) * n + column))?;
            let term = times(x, y);
            sum = number(sum.re + term.re, sum.im + term.im);
        }
        if let Some(slot) = out.get_mut(to.offset(position) as usize) {
            *slot = sum;
        }
    }
    Ok(())
}

fn both_complex(ctx: &PrepareContext<'_>) -> Result<bool> {
    if !is_complex(ctx, &[0, 1]) {
        return Ok(false);
    }
    if is_complex(ctx, &[0]) && is_complex(ctx, &[1]) {
        check(ctx, &[0, 1], 2, DType::Complex64)?;
        return Ok(true);
    }
    Err(Error::kernel("matrix products need operands of one dtype").expected("complex64"))
}

/// A real tensor as a complex one.
fn to_complex(ctx: &PrepareContext<'_>, out: usize) -> Preparation {
    if !is_complex(ctx, &[out]) || is_complex(ctx, &[0]) {
        return Ok(None);
    }
    fn convert(args: &Args<'_>, out: usize) -> Result<()> {
        let x = ComplexReader::new(args.tensor(0)?)?;
        let (from, to) = (row_major(x.meta()), row_major(args.output(out)?.meta()));
        let slice = args.output(out)?.into_slice::<Complex64>()?;
        for position in 0..slice.len() {
            let value = x.get(from.offset(position))?;
            if let Some(slot) = slice.get_mut(to.offset(position) as usize) {
                *slot = value;
            }
        }
        Ok(())
    }
    fn bind<const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(OUT, &shape)
    }
    Routine::prepare(bind::<3>, |args, _| convert(args, 3))
}

/// Complex kernels of sums, products and conversions.
pub(crate) static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| by_dims(ctx, false),
    ),
    kernel(
        "aten::mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| by_dims(ctx, true),
    ),
    kernel("aten::sum.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        over_all(ctx, false)
    }),
    kernel(
        "aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| over_all(ctx, true),
    ),
    kernel("aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        if !both_complex(ctx)? {
            return Ok(None);
        }
        Routine::prepare(bind_product::<2>, |args, _| product(args))
    }),
    kernel("aten::bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        if !both_complex(ctx)? {
            return Ok(None);
        }
        Routine::prepare(bind_product::<3>, |args, _| product(args))
    }),
    kernel(
        "dim_order_ops::_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| to_complex(ctx, 3),
    ),
    kernel(
        "aten::_to_copy.out(Tensor self, *, bool non_blocking=False, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| to_complex(ctx, 3),
    ),
];
