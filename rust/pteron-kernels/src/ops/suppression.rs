//! torchvision's nms: of boxes that overlap, the one with the highest score.
//!
//! Shape: boxes `[N, 4]` (two corners) and scores `[N]` give the positions of those that are kept, at most N, by falling
//! score; known after the run. Dtype: float32 or float64; positions are int64. Edge cases: equal scores keep their
//! order, a NaN score comes first; comparisons with NaN are torchvision's, so that a box with NaN may be suppressed by
//! another corner; a box without area suppresses none that has as little.

use crate::elements::Reader;
use crate::grid_kernel::{Preparation, take_scratch};
use crate::operator::{Operator, kernel};
use crate::ops::data_dependent::no_room;
use crate::ops::layout::same_dtype;
use crate::ops::real::Real;
use crate::ordering::{Entries, Line, scratch_bytes};
use crate::routine::{Finding, dtype_of};
use crate::shape::{check_rank, check_same};
use crate::strided::loops::Walk;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};

/// The output's position in the arguments.
const OUT: usize = 3;

fn bind(args: &mut BindArgs<'_>, found: Option<usize>) -> Result<()> {
    let view = args.args();
    let (boxes, scores) = (view.tensor(0)?, view.tensor(1)?);
    check_rank("the list of boxes", 2, boxes.shape()).map_err(|e| e.argument("dets"))?;
    if boxes.shape()[1] != 4 {
        return Err(Error::kernel("a box has two corners")
            .argument("dets")
            .expected("[N, 4]")
            .got(boxes.shape().to_string()));
    }
    check_same("the list of scores", &boxes.shape()[..1], scores.shape())
        .map_err(|e| e.argument("scores"))?;
    let room = args.bound(OUT)?.first().copied().unwrap_or(0);
    let most = boxes.shape()[0].min(room);
    args.resize(OUT, &[found.unwrap_or(most)])
}

/// Boxes in the order of their scores.
struct Boxes<'a, T> {
    x1: &'a mut [T],
    y1: &'a mut [T],
    x2: &'a mut [T],
    y2: &'a mut [T],
    area: &'a mut [T],
    /// Not zero: a better box overlaps this one.
    gone: &'a mut [u32],
}

/// `std::max` and `std::min` of C++, which say what becomes of NaN.
#[inline(always)]
fn larger<T: Real>(a: T, b: T) -> T {
    if a < b { b } else { a }
}
#[inline(always)]
fn smaller<T: Real>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// Marks what box `best` overlaps among those behind it.
struct Suppress<'a, 'b, T> {
    boxes: &'a mut Boxes<'b, T>,
    best: usize,
    limit: T,
}

impl<T: Real> SimdTask for Suppress<'_, '_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Suppress { boxes, best, limit } = self;
        let [x1, y1, x2, y2, area] = [&*boxes.x1, &*boxes.y1, &*boxes.x2, &*boxes.y2, &*boxes.area]
            .map(|values| values.split_at(best));
        let of_best = [x1.1[0], y1.1[0], x2.1[0], y2.1[0], area.1[0]];
        let gone = &mut boxes.gone[best + 1..];
        let n = gone.len();
        // Of one length, so that the loop has no checks and becomes vectors.
        let [x1, y1, x2, y2, area] = [x1, y1, x2, y2, area].map(|(_, rest)| &rest[1..][..n]);
        for i in 0..n {
            let (left, top) = (larger(of_best[0], x1[i]), larger(of_best[1], y1[i]));
            let (right, bottom) = (smaller(of_best[2], x2[i]), smaller(of_best[3], y2[i]));
            let (w, h) = (larger(T::ZERO, right - left), larger(T::ZERO, bottom - top));
            let common = w * h;
            gone[i] |= u32::from(common / (of_best[4] + area[i] - common) > limit);
        }
    }
}

