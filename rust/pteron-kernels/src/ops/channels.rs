//! Operators that take channels apart: pixel_shuffle, pixel_unshuffle.
//!
//! Shape: channels are traded for pixels. Dtype: any. Edge cases: extents that do not divide are errors.

use crate::operator::{Operator, kernel};
use crate::ops::layout::copy_in_chunks;
use crate::routine::Preparation;
use crate::strided::copy::{RegionCopy, StridedRegion};
use pteron_core::{Args, BindArgs, Dims, Error, PrepareContext, Result};

/// The factor, checked against channels (down: against height and width).
fn factor(args: &Args<'_>, is_up: bool) -> Result<usize> {
    let (x, r) = (args.tensor(0)?, args.int(1)?);
    let rank = x.rank();
    let factor = usize::try_from(r)
        .ok()
        .filter(|r| *r > 0 && rank >= 3 && rank + 2 <= pteron_core::MAX_RANK)
        .filter(|r| {
            let shape = x.shape();
            if is_up {
                r.checked_mul(*r).is_some_and(|rr| shape[rank - 3] % rr == 0)
            } else {
                shape[rank - 1] % r == 0 && shape[rank - 2] % r == 0
            }
        });
    factor.ok_or_else(|| {
        Error::kernel("the factor does not divide the extents")
            .argument("factor")
            .got(format!("{r} for {}", x.shape()))
    })
}

fn bind_shuffle(args: &mut BindArgs<'_>, is_up: bool) -> Result<()> {
    let view = args.args();
    let r = factor(&view, is_up)?;
    let mut shape = *view.tensor(0)?.shape();
    let rank = shape.len();
    let too_large = || Error::kernel("the result is too large");
    if is_up {
        shape[rank - 3] /= r * r;
        for d in [rank - 2, rank - 1] {
            shape[d] = shape[d].checked_mul(r).ok_or_else(too_large)?;
        }
    } else {
        shape[rank - 3] =
            r.checked_mul(r).and_then(|rr| rr.checked_mul(shape[rank - 3])).ok_or_else(too_large)?;
        shape[rank - 2] /= r;
        shape[rank - 1] /= r;
    }
    args.resize(2, &shape)
}

/// A copy between views of the tensor with few channels and of the one with many, as `[.., C, r, r, H, W]`.
fn shuffle(args: &Args<'_>, is_up: bool) -> Result<RegionCopy> {
    let r = factor(args, is_up)?;
    let x = args.tensor(0)?;
    let y = args.output(2)?;
    let rank = x.rank();
    let (few, many) = if is_up { (y.meta(), x.meta()) } else { (x.meta(), y.meta()) };
    let mut shape = Dims::new(&few.shape()[..rank - 2])?;
    for extent in [r, r, many.shape()[rank - 2], many.shape()[rank - 1]] {
        shape.push(extent)?;
    }
    let (mut wide, mut deep) = (StridedRegion::of(few.strides()), StridedRegion::of(many.strides()));
    let (h, w) = (wide.strides[rank - 2], wide.strides[rank - 1]);
    wide.strides[rank - 2..rank + 2].copy_from_slice(&[h, w, h * r as isize, w * r as isize]);
    let (c, h, w) = (deep.strides[rank - 3], deep.strides[rank - 2], deep.strides[rank - 1]);
    let r = r as isize;
    deep.strides[rank - 3..rank + 2].copy_from_slice(&[c * r * r, c * r, c, h, w]);
    let (from, to) = if is_up { (deep, wide) } else { (wide, deep) };
    RegionCopy::new(&shape, from, x.numel(), to, y.numel())
}

fn prepare_shuffle<const UP: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    copy_in_chunks(ctx, 2, |args| {
        bind_shuffle(args, UP)?;
        shuffle(&args.args(), UP)
    })
}

/// Pixel shuffles.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::pixel_shuffle.out(Tensor self, int upscale_factor, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_shuffle::<true>,
    ),
    kernel(
        "aten::pixel_unshuffle.out(Tensor self, int downscale_factor, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_shuffle::<false>,
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn shuffles_are_inverse() {
        let x = Tensor::of(&[4, 1, 2], &[1u8, 2, 3, 4, 5, 6, 7, 8]);
        let up =
            run_out("aten::pixel_shuffle.out", &[x.clone().into(), 2i64.into()], DType::UInt8, &[1, 2, 4])
                .unwrap();
        assert_eq!(up.values::<u8>(), [1, 3, 2, 4, 5, 7, 6, 8]);
        let down = run_out("aten::pixel_unshuffle.out", &[up.into(), 2i64.into()], DType::UInt8, &[4, 1, 2])
            .unwrap();
        assert_eq!(down.values::<u8>(), x.values::<u8>());
        for bad in [0i64, 3, i64::MAX] {
            let e =
                run_out("aten::pixel_shuffle.out", &[x.clone().into(), bad.into()], DType::UInt8, &[1, 2, 4]);
            assert!(error_text(e).contains("factor"));
        }
    }
}
