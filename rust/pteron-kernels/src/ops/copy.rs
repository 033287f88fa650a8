//! Copies with the same extents: clone, copy, dtype and dim-order conversions.
//!
//! Shape: that of `self` (`copy` broadcasts `src` to it). Dtype: whatever the output has; floats
//! become integers by truncation. Edge cases: equal dtypes move as bytes, so every dtype is copied,
//! complex and eight-bit floats included. `casts` is the fast kernel of conversions.

use crate::compute::{Class, Kind};
use crate::elementwise::plain::{Dtypes, Positions, both_floats, complex};
use crate::operator::{Operator, kernel, operator};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::check_expandable;
use crate::strided::copy::copy_whole;
use crate::strided::loops::broadcast_strides;
use crate::strided::view_copy;
use crate::strided::views::View;
use pteron_core::{BindArgs, Error, PrepareContext, Result};

#[allow(unsafe_code, reason = "a SIMD task converts numbers that it has found to fit")]
mod casts;

/// An elementwise copy that converts.
fn convert(ctx: &PrepareContext<'_>, positions: Positions) -> Preparation {
    let input = positions.inputs.first().copied().unwrap_or(0);
    let (from, to) = (dtype_of(ctx, input)?, dtype_of(ctx, positions.out)?);
    let (source, target) = (Kind::of(from).ok(), Kind::of(to).ok());
    if source.is_none() || target.is_none() {
        return Err(
            Error::kernel("these dtypes do not convert into each other").got(format!("{from} to {to}"))
        );
    }
    if source == Some(Kind::Complex) || target == Some(Kind::Complex) {
        // Of a complex number the real part is kept, as PyTorch does.
        return complex(ctx, positions, Dtypes { common: from, result: to }, |a, _, _, _| a);
    }
    both_floats!(ctx, positions, Dtypes { common: from, result: to }, |a, _, _, _| a, int a)
}

fn bind_like_self<const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = *args.args().tensor(0)?.shape();
    args.resize(OUT, &shape)
}

/// `self` to the output at `OUT`.
fn duplicate<const OUT: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    if dtype_of(ctx, 0)? == dtype_of(ctx, OUT)? {
        return Routine::prepare(bind_like_self::<OUT>, |args, _| {
            copy_whole(&args.tensor(0)?, &mut args.output(OUT)?)
        });
    }
    convert(
        ctx,
        match OUT {
            1 => Positions { inputs: &[0], scalars: &[], out: 1, shape_of: None },
            2 => Positions { inputs: &[0], scalars: &[], out: 2, shape_of: None },
            _ => Positions { inputs: &[0], scalars: &[], out: 3, shape_of: None },
        },
    )
}

fn copy_out(ctx: &PrepareContext<'_>) -> Preparation {
    let (src, out) = (dtype_of(ctx, 1)?, dtype_of(ctx, 3)?);
    if dtype_of(ctx, 0)? != out {
        return Err(Error::kernel("copy keeps the dtype of self").argument("out").got(out.name()));
    }
    if src != out {
        return convert(ctx, Positions { inputs: &[1], scalars: &[], out: 3, shape_of: Some(0) });
    }
    Routine::prepare(bind_like_self::<3>, |args, _| copy_broadcast(&args.tensor(1)?, &mut args.output(3)?))
}

fn copy_broadcast(src: &pteron_core::TensorView<'_>, out: &mut pteron_core::TensorViewMut<'_>) -> Result<()> {
    use crate::strided::copy::{StridedRegion, copy_region};
    check_expandable(src.shape(), out.shape())?;
    let from =
        StridedRegion { offset: 0, strides: broadcast_strides(src.shape(), src.strides(), out.rank()) };
    copy_region(out.shape(), src, from, out, StridedRegion::of(out.strides()))
}

/// `copy_` may copy a tensor onto itself, hence elementwise where the dtype allows it.
fn copy_in_place(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = dtype_of(ctx, 0)?;
    if Class::of(dtype).is_none() && dtype_of(ctx, 1)? == dtype {
        return Routine::prepare(
            |_| Ok(()),
            |args, _| copy_broadcast(&args.tensor(1)?, &mut args.output(0)?),
        );
    }
    convert(ctx, Positions { inputs: &[1], scalars: &[], out: 0, shape_of: Some(0) })
}

