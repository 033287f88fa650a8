//! Complex numbers from pairs of floats and angles of real ones: view_as_complex_copy, complex, polar, angle.
//!
//! Shape: view_as_complex_copy drops a last dimension of two; the others broadcast. Dtype: complex64 of
//! float32; angle keeps floats and makes integers float32. Edge cases: the angle of a real number is pi below
//! zero, 0 otherwise, NaN for NaN.

use crate::compute::BLOCK;
use crate::elements::Reader;
use crate::elementwise::lanewise::{self, lanes};
use crate::elementwise::plain::{Dtypes, Positions, float};
use crate::operator::{Operator, kernel};
use crate::ops::{complex_angle, complex_elementwise};
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::broadcast;
use crate::strided::loops::Walk;
use pteron_core::{Args, BindArgs, Complex64, DType, Element, Error, PrepareContext, Result};

/// Floats that have an angle.
trait Turn: Element + PartialOrd {
    const HALF: Self;
    const NONE: Self;
}
impl Turn for f32 {
    const HALF: f32 = std::f32::consts::PI;
    const NONE: f32 = 0.0;
}
impl Turn for f64 {
    const HALF: f64 = std::f64::consts::PI;
    const NONE: f64 = 0.0;
}

lanes! {
    /// The angle of a real number; NaN is its own.
    Angle: [T: Turn] T => T = "angle", 6, |_s, [x]| {
        let upright = if x >= T::NONE { T::NONE } else { x };
        if x < T::NONE { T::HALF } else { upright }
    };
}

fn bind_view(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    match shape.split_last() {
        Some((2, rest)) => args.resize(1, rest),
        _ => Err(Error::kernel("complex numbers are pairs")
            .argument("self")
            .expected("a last dimension of 2")
            .got(shape.to_string())),
    }
}

fn from_pairs(args: &Args<'_>) -> Result<()> {
    let x = Reader::<f32>::new(args.tensor(0)?)?;
    let from = row_major(x.meta());
    let to = row_major(args.output(1)?.meta());
    let out = args.output(1)?.into_slice::<Complex64>()?;
    for position in 0..out.len() {
        let part = |i: usize| x.get(from.offset(2 * position + i) as usize);
        let number = Complex64 { re: part(0)?, im: part(1)? };
        if let Some(slot) = out.get_mut(to.offset(position) as usize) {
            *slot = number;
        }
    }
    Ok(())
}

fn check(ctx: &PrepareContext<'_>, inputs: &[usize], out: usize) -> Result<()> {
    for i in inputs {
        if dtype_of(ctx, *i)? != DType::Float32 {
            return Err(Error::kernel("complex64 is made of float32")
                .expected("float32")
                .got(dtype_of(ctx, *i)?.name()));
        }
    }
    if dtype_of(ctx, out)? != DType::Complex64 {
        return Err(Error::kernel("the output is complex64").argument("out").got(dtype_of(ctx, out)?.name()));
    }
    Ok(())
}

fn bind_pair(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = broadcast(view.tensor(0)?.shape(), view.tensor(1)?.shape())?;
    args.resize(2, &shape)
}

fn pair(args: &Args<'_>, f: impl Fn(f32, f32) -> Complex64) -> Result<()> {
    let (a, b) = (Reader::<f32>::new(args.tensor(0)?)?, Reader::<f32>::new(args.tensor(1)?)?);
    let view = args.output(2)?;
    let walk = |x: &Reader<'_, f32>| Walk::broadcast(view.meta(), [x.meta()]);
    let (walk_a, walk_b) = (walk(&a), walk(&b));
    let out = view.into_slice::<Complex64>()?;
    let (mut first, mut second) = ([0f32; BLOCK], [0f32; BLOCK]);
    for (i, part) in out.chunks_mut(BLOCK).enumerate() {
        a.gather(&walk_a, 0, i * BLOCK, &mut first[..part.len()])?;
        b.gather(&walk_b, 0, i * BLOCK, &mut second[..part.len()])?;
        for ((slot, a), b) in part.iter_mut().zip(&first).zip(&second) {
            *slot = f(*a, *b);
        }
    }
    Ok(())
}

/// Pairs and angles.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::view_as_complex_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| -> Preparation {
            check(ctx, &[0], 1)?;
            Routine::prepare(bind_view, |args, _| from_pairs(args))
        },
    ),
    kernel("aten::complex.out(Tensor real, Tensor imag, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check(ctx, &[0, 1], 2)?;
        Routine::prepare(bind_pair, |args, _| pair(args, |re, im| Complex64 { re, im }))
    }),
    kernel("aten::polar.out(Tensor abs, Tensor angle, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check(ctx, &[0, 1], 2)?;
        Routine::prepare(bind_pair, |args, _| {
            pair(args, |length, angle| Complex64 { re: length * angle.cos(), im: length * angle.sin() })
        })
    }),
    kernel("aten::angle.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        let dtypes = Dtypes::same(Positions::UNARY.promoted_to_float(ctx)?);
        let turn = std::f64::consts::PI;
        float(
            ctx,
            Positions::UNARY,
            dtypes,
            move |x, _, _, _| {
                if x.is_nan() {
                    x
                } else if x < 0.0 {
                    turn as f32
                } else {
                    0.0
                }
            },
            move |x, _, _, _| {
                if x.is_nan() {
                    x
                } else if x < 0.0 {
                    turn
                } else {
                    0.0
                }
            },
        )
    })
    .doubles::<Angle, 1>()
    .fast("single", lanewise::prepare::<Angle, f32, 1>)
    .fast("complex", complex_angle::prepare)
    .complex64(complex_elementwise::angle),
];
