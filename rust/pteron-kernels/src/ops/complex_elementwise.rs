//! Elementwise operators on complex64: arithmetic, comparison, parts, exponential, choice, conversion.
//!
//! Shape: operands broadcast. Dtype: complex64 where one operand is, real operands counting as complex ones;
//! float32 for abs and angle, bool for comparisons. Edge cases: infinities and NaN as the textbook formulas
//! in float32 give them, which is what PyTorch computes; division is scaled.

use crate::complex_blocks::{ComplexReader, number, over, times};
use crate::compute::BLOCK;
use crate::elements::Writer;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::broadcast;
use crate::strided::loops::Walk;
use pteron_core::{Args, BindArgs, Complex64, DType, Error, PrepareContext, Result};

/// Is one of these arguments complex64? Others are left to the kernels of real numbers.
pub(crate) fn is_complex(ctx: &PrepareContext<'_>, arguments: &[usize]) -> bool {
    arguments.iter().any(|i| ctx.tensor(*i).is_some_and(|t| t.dtype == DType::Complex64))
}

/// An error unless the output has this dtype, and no operand is of another complex one or float64, which
/// would make the result complex128.
pub(crate) fn check(ctx: &PrepareContext<'_>, inputs: &[usize], out: usize, dtype: DType) -> Result<()> {
    for i in inputs {
        if let Some(t) = ctx.tensor(*i)
            && (matches!(t.dtype, DType::Complex32 | DType::Complex128)
                || (t.dtype == DType::Float64 && !t.shape.is_empty()))
        {
            return Err(Error::kernel("the operator computes in complex64")
                .expected("complex64, or real numbers that promote to it")
                .got(t.dtype.name()));
        }
    }
    if dtype_of(ctx, out)? == dtype {
        return Ok(());
    }
    Err(Error::kernel("the output has another dtype")
        .argument("out")
        .expected(dtype.name())
        .got(dtype_of(ctx, out)?.name()))
}

/// Where a call has its operands.
#[derive(Clone, Copy)]
struct Places {
    inputs: &'static [usize],
    out: usize,
}

fn bind(args: &mut BindArgs<'_>, places: Places) -> Result<()> {
    let view = args.args();
    let mut shape = *view.tensor(places.inputs[0])?.shape();
    for i in &places.inputs[1..] {
        shape = broadcast(&shape, view.tensor(*i)?.shape())?;
    }
    args.resize(places.out, &shape)
}

