//! Resampling of images: nearest and bilinear.
//!
//! Shape: the output size, or the input size times the scale factors, rounded down. Dtype: floats
//! (nearest: any number); coordinates are computed as PyTorch does, in float32 unless the image is
//! float64. Edge cases: exactly one of size and factors is given.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::routine::{Preparation, Routine, dtype_of, kernel};
use crate::shape::check_rank;
use pteron_core::{Args, BindArgs, Error, Result, StaticKernel};

/// Output extents, and the inverse scale where a factor was given.
struct Target {
    size: [usize; 2],
    factors: [Option<f64>; 2],
}

/// Where the arguments of a form stand.
#[derive(Clone, Copy)]
struct Form {
    size: usize,
    align: Option<usize>,
    /// A list of factors, or the first of two single factors.
    factors: usize,
    is_list: bool,
    out: usize,
}

fn target(args: &Args<'_>, form: Form) -> Result<Target> {
    let x = args.tensor(0)?;
    check_rank("the input", 4, x.shape())?;
    if x.shape()[1..].contains(&0) {
        return Err(Error::kernel("an empty image cannot be resampled").argument("input").got(x.shape().to_string()));
    }
    let wrong = |name: &str| Error::kernel("two extents or two positive factors are needed").argument(name);
    let factors = if form.is_list {
        match args.optional_double_list(form.factors)? {
            Some(&[h, w]) => [Some(h), Some(w)],
            Some(_) => return Err(wrong("scale_factors")),
            None => [None, None],
        }
    } else {
        [args.optional_double(form.factors)?, args.optional_double(form.factors + 1)?]
    };
    if factors.iter().flatten().any(|f| !(f.is_finite() && *f > 0.0)) {
        return Err(wrong("scale_factors"));
    }
    let size = match args.optional_int_list(form.size)? {
        Some(list) if list.len() == 2 => {
            let size = list.to_dims()?;
            [size[0], size[1]]
        }
        Some(_) => return Err(wrong("output_size")),
        None => match factors {
            [Some(h), Some(w)] => [(x.shape()[2] as f64 * h) as usize, (x.shape()[3] as f64 * w) as usize],
            _ => return Err(wrong("output_size")),
        },
    };
    if size.contains(&0) {
        return Err(Error::kernel("the output would be empty").argument("output_size").got(format!("{size:?}")));
    }
    Ok(Target { size, factors })
}

fn bind(args: &mut BindArgs<'_>, form: Form) -> Result<()> {
    let view = args.args();
    let target = target(&view, form)?;
    let mut shape = *view.tensor(0)?.shape();
    (shape[2], shape[3]) = (target.size[0], target.size[1]);
    args.resize(form.out, &shape)
}

/// The float32 step of coordinates, as PyTorch rounds it.
fn step(input: usize, output: usize, factor: Option<f64>, in_double: bool) -> f64 {
    let exact = factor.map_or(input as f64 / output as f64, |f| 1.0 / f);
    match (factor, in_double) {
        (_, true) => exact,
        (Some(f), false) => f64::from((1.0 / f) as f32),
        (None, false) => f64::from(input as f32 / output as f32),
    }
}

fn nearest<C: Compute>(args: &Args<'_>, form: Form) -> Result<()> {
    let target = target(args, form)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let mut y = Writer::<C>::new(args.output(form.out)?)?;
    let (shape, from, to) = (x.meta().shape(), x.meta().strides(), y.meta().strides());
    let source = |d: usize, o: usize| {
        let (input, output) = (shape[2 + d], target.size[d]);
        let at = (o as f32 * step(input, output, target.factors[d], false) as f32).floor() as usize;
        at.min(input - 1)
    };
    for n in 0..shape[0] {
        for c in 0..shape[1] {
            for h in 0..target.size[0] {
                let row = n * from[0] + c * from[1] + source(0, h) * from[2];
                let out = n * to[0] + c * to[1] + h * to[2];
                for w in 0..target.size[1] {
                    y.put(out + w * to[3], x.get(row + source(1, w) * from[3])?)?;
                }
            }
        }
    }
    Ok(())
}

/// Two neighbours of an output coordinate and the weight of the second.
fn neighbours(o: usize, input: usize, output: usize, factor: Option<f64>, align: bool, in_double: bool) -> (usize, usize, f64) {
    let round = |v: f64| if in_double { v } else { f64::from(v as f32) };
    let at = if align {
        let scale = if output > 1 { round((input as f64 - 1.0) / (output as f64 - 1.0)) } else { 0.0 };
        round(scale * o as f64)
    } else {
        let scale = step(input, output, factor, in_double);
        round(round(scale * round(o as f64 + 0.5)) - 0.5).max(0.0)
    };
    let first = (at as usize).min(input - 1);
    (first, (first + 1).min(input - 1), round(at - first as f64).clamp(0.0, 1.0))
}

