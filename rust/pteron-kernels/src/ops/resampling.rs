//! Resampling of signals, images and volumes: nearest, linear and cubic. [`super::antialiasing`] has the
//! filters that average when an image shrinks.
//!
//! Shape: the output size, or the input size times the scale factors, rounded down. Dtype: floats
//! (nearest: any number); coordinates are computed as PyTorch does, in float32 unless the input is
//! float64. Edge cases: exactly one of size and factors is given; positions beyond an edge read the edge.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::ops::volume::{Volume, places, volumes, with_extents};
use crate::routine::{Preparation, Routine, dtype_of, kernel};
use crate::shape::check_rank;
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result, StaticKernel};

/// Where the arguments of a form stand; the size is argument 1.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) align: Option<usize>,
    /// A list of factors, or the first of the single factors.
    pub(crate) factors: usize,
    pub(crate) is_list: bool,
    pub(crate) out: usize,
}

/// One spatial dimension: extents, the factor where one was given, and how coordinates are computed.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) input: i64,
    pub(crate) output: i64,
    factor: Option<f64>,
    align: bool,
    in_double: bool,
}

/// Input positions that an output reads, with their weights.
#[derive(Clone, Copy)]
struct Taps {
    taps: [(i64, f64); 4],
    count: usize,
}

/// The spatial dimensions, filled up to three with leading ones.
pub(crate) fn axes<const N: usize>(args: &Args<'_>, form: Form) -> Result<[Axis; 3]> {
    let x = args.tensor(0)?;
    check_rank("the input", N + 2, x.shape())?;
    if x.shape()[1..].contains(&0) {
        return Err(Error::kernel("an empty input cannot be resampled").argument("input").got(x.shape().to_string()));
    }
    let wrong = |name: &str| {
        Error::kernel("as many extents or positive factors as spatial dimensions are needed")
            .argument(name)
            .expected(N.to_string())
    };
    let mut factors = [None; N];
    if form.is_list {
        if let Some(list) = args.optional_double_list(form.factors)? {
            let list: [f64; N] = list.try_into().map_err(|_| wrong("scale_factors"))?;
            factors = list.map(Some);
        }
    } else {
        for (d, slot) in factors.iter_mut().enumerate() {
            *slot = args.optional_double(form.factors + d)?;
        }
    }
    if factors.iter().flatten().any(|f| !(f.is_finite() && *f > 0.0)) {
        return Err(wrong("scale_factors"));
    }
    let sizes = args.optional_int_list(1)?.map(|list| list.to_dims()).transpose()?;
    let align = form.align.map_or(Ok(false), |i| args.bool(i))?;
    let in_double = x.dtype().size() == 8;
    let mut axes = [Axis { input: 1, output: 1, factor: None, align, in_double }; 3];
    for (d, axis) in axes[3 - N..].iter_mut().enumerate() {
        let input = x.shape()[2 + d];
        let output = match (&sizes, factors[d]) {
            (Some(sizes), _) if sizes.len() == N => sizes[d],
            (None, Some(factor)) => (input as f64 * factor) as usize,
            _ => return Err(wrong("output_size")),
        };
        let extent = |n: usize| i32::try_from(n).map(i64::from).map_err(|_| Error::kernel("an extent is too large"));
        *axis = Axis { input: extent(input)?, output: extent(output)?, factor: factors[d], ..*axis };
        if output == 0 {
            return Err(Error::kernel("the output would be empty").argument("output_size"));
        }
    }
    Ok(axes)
}

/// Gives the output its shape.
pub(crate) fn bind<const N: usize>(args: &mut BindArgs<'_>, form: Form) -> Result<()> {
    let view = args.args();
    let axes = axes::<N>(&view, form)?;
    let shape = with_extents::<N>(view.tensor(0)?.shape(), axes.map(|a| a.output));
    args.resize(form.out, &shape)
}

impl Axis {
    /// To the precision that coordinates are computed in.
    pub(crate) fn round(self, v: f64) -> f64 {
        if self.in_double { v } else { f64::from(v as f32) }
    }