/// Computes `f` of the operands at every place, in the output's order of memory.
fn each(
    args: &Args<'_>,
    places: Places,
    f: impl Fn([Complex64; 3]) -> Complex64,
    mut store: impl FnMut(usize, &[Complex64]) -> Result<()>,
) -> Result<()> {
    let out = args.tensor(places.out)?;
    let mut readers: [Option<(ComplexReader<'_>, Walk)>; 3] = [None, None, None];
    for (slot, i) in readers.iter_mut().zip(places.inputs) {
        let x = args.tensor(*i)?;
        *slot = Some((ComplexReader::new(x)?, Walk::broadcast(out.meta(), [x.meta()])));
    }
    let mut blocks = [[Complex64::default(); BLOCK]; 3];
    for at in (0..out.numel()).step_by(BLOCK) {
        let n = (out.numel() - at).min(BLOCK);
        for (reader, block) in readers.iter().zip(&mut blocks) {
            if let Some((reader, walk)) = reader {
                reader.gather(walk, at, &mut block[..n])?;
            }
        }
        let [a, b, c] = &mut blocks;
        for i in 0..n {
            a[i] = f([a[i], b[i], c[i]]);
        }
        store(at, &a[..n])?;
    }
    Ok(())
}

/// A complex result.
fn complex(args: &Args<'_>, places: Places, f: impl Fn([Complex64; 3]) -> Complex64) -> Result<()> {
    let out = args.output(places.out)?.into_slice::<Complex64>()?;
    each(args, places, f, |at, block| {
        let part = out.get_mut(at..at + block.len());
        part.ok_or_else(|| Error::internal("a block lies outside the output"))?.copy_from_slice(block);
        Ok(())
    })
}

/// A real result: the real part of what `f` gives.
fn real(args: &Args<'_>, places: Places, f: impl Fn([Complex64; 3]) -> Complex64) -> Result<()> {
    let mut out = Writer::<f32>::new(args.output(places.out)?)?;
    let mut parts = [0f32; BLOCK];
    each(args, places, f, |at, block| {
        for (part, value) in parts.iter_mut().zip(block) {
            *part = value.re;
        }
        out.write(at as isize, 1, &parts[..block.len()])
    })
}

fn polar(length: f32, angle: f32) -> Complex64 {
    number(length * angle.cos(), length * angle.sin())
}

fn exponential(z: Complex64) -> Complex64 {
    let length = z.re.exp();
    if z.im == 0.0 {
        return number(length, z.im);
    }
    if z.re == f32::NEG_INFINITY && !z.im.is_finite() {
        return number(0.0, 0.0);
    }
    if z.re == f32::INFINITY && !z.im.is_finite() {
        return number(f32::INFINITY, f32::NAN);
    }
    polar(length, z.im)
}

/// `other` times `alpha`.
fn scaled(args: &Args<'_>, at: usize) -> Result<impl Fn(Complex64) -> Complex64> {
    let alpha = args.scalar(at)?.to_f64() as f32;
    Ok(move |z: Complex64| if alpha == 1.0 { z } else { number(z.re * alpha, z.im * alpha) })
}

/// Kernels: `name: operands, output, result dtype, how it is stored, |args| function`.
macro_rules! kernels {
    ($($name:ident: $inputs:expr, $out:literal, $dtype:ident, $store:ident, |$args:ident| $f:expr;)*) => { $(
        pub(crate) fn $name(ctx: &PrepareContext<'_>) -> Preparation {
            const PLACES: Places = Places { inputs: $inputs, out: $out };
            if !is_complex(ctx, PLACES.inputs) {
                return ctx.decline("takes complex tensors");
            }
            check(ctx, PLACES.inputs, $out, DType::$dtype)?;
            Routine::prepare(|args| bind(args, PLACES), |$args, _| $store($args, PLACES, $f))
        }
    )* };
}

fn truth(yes: bool) -> Complex64 {
    number(f32::from(u8::from(yes)), 0.0)
}

kernels! {
    add: &[0, 1], 3, Complex64, complex, |args| {
        let scale = scaled(args, 2)?;
        move |[a, b, _]| {
            let b = scale(b);
            number(a.re + b.re, a.im + b.im)
        }
    };
    sub: &[0, 1], 3, Complex64, complex, |args| {
        let scale = scaled(args, 2)?;
        move |[a, b, _]| {
            let b = scale(b);
            number(a.re - b.re, a.im - b.im)
        }
    };
    mul: &[0, 1], 2, Complex64, complex, |_args| |[a, b, _]| times(a, b);
    div: &[0, 1], 2, Complex64, complex, |_args| |[a, b, _]| over(a, b);
    add_number: &[0], 3, Complex64, complex, |args| {
        let other = (args.scalar(1)?.to_f64() * args.scalar(2)?.to_f64()) as f32;
        move |[a, ..]| number(a.re + other, a.im)
    };
    sub_number: &[0], 3, Complex64, complex, |args| {
        let other = (args.scalar(1)?.to_f64() * args.scalar(2)?.to_f64()) as f32;
        move |[a, ..]| number(a.re - other, a.im)
    };
    mul_number: &[0], 2, Complex64, complex, |args| {
        let other = number(args.scalar(1)?.to_f64() as f32, 0.0);
        move |[a, ..]| times(a, other)
    };
    div_number: &[0], 2, Complex64, complex, |args| {
        let other = number(args.scalar(1)?.to_f64() as f32, 0.0);
        move |[a, ..]| over(a, other)
    };
    eq: &[0, 1], 2, Bool, real, |_args| |[a, b, _]| truth(a == b);
    ne: &[0, 1], 2, Bool, real, |_args| |[a, b, _]| truth(a != b);
    choose: &[0, 1, 2], 3, Complex64, complex, |_args| |[c, a, b]| if c.re != 0.0 { a } else { b };
    neg: &[0], 1, Complex64, complex, |_args| |[z, ..]| number(-z.re, -z.im);
    conj: &[0], 1, Complex64, complex, |_args| |[z, ..]| number(z.re, -z.im);
    reciprocal: &[0], 1, Complex64, complex, |_args| |[z, ..]| over(number(1.0, 0.0), z);
    square: &[0], 1, Complex64, complex, |_args| |[z, ..]| times(z, z);
    exp: &[0], 1, Complex64, complex, |_args| |[z, ..]| exponential(z);
    log: &[0], 1, Complex64, complex, |_args| |[z, ..]| number(z.re.hypot(z.im).ln(), z.im.atan2(z.re));
    abs: &[0], 1, Float32, real, |_args| |[z, ..]| number(z.re.hypot(z.im), 0.0);
    angle: &[0], 1, Float32, real, |_args| |[z, ..]| number(z.im.atan2(z.re), 0.0);
    isnan: &[0], 1, Bool, real, |_args| |[z, ..]| truth(z.re.is_nan() || z.im.is_nan());
}