fn bilinear(args: &Args<'_>, form: Form) -> Result<()> {
    let target = target(args, form)?;
    let align = form.align.map_or(Ok(false), |i| args.bool(i))?;
    let x = args.tensor(0)?;
    let in_double = x.dtype().size() == 8;
    let x = Reader::<f64>::new(x)?;
    let mut y = Writer::<f64>::new(args.output(form.out)?)?;
    let (shape, from, to) = (x.meta().shape(), x.meta().strides(), y.meta().strides());
    let side = |d: usize, o: usize| neighbours(o, shape[2 + d], target.size[d], target.factors[d], align, in_double);
    for n in 0..shape[0] {
        for c in 0..shape[1] {
            let (plane, out) = (n * from[0] + c * from[1], n * to[0] + c * to[1]);
            for h in 0..target.size[0] {
                let (h0, h1, hw) = side(0, h);
                for w in 0..target.size[1] {
                    let (w0, w1, ww) = side(1, w);
                    let at = |h: usize, w: usize| x.get(plane + h * from[2] + w * from[3]);
                    let top = at(h0, w0)? * (1.0 - ww) + at(h0, w1)? * ww;
                    let bottom = at(h1, w0)? * (1.0 - ww) + at(h1, w1)? * ww;
                    y.put(out + h * to[2] + w * to[3], top * (1.0 - hw) + bottom * hw)?;
                }
            }
        }
    }
    Ok(())
}

const NEAREST_LIST: Form = Form { size: 1, align: None, factors: 2, is_list: true, out: 3 };
const NEAREST: Form = Form { size: 1, align: None, factors: 2, is_list: false, out: 4 };
const BILINEAR_LIST: Form = Form { size: 1, align: Some(2), factors: 3, is_list: true, out: 4 };
const BILINEAR: Form = Form { size: 1, align: Some(2), factors: 3, is_list: false, out: 5 };

fn prepare_nearest(ctx: &pteron_core::PrepareContext<'_>, is_list: bool) -> Preparation {
    same_dtype(ctx, 0, if is_list { 3 } else { 4 })?;
    let is_int = match Class::of(dtype_of(ctx, 0)?) {
        Some(class) => class == Class::I64,
        None => return Err(Error::kernel("the operator does not support this dtype").got(dtype_of(ctx, 0)?.name())),
    };
    match (is_list, is_int) {
        (true, true) => Routine::prepare(|a| bind(a, NEAREST_LIST), |a, _| nearest::<i64>(a, NEAREST_LIST)),
        (true, false) => Routine::prepare(|a| bind(a, NEAREST_LIST), |a, _| nearest::<f64>(a, NEAREST_LIST)),
        (false, true) => Routine::prepare(|a| bind(a, NEAREST), |a, _| nearest::<i64>(a, NEAREST)),
        (false, false) => Routine::prepare(|a| bind(a, NEAREST), |a, _| nearest::<f64>(a, NEAREST)),
    }
}

/// Resampling.
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::upsample_nearest2d.vec_out(Tensor input, SymInt[]? output_size, float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare_nearest(ctx, true),
    ),
    kernel(
        "aten::upsample_nearest2d.out(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare_nearest(ctx, false),
    ),
    kernel(
        "aten::upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 4)?;
            check_float(ctx, 4)?;
            Routine::prepare(|a| bind(a, BILINEAR_LIST), |a, _| bilinear(a, BILINEAR_LIST))
        },
    ),
    kernel(
        "aten::upsample_bilinear2d.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 5)?;
            check_float(ctx, 5)?;
            Routine::prepare(|a| bind(a, BILINEAR), |a, _| bilinear(a, BILINEAR))
        },
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn both_kinds_and_both_ways_to_say_the_size() {
        let x = Tensor::of(&[1, 1, 1, 3], &[0f32, 1.0, 2.0]);
        let args = [x.clone().into(), Arg::None, Arg::DoubleList(vec![1.0, 1.5])];
        let y = run_out("aten::upsample_nearest2d.vec_out", &args, DType::Float32, &[1, 1, 1, 4]).unwrap();
        assert_eq!(y.values::<f32>(), [0.0, 0.0, 1.0, 2.0]);
        let args = [x.clone().into(), vec![1, 5].into(), true.into(), Arg::None];
        let y = run_out("aten::upsample_bilinear2d.vec_out", &args, DType::Float32, &[1, 1, 1, 5]).unwrap();
        assert_eq!(y.values::<f32>(), [0.0, 0.5, 1.0, 1.5, 2.0]);
        let args = [x.into(), Arg::None, Arg::DoubleList(vec![f64::NAN, 1.0])];
        let e = run_out("aten::upsample_nearest2d.vec_out", &args, DType::Float32, &[1, 1, 1, 3]);
        assert!(error_text(e).contains("factors"));
    }
}
