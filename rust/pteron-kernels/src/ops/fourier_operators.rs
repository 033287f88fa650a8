//! Discrete Fourier transforms: _fft_r2c, _fft_c2r, _fft_c2c.
//!
//! Shape: c2c keeps it; r2c has `n / 2 + 1` in its last dimension if one-sided; c2r states its last one.
//! Dtype: float32 and complex64, computed in float32 where tensors are row-major, else in float64. Normalisation: 0 none, 1 by the square root of the
//! number of elements of a signal, 2 by that number. Edge cases: c2r reads the first half of its last
//! dimension and takes the rest for its conjugate, so the imaginary parts of the ends do not count; a
//! dimension without elements is an error.

mod rows;

use crate::complex_blocks::{ComplexReader, number};
use crate::fourier::{Number, Transform, memory, most_memory};
use crate::operator::{Operator, operator};
use crate::reduction::plain::{Reduction, row_major};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::wrap_dim;
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, Complex64, DType, Dims, Error, PrepareContext, Result, WorkerScratch};

/// The listed dimensions, wrapped and in order; at least one, none twice.
fn dims(args: &Args<'_>) -> Result<Dims> {
    let rank = args.tensor(0)?.rank();
    let mut out = Dims::EMPTY;
    for dim in args.int_list(1)?.iter() {
        let dim = wrap_dim(dim?, rank)?;
        if rank == 0 || out.contains(&dim) {
            return Err(Error::kernel("a dimension is not there or listed twice")
                .argument("dim")
                .got(dim.to_string()));
        }
        out.push(dim)?;
    }
    Ok(out)
}

fn check_signal(shape: &[usize], dims: &[usize]) -> Result<()> {
    match dims.iter().find(|d| shape.get(**d) == Some(&0)) {
        None => Ok(()),
        Some(d) => {
            Err(Error::kernel("a signal without elements has no transform").got(format!("dimension {d}")))
        }
    }
}

/// What a signal of these extents is multiplied by.
fn scale(args: &Args<'_>, shape: &[usize], dims: &[usize]) -> Result<f64> {
    let count: f64 = dims.iter().filter_map(|d| shape.get(*d)).map(|n| *n as f64).product();
    match args.int(2)? {
        0 => Ok(1.0),
        1 => Ok(1.0 / count.sqrt()),
        2 => Ok(1.0 / count),
        other => Err(Error::kernel("no such normalisation")
            .argument("normalization")
            .expected("0, 1 or 2")
            .got(other.to_string())),
    }
}

/// Transforms every row along `dim` of a tensor of `shape` that lies in `data` by `strides`.
fn along(
    dim: usize,
    is_forward: bool,
    (shape, strides): (&[usize], &[usize]),
    data: &mut [Complex64],
    scratch: &mut [Number],
) -> Result<()> {
    let n = shape[dim];
    let small = || Error::internal("the memory of a transform is too small");
    let (row, rest) = scratch.split_at_mut_checked(n).ok_or_else(small)?;
    let mut transform = Transform::new(n, is_forward, rest).ok_or_else(small)?;
    let rows = Walk::new((0..shape.len()).filter(|d| *d != dim), shape, &signed(strides));
    for i in 0..rows.numel() {
        let base = rows.offset(i) as usize;
        for (k, slot) in row.iter_mut().enumerate() {
            let value = data.get(base + k * strides[dim]).copied().unwrap_or_default();
            *slot = [f64::from(value.re), f64::from(value.im)];
        }
        transform.apply(row);
        for (k, value) in row.iter().enumerate() {
            if let Some(slot) = data.get_mut(base + k * strides[dim]) {
                *slot = number(value[0] as f32, value[1] as f32);
            }
        }
    }
    Ok(())
}

fn multiply(data: &mut [Complex64], factor: f64) {
    if factor != 1.0 {
        for value in data {
            *value = number((f64::from(value.re) * factor) as f32, (f64::from(value.im) * factor) as f32);
        }
    }
}

fn numbers<'s>(scratch: &'s mut WorkerScratch<'_>) -> Result<&'s mut [Number]> {
    let whole = scratch.worker.len() / size_of::<Number>() * size_of::<Number>();
    bytemuck::try_cast_slice_mut(&mut scratch.worker[..whole])
        .map_err(|_| Error::internal("scratch memory is not aligned"))
}