    /// Input positions per output position.
    pub(crate) fn step(self) -> f64 {
        let (n, m) = (self.input as f64, self.output as f64);
        match self.factor {
            _ if self.align => if m > 1.0 { self.round((n - 1.0) / (m - 1.0)) } else { 0.0 },
            Some(factor) => self.round(1.0 / factor),
            None => self.round(n / m),
        }
    }

    /// The position in the input, before the edges.
    fn position(self, o: i64) -> f64 {
        if self.align {
            return self.round(self.step() * o as f64);
        }
        self.round(self.round(self.step() * self.round(o as f64 + 0.5)) - 0.5)
    }

    /// The nearest input position; `is_exact` when the middle of the output pixel decides. In float32 for
    /// every dtype.
    fn nearest(self, o: i64, is_exact: bool) -> i64 {
        let step = match self.factor {
            Some(factor) => (1.0 / factor) as f32,
            None => self.input as f32 / self.output as f32,
        };
        let at = if is_exact { (o as f32 + 0.5) * step } else { o as f32 * step };
        (at.floor() as i64).min(self.input - 1)
    }

    /// What a linear sum reads.
    fn linear(self, o: i64) -> Taps {
        let at = self.position(o).max(0.0);
        let first = (at as i64).min(self.input - 1);
        let part = self.round(at - first as f64).clamp(0.0, 1.0);
        let none = (0, 0.0);
        Taps { taps: [(first, 1.0 - part), ((first + 1).min(self.input - 1), part), none, none], count: 2 }
    }

    /// What a cubic sum reads.
    fn cubic(self, o: i64) -> Taps {
        let at = self.position(o);
        let first = (at.floor() as i64).min(self.input - 1);
        let t = self.round(at - first as f64).clamp(0.0, 1.0);
        let taps = [-1, 0, 1, 2].map(|i| {
            ((first + i).clamp(0, self.input - 1), cubic_weight((t - i as f64).abs(), -0.75))
        });
        Taps { taps, count: 4 }
    }
}

/// The cubic filter at distance `x`, with parameter `a`.
pub(crate) fn cubic_weight(x: f64, a: f64) -> f64 {
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

fn nearest<const N: usize, C: Compute>(args: &Args<'_>, form: Form, is_exact: bool) -> Result<()> {
    let axes = axes::<N>(args, form)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let mut y = Writer::<C>::new(args.output(form.out)?)?;
    for p in 0..volumes::<N>(x.meta()) {
        let (from, to) = (Volume::of::<N>(x.meta(), p), Volume::of::<N>(y.meta(), p));
        for o in places(axes.map(|a| a.output)) {
            let source = [0, 1, 2].map(|d| axes[d].nearest(o[d], is_exact));
            y.put(to.at(o), x.get(from.at(source))?)?;
        }
    }
    Ok(())
}

fn weighted<const N: usize>(args: &Args<'_>, form: Form, taps: fn(Axis, i64) -> Taps) -> Result<()> {
    let axes = axes::<N>(args, form)?;
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(form.out)?)?;
    // A dimension that the input does not have is read once.
    let taps = |d: usize, o: i64| if d + N < 3 { Taps { taps: [(0, 1.0); 4], count: 1 } } else { taps(axes[d], o) };
    for p in 0..volumes::<N>(x.meta()) {
        let (from, to) = (Volume::of::<N>(x.meta(), p), Volume::of::<N>(y.meta(), p));
        for o in places(axes.map(|a| a.output)) {
            let [deep, high, wide] = [0, 1, 2].map(|d| taps(d, o[d]));
            let mut sum = 0.0;
            for (z, wz) in &deep.taps[..deep.count] {
                let mut plane = 0.0;
                for (v, wv) in &high.taps[..high.count] {
                    let mut row = 0.0;
                    for (u, wu) in &wide.taps[..wide.count] {
                        row += x.get(from.at([*z, *v, *u]))? * wu;
                    }
                    plane += row * wv;
                }
                sum += plane * wz;
            }
            y.put(to.at(o), sum)?;
        }
    }
    Ok(())
}