/// Writes the positions of the boxes that are kept; their number.
fn suppress<T: Real>(args: &Args<'_>, scratch: &mut [u8], level: SimdLevel) -> Result<usize> {
    let (boxes, scores) = (Reader::<T>::new(args.tensor(0)?)?, Reader::<T>::new(args.tensor(1)?)?);
    let limit = T::at_most(args.double(2)?);
    let n = scores.meta().numel();
    if n == 0 {
        return Ok(0);
    }
    let out = args.output(OUT)?;
    let mut kept = out.into_slice::<i64>()?.iter_mut();
    let room = kept.len();
    let (words, mut rest) = scratch
        .split_at_mut_checked(scratch_bytes(n)?)
        .ok_or_else(|| Error::internal("worker scratch is too small for the order of the scores"))?;
    let walk = Walk::row_major(&[n], &[scores.meta().strides()[0] as isize]);
    let line = Line { walk: &walk, base: 0, is_narrow: size_of::<T>() == 4, descending: true };
    let order = Entries::first(&scores, line, n, words)?;
    let mut take = || take_scratch::<T>(&mut rest, n);
    let [x1, y1, x2, y2, area] = [take()?, take()?, take()?, take()?, take()?];
    let mut sorted = Boxes { x1, y1, x2, y2, area, gone: take_scratch(&mut rest, n)? };
    sorted.gone.fill(0);
    let strides = boxes.meta().strides();
    for i in 0..n {
        let at = order.position(i) * strides[0];
        let corner = |c: usize| boxes.get(at + c * strides[1]);
        let (x1, y1, x2, y2) = (corner(0)?, corner(1)?, corner(2)?, corner(3)?);
        (sorted.x1[i], sorted.y1[i], sorted.x2[i], sorted.y2[i]) = (x1, y1, x2, y2);
        sorted.area[i] = (x2 - x1) * (y2 - y1);
    }
    let mut found = 0;
    for i in 0..n {
        if sorted.gone[i] != 0 {
            continue;
        }
        *kept.next().ok_or_else(|| no_room(room))? = order.position(i) as i64;
        found += 1;
        level.dispatch(Suppress { boxes: &mut sorted, best: i, limit });
    }
    Ok(found)
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 1)?;
    if dtype_of(ctx, OUT)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("out").got(dtype_of(ctx, OUT)?.name()));
    }
    let dtype = dtype_of(ctx, 0)?;
    if !matches!(dtype, DType::Float32 | DType::Float64) {
        return Err(Error::kernel("boxes are float32 or float64").argument("dets").got(dtype.name()));
    }
    let most = ctx.tensor(1).and_then(|t| t.shape.first().copied()).unwrap_or(0);
    let each = 5 * dtype.size() + size_of::<u32>();
    let scratch = most
        .checked_mul(each)
        .and_then(|bytes| bytes.checked_add(scratch_bytes(most).ok()?))
        .ok_or_else(|| Error::limit("there are too many boxes").got(most.to_string()))?;
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let is_double = dtype == DType::Float64;
    Finding::prepare(
        scratch,
        Box::new(bind),
        Box::new(move |args, scratch| match is_double {
            true => suppress::<f64>(args, scratch.worker, level),
            false => suppress::<f32>(args, scratch.worker, level),
        }),
    )
}

/// Suppression.
pub static OPERATORS: &[Operator] = &[kernel(
    "torchvision::nms.out(Tensor dets, Tensor scores, float iou_threshold, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::{DType, Element};

    fn kept<T: Element>(boxes: &[T], scores: &[T], limit: f64, room: usize) -> Result<Vec<i64>, String> {
        let n = scores.len();
        let args = [Tensor::of(&[n, 4], boxes).into(), Tensor::of(&[n], scores).into(), limit.into()];
        match run_out("torchvision::nms.out", &args, DType::Int64, &[room]) {
            Ok(t) => Ok(t.values::<i64>()),
            Err(e) => Err(e.to_string()),
        }
    }

    #[test]
    fn the_best_of_boxes_that_overlap_is_kept() {
        let boxes = [0f32, 0., 4., 4., 0., 0., 4., 5., 9., 9., 12., 12., 0., 0., 4., 4.];
        assert_eq!(kept(&boxes, &[1., 2., 0.5, 1.], 0.5, 4).unwrap(), [1, 2]);
        // Equal scores keep their order; four fifths in float32 are more than in float64.
        assert_eq!(kept(&boxes, &[1., 1., 1., 1.], 0.8, 4).unwrap(), [0, 2]);
        // An overlap of exactly the limit is no reason.
        let half = [0f32, 0., 4., 4., 0., 0., 4., 8.];
        assert_eq!(kept(&half, &[1., 1.], 0.5, 2).unwrap(), [0, 1]);
        assert_eq!(kept::<f32>(&[], &[], 0.5, 0).unwrap(), []);
        assert!(kept(&boxes, &[1., 2., 0.5, 1.], 0.5, 1).unwrap_err().contains("at most 1"));
    }

    #[test]
    fn what_is_not_a_number_is_compared_as_torchvision_does() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let boxes =
            [[0., 0., 4., 4.], [nan, 0., 4., 4.], [0., 0., 4., 4.], [0., 0., inf, inf], [0.; 4], [0.; 4]];
        assert_eq!(kept(&boxes.concat(), &[1., 2., nan, 0.5, 0.4, 0.3], 0.5, 6).unwrap(), [2, 1, 3, 4, 5]);
        assert_eq!(kept(&boxes.concat(), &[6., 5., 4., 3., 2., 1.], nan, 6).unwrap(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn misfits_are_refused() {
        let boxes = Tensor::of(&[1, 4], &[0f32; 4]);
        let call = |scores: Tensor| {
            let args = [boxes.clone().into(), scores.into(), 0.5.into()];
            error_text(run_out("torchvision::nms.out", &args, DType::Int64, &[2]))
        };
        assert!(call(Tensor::of(&[2], &[0f32; 2])).contains("scores"));
        assert!(call(Tensor::of(&[1], &[0f64; 1])).contains("float64"));
        let five = [Tensor::of(&[1, 5], &[0f32; 5]).into(), Tensor::of(&[1], &[0f32]).into(), 0.5.into()];
        assert!(error_text(run_out("torchvision::nms.out", &five, DType::Int64, &[1])).contains("[N, 4]"));
    }
}