fn bind_c2c(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    check_signal(&shape, &dims(&view)?)?;
    scale(&view, &shape, &[])?;
    args.resize(4, &shape)
}

fn c2c(args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<()> {
    let (dims, is_forward) = (dims(args)?, args.bool(3)?);
    crate::strided::copy::copy_whole(&args.tensor(0)?, &mut args.output(4)?)?;
    let (shape, strides) = (*args.output(4)?.shape(), *args.output(4)?.strides());
    let factor = scale(args, &shape, &dims)?;
    let data = args.output(4)?.into_slice::<Complex64>()?;
    let scratch = numbers(scratch)?;
    for dim in dims.iter() {
        along(*dim, is_forward, (&shape, &strides), data, scratch)?;
    }
    multiply(data, factor);
    Ok(())
}

fn bind_r2c(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (mut shape, dims) = (*view.tensor(0)?.shape(), dims(&view)?);
    check_signal(&shape, &dims)?;
    scale(&view, &shape, &[])?;
    let Some(last) = dims.last() else {
        return Err(Error::kernel("a real transform needs a dimension").argument("dim"));
    };
    if view.bool(3)? {
        shape[*last] = shape[*last] / 2 + 1;
    }
    args.resize(4, &shape)
}

fn r2c(args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<()> {
    let dims = dims(args)?;
    let x = ComplexReader::new(args.tensor(0)?)?;
    let (shape, strides) = (*args.output(4)?.shape(), *args.output(4)?.strides());
    let data = args.output(4)?.into_slice::<Complex64>()?;
    let scratch = numbers(scratch)?;
    let Some((last, others)) = dims.split_last() else { return Ok(()) };
    let n = x.meta().shape()[*last];
    {
        let small = || Error::internal("the memory of a transform is too small");
        let (row, rest) = scratch.split_at_mut_checked(n).ok_or_else(small)?;
        let mut transform = Transform::new(n, true, rest).ok_or_else(small)?;
        let from = Reduction::new(x.meta(), 1 << last);
        let to = Walk::new((0..shape.len()).filter(|d| d != last), &shape, &signed(&strides));
        from.for_each(|position, base| {
            for (k, slot) in row.iter_mut().enumerate() {
                *slot = [f64::from(x.get(base + from.inner().offset(k))?.re), 0.0];
            }
            transform.apply(row);
            let target = to.offset(position) as usize;
            for (k, value) in row.iter().take(shape[*last]).enumerate() {
                if let Some(slot) = data.get_mut(target + k * strides[*last]) {
                    *slot = number(value[0] as f32, value[1] as f32);
                }
            }
            Ok(())
        })?;
    }
    for dim in others {
        along(*dim, true, (&shape, &strides), data, scratch)?;
    }
    let factor = scale(args, x.meta().shape(), &dims)?;
    multiply(data, factor);
    Ok(())
}

fn bind_c2r(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (mut shape, dims, n) = (*view.tensor(0)?.shape(), dims(&view)?, view.int(3)?);
    check_signal(&shape, &dims)?;
    scale(&view, &shape, &[])?;
    let Some(last) = dims.last() else {
        return Err(Error::kernel("a real transform needs a dimension").argument("dim"));
    };
    let half = usize::try_from(n).ok().filter(|n| *n > 0).map(|n| n / 2 + 1);
    if half.is_none_or(|half| half > shape[*last]) {
        return Err(Error::kernel("the spectrum does not fit the signal")
            .argument("last_dim_size")
            .expected(format!("1 to {}", 2 * (shape[*last] - 1) + 1))
            .got(n.to_string()));
    }
    shape[*last] = n as usize;
    args.resize(4, &shape)
}

/// The other dimensions are transformed in a copy of the input that lies in scratch memory.
fn c2r(args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<()> {
    let dims = dims(args)?;
    let x = ComplexReader::new(args.tensor(0)?)?;
    let Some((last, others)) = dims.split_last() else { return Ok(()) };
    let small = || Error::internal("the memory of a transform is too small");
    let shape = *x.meta().shape();
    let strides = *pteron_core::TensorMeta::contiguous(DType::Complex64, &shape)?.strides();
    let scratch = numbers(scratch)?;
    let count = x.meta().numel();
    let (copy, scratch) = scratch.split_at_mut_checked(count.div_ceil(2)).ok_or_else(small)?;
    let copy: &mut [Complex64] = bytemuck::try_cast_slice_mut(copy).map_err(|_| small())?;
    let copy = copy.get_mut(..count).ok_or_else(small)?;
    x.gather(&row_major(x.meta()), 0, copy)?;
    for dim in others {
        along(*dim, false, (&shape, &strides), copy, scratch)?;
    }
    let out = args.output(4)?;
    let (out_shape, out_strides) = (*out.shape(), *out.strides());
    let factor = scale(args, &out_shape, &dims)?;
    let out = out.into_slice::<f32>()?;
    let n = out_shape[*last];
    let (row, rest) = scratch.split_at_mut_checked(n).ok_or_else(small)?;
    let mut transform = Transform::new(n, false, rest).ok_or_else(small)?;
    let rows = |shape: &[usize], strides: &[usize]| {
        Walk::new((0..shape.len()).filter(|d| d != last), shape, &signed(strides))
    };
    let (from, to) = (rows(&shape, &strides), rows(&out_shape, &out_strides));
    for i in 0..from.numel() {
        let (base, target) = (from.offset(i) as usize, to.offset(i) as usize);
        for k in 0..n / 2 + 1 {
            let value = copy.get(base + k * strides[*last]).copied().unwrap_or_default();
            let is_end = k == 0 || 2 * k == n;
            let im = if is_end { 0.0 } else { f64::from(value.im) };
            row[k] = [f64::from(value.re), im];
            if !is_end {
                row[n - k] = [f64::from(value.re), -im];
            }
        }
        transform.apply(row);
        for (k, value) in row.iter().enumerate() {
            if let Some(slot) = out.get_mut(target + k * out_strides[*last]) {
                *slot = (value[0] * factor) as f32;
            }
        }
    }
    Ok(())
}

/// Bytes of scratch: a row, the tables of a transform, and for c2r a copy of the input.
fn scratch_bytes(ctx: &PrepareContext<'_>, copies: bool) -> Result<usize> {
    let (Some(x), Some(out)) = (ctx.tensor(0), ctx.tensor(4)) else {
        return Err(Error::internal("a transform without tensors"));
    };
    let all = |f: &dyn Fn(usize) -> Option<usize>| {
        x.shape
            .iter()
            .chain(out.shape.iter())
            .try_fold(1usize, |most, n| Some(most.max(f(*n)?.checked_add(*n)?)))
    };
    let is_static = !x.is_dynamic() && !out.is_dynamic();
    let tables = if is_static { all(&memory) } else { all(&most_memory) };
    let copy = if copies { x.shape.numel()?.div_ceil(2) } else { 0 };
    tables.and_then(|n| n.checked_add(copy)).and_then(|n| n.checked_mul(size_of::<Number>())).ok_or_else(
        || Error::kernel("a transform of this size needs more memory than there is").got(x.shape.to_string()),
    )
}

fn check(ctx: &PrepareContext<'_>, from: DType, to: DType) -> Result<()> {
    let (x, out) = (dtype_of(ctx, 0)?, dtype_of(ctx, 4)?);
    if (x, out) == (from, to) {
        return Ok(());
    }
    Err(Error::kernel("the operator does not support these dtypes")
        .expected(format!("{from} to {to}"))
        .got(format!("{x} to {out}")))
}

/// Fourier transforms.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::_fft_c2c.out(Tensor self, SymInt[] dim, int normalization, bool forward, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("rows", rows::prepare_c2c)
    .plain(|ctx| -> Preparation {
        check(ctx, DType::Complex64, DType::Complex64)?;
        Routine::prepare_with_scratch(scratch_bytes(ctx, false)?, bind_c2c, c2c)
    }),
    operator(
        "aten::_fft_r2c.out(Tensor self, int[] dim, int normalization, bool onesided, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("rows", rows::prepare_r2c)
    .plain(|ctx| {
        check(ctx, DType::Float32, DType::Complex64)?;
        Routine::prepare_with_scratch(scratch_bytes(ctx, false)?, bind_r2c, r2c)
    }),
    operator(
        "aten::_fft_c2r.out(Tensor self, int[] dim, int normalization, SymInt last_dim_size, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("rows", rows::prepare_c2r)
    .plain(|ctx| {
        check(ctx, DType::Complex64, DType::Float32)?;
        Routine::prepare_with_scratch(scratch_bytes(ctx, true)?, bind_c2r, c2r)
    }),
];