/// A row whose kernels copy `self` to the output at a position.
macro_rules! copy_row {
    ($schema:literal, $name:literal, $out:literal) => {
        operator($schema)
            .fast("strided", |ctx| view_copy::prepare(ctx, $name, $out, |_, x| Ok(View::of(x))))
            .plain(duplicate::<$out>)
    };
}

/// clone and its kin.
pub static OPERATORS: &[Operator] = &[
    copy_row!(
        "aten::clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        "clone",
        2
    ),
    copy_row!("aten::alias_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "alias_copy", 1),
    // From and to a device that has the same memory.
    kernel("et_copy::_h2d_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", duplicate::<1>),
    kernel("et_copy::_d2h_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", duplicate::<1>),
    // What a partitioner of ExecuTorch puts where a value goes on undelegated.
    kernel("llama::fallback.out(Tensor input, *, Tensor(a!) output) -> Tensor(a!)", duplicate::<1>),
    copy_row!("aten::detach_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "detach_copy", 1),
    copy_row!("aten::lift_fresh_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "lift_fresh_copy", 1),
    kernel(
        "aten::_to_copy.out(Tensor self, *, bool non_blocking=False, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
        duplicate::<3>,
    )
    .fast("cast", casts::prepare),
    copy_row!(
        "dim_order_ops::_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)",
        "to_dim_order_copy",
        3
    )
    .fast("cast", casts::prepare),
    copy_row!(
        "dim_order_ops::_clone_dim_order.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)",
        "clone_dim_order",
        3
    ),
    kernel(
        "aten::copy.out(Tensor self, Tensor src, bool non_blocking=False, *, Tensor(a!) out) -> Tensor(a!)",
        copy_out,
    ),
    kernel("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", copy_in_place),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use half::f16;
    use pteron_core::{Bool8, Complex64, DType};

    #[test]
    fn conversions() {
        let x = Tensor::of(&[4], &[300.0f32, -1.0, f32::NAN, 0.5]);
        let to =
            |d| run_out("aten::_to_copy.out", &[x.clone().into(), false.into(), Arg::None], d, &[4]).unwrap();
        assert_eq!(to(DType::UInt8).values::<u8>(), [44, 255, 0, 0]);
        assert_eq!(to(DType::Bool).values::<Bool8>(), [Bool8(1); 4]);
        assert_eq!(to(DType::Float16).values::<f16>()[0].to_f32(), 300.0);
    }

    #[test]
    fn dim_orders_are_converted() {
        let x = Tensor::of(&[1, 2, 1, 3], &[1i16, 2, 3, 4, 5, 6]);
        let out = Tensor::output(DType::Int16, &[1, 2, 1, 3]).in_order(&[0, 2, 3, 1]);
        let args = [x.into(), false.into(), Arg::None, out.into()];
        let Some(Arg::Tensor(y)) = call("dim_order_ops::_to_dim_order_copy.out", &args).unwrap().pop() else {
            panic!("no tensor")
        };
        assert_eq!(y.values::<i16>(), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn complex_numbers_are_copied_and_lose_their_imaginary_part_to_real_ones() {
        let x = Tensor::of(&[1], &[Complex64 { re: 1.0, im: 2.0 }]);
        let y = run_out("aten::alias_copy.out", &[x.clone().into()], DType::Complex64, &[1]).unwrap();
        assert_eq!(y.values::<Complex64>()[0].im, 2.0);
        let y = run_out("aten::alias_copy.out", &[x.into()], DType::Float32, &[1]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0]);
    }

    #[test]
    fn copies_between_devices_are_copies() {
        for operator in ["et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out", "llama::fallback.out"] {
            let y = run_out(operator, &[Tensor::of(&[2], &[1i32, -2]).into()], DType::Int32, &[2]).unwrap();
            assert_eq!(y.values::<i32>(), [1, -2]);
        }
    }

    #[test]
    fn copy_in_place_broadcasts_the_source() {
        let dst = Tensor::output(DType::Float32, &[2, 2]);
        let src = Tensor::of(&[2], &[1i32, 2]);
        let Arg::Tensor(y) =
            call("aten::copy_", &[dst.clone().into(), src.into(), false.into()]).unwrap().remove(0)
        else {
            panic!("no tensor")
        };
        assert_eq!(y.values::<f32>(), [1.0, 2.0, 1.0, 2.0]);
        let big = Tensor::of(&[3, 2, 2], &[0f32; 12]);
        assert!(
            error_text(call("aten::copy_", &[dst.into(), big.into(), false.into()])).contains("broadcast")
        );
    }
}