const NEAREST_LIST: Form = Form { align: None, factors: 2, is_list: true, out: 3 };
const LIST: Form = Form { align: Some(2), factors: 3, is_list: true, out: 4 };

const fn nearest_form(n: usize) -> Form {
    Form { align: None, factors: 2, is_list: false, out: 2 + n }
}

/// The form of weighted sums with `n` single factors.
pub(crate) const fn weighted_form(n: usize) -> Form {
    Form { align: Some(2), factors: 3, is_list: false, out: 3 + n }
}

fn check_nearest(ctx: &PrepareContext<'_>, out: usize) -> Result<bool> {
    same_dtype(ctx, 0, out)?;
    match Class::of(dtype_of(ctx, 0)?) {
        Some(class) => Ok(class == Class::I64),
        None => Err(Error::kernel("the operator does not support this dtype").got(dtype_of(ctx, 0)?.name())),
    }
}

fn prepare_nearest<const N: usize, const EXACT: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    match check_nearest(ctx, nearest_form(N).out)? {
        true => Routine::prepare(|a| bind::<N>(a, nearest_form(N)), |a, _| nearest::<N, i64>(a, nearest_form(N), EXACT)),
        false => Routine::prepare(|a| bind::<N>(a, nearest_form(N)), |a, _| nearest::<N, f64>(a, nearest_form(N), EXACT)),
    }
}

fn prepare_nearest_list(ctx: &PrepareContext<'_>) -> Preparation {
    match check_nearest(ctx, NEAREST_LIST.out)? {
        true => Routine::prepare(|a| bind::<2>(a, NEAREST_LIST), |a, _| nearest::<2, i64>(a, NEAREST_LIST, false)),
        false => Routine::prepare(|a| bind::<2>(a, NEAREST_LIST), |a, _| nearest::<2, f64>(a, NEAREST_LIST, false)),
    }
}

fn prepare_linear<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, weighted_form(N).out)?;
    check_float(ctx, weighted_form(N).out)?;
    Routine::prepare(|a| bind::<N>(a, weighted_form(N)), |a, _| weighted::<N>(a, weighted_form(N), Axis::linear))
}

/// Resampling.
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::upsample_nearest2d.vec_out(Tensor input, SymInt[]? output_size, float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest_list,
    ),
    kernel(
        "aten::upsample_nearest1d.out(Tensor self, SymInt[1] output_size, float? scales=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest::<1, false>,
    ),
    kernel(
        "aten::upsample_nearest2d.out(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest::<2, false>,
    ),
    kernel(
        "aten::upsample_nearest3d.out(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest::<3, false>,
    ),
    kernel(
        "aten::_upsample_nearest_exact1d.out(Tensor self, SymInt[1] output_size, float? scales=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest::<1, true>,
    ),
    kernel(
        "aten::_upsample_nearest_exact2d.out(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest::<2, true>,
    ),
    kernel(
        "aten::_upsample_nearest_exact3d.out(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_nearest::<3, true>,
    ),
    kernel(
        "aten::upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, LIST.out)?;
            check_float(ctx, LIST.out)?;
            Routine::prepare(|a| bind::<2>(a, LIST), |a, _| weighted::<2>(a, LIST, Axis::linear))
        },
    ),
    kernel(
        "aten::upsample_linear1d.out(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_linear::<1>,
    ),
    kernel(
        "aten::upsample_bilinear2d.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_linear::<2>,
    ),
    kernel(
        "aten::upsample_trilinear3d.out(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_linear::<3>,
    ),
    kernel(
        "aten::upsample_bicubic2d.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            let form = weighted_form(2);
            same_dtype(ctx, 0, form.out)?;
            check_float(ctx, form.out)?;
            Routine::prepare(|a| bind::<2>(a, weighted_form(2)), |a, _| weighted::<2>(a, weighted_form(2), Axis::cubic))
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
