//! Resampling of signals, images and volumes: nearest, linear and cubic. `bilinear` is the fast kernel of images,
//! `linear_rows` that of signals; [`super::antialiasing`] has the filters that average when an image shrinks.
//!
//! Shape: the output size, or the input size times the scale factors, rounded down. Dtype: floats
//! (nearest: any number); coordinates are computed as PyTorch does, in float32 unless the input is
//! float64. Edge cases: exactly one of size and factors is given; positions beyond an edge read the edge.

use crate::chunked::{CHUNK, in_ranges};
use crate::compute::{BLOCK, Class};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::grid_kernel::take_scratch;
use crate::operator::{Operator, kernel, operator};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::ops::volume::{Volume, volumes, with_extents};
use crate::routine::{Preparation, dtype_of};
use crate::shape::check_rank;
use crate::strided::mapped_copy::{self, Mapping};
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result};
use std::ops::Range;

mod bilinear;
#[allow(unsafe_code, reason = "a SIMD task")]
mod bilinear_rows;
#[cfg(test)]
#[path = "resampling/tests.rs"]
mod fast_tests;
mod linear_rows;
#[cfg(test)]
#[path = "resampling/linear_tests.rs"]
mod linear_tests;

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
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Axis {
    pub(crate) input: i64,
    pub(crate) output: i64,
    factor: Option<f64>,
    align: bool,
    in_double: bool,
    /// Input positions per output position.
    pub(crate) step: f64,
}

/// Input positions that an output reads, with their weights.
#[derive(Clone, Copy)]
struct Taps {
    taps: [(i64, f64); 4],
    count: usize,
}

/// The spatial extents of the output, and the factors that were given.
fn extents<const N: usize>(args: &Args<'_>, form: Form) -> Result<([usize; N], [Option<f64>; N])> {
    let x = args.tensor(0)?;
    check_rank("the input", N + 2, x.shape())?;
    if x.shape()[1..].contains(&0) {
        return Err(Error::kernel("an empty input cannot be resampled")
            .argument("input")
            .got(x.shape().to_string()));
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
    let mut output = [0; N];
    for (d, slot) in output.iter_mut().enumerate() {
        *slot = match (&sizes, factors[d]) {
            (Some(sizes), _) if sizes.len() == N => sizes[d],
            (None, Some(factor)) => (x.shape()[2 + d] as f64 * factor) as usize,
            _ => return Err(wrong("output_size")),
        };
    }
    if output.contains(&0) {
        return Err(Error::kernel("the output would be empty").argument("output_size"));
    }
    Ok((output, factors))
}

/// The spatial dimensions, filled up to three with leading ones.
pub(crate) fn axes<const N: usize>(args: &Args<'_>, form: Form) -> Result<[Axis; 3]> {
    let (output, factors) = extents::<N>(args, form)?;
    let x = args.tensor(0)?;
    let align = form.align.map_or(Ok(false), |i| args.bool(i))?;
    let in_double = x.dtype().size() == 8;
    let mut axes = [Axis { input: 1, output: 1, factor: None, align, in_double, step: 1.0 }; 3];
    for (d, axis) in axes[3 - N..].iter_mut().enumerate() {
        let extent =
            |n: usize| i32::try_from(n).map(i64::from).map_err(|_| Error::kernel("an extent is too large"));
        *axis = Axis {
            input: extent(x.shape()[2 + d])?,
            output: extent(output[d])?,
            factor: factors[d],
            ..*axis
        };
        axis.step = axis.computed_step();
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

    fn computed_step(self) -> f64 {
        let (n, m) = (self.input as f64, self.output as f64);
        match self.factor {
            _ if self.align => {
                if m > 1.0 {
                    self.round((n - 1.0) / (m - 1.0))
                } else {
                    0.0
                }
            }
            Some(factor) => self.round(1.0 / factor),
            None => self.round(n / m),
        }
    }

    /// The position in the input, before the edges.
    fn position(self, o: i64) -> f64 {
        if self.align {
            return self.round(self.step * o as f64);
        }
        // The product of two float32 numbers is exact here: rounded once, as a fused multiplication and addition is.
        self.round(self.step * self.round(o as f64 + 0.5) - 0.5)
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
        let taps = [-1, 0, 1, 2]
            .map(|i| ((first + i).clamp(0, self.input - 1), cubic_weight((t - i as f64).abs(), -0.75)));
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

fn map<const N: usize>(args: &Args<'_>, form: Form) -> Result<Mapping> {
    let axes = axes::<N>(args, form)?;
    let x = args.tensor(0)?;
    let shape = with_extents::<N>(x.shape(), axes.map(|a| a.output));
    Ok(Mapping::new(&x, shape, ((1 << N) - 1) << 2))
}

/// Lists what dimension `d`, a spatial one, reads.
fn list<const N: usize>(
    args: &Args<'_>,
    form: Form,
    d: usize,
    (first, list): (usize, &mut [usize]),
    is_exact: bool,
) -> Result<()> {
    let axes = axes::<N>(args, form)?;
    let axis = (d + 1)
        .checked_sub(N)
        .and_then(|d| axes.get(d))
        .ok_or_else(|| Error::internal("no such dimension"))?;
    for (o, slot) in list.iter_mut().enumerate() {
        *slot = axis.nearest((first + o) as i64, is_exact) as usize;
    }
    Ok(())
}

/// Weighted sums: every input row that is read is resampled along its length once, then rows are summed.
#[derive(Clone, Copy)]
struct Weighted<const N: usize> {
    form: Form,
    taps: fn(Axis, i64) -> Taps,
}

/// Resampled rows that are kept: a sum reads at most four neighbours in each of two dimensions.
const KEPT: usize = 16;

/// Bytes of scratch for rows of at most these lengths.
fn weighted_scratch(input: usize, output: usize) -> Result<usize> {
    let taps = output.checked_mul(size_of::<[(u64, f64); 4]>());
    let kept = output.checked_mul(KEPT * size_of::<f64>());
    let row = input.checked_mul(size_of::<f64>());
    taps.zip(kept)
        .zip(row)
        .and_then(|((taps, kept), row)| taps.checked_add(kept)?.checked_add(row))
        .ok_or_else(|| Error::limit("a row is too long to be resampled"))
}

/// The memory of a chunk.
struct Room<'a> {
    /// Input places and weights of every output column.
    places: &'a mut [[u64; 4]],
    weights: &'a mut [[f64; 4]],
    row: &'a mut [f64],
    kept: &'a mut [f64],
}

impl<'a> Room<'a> {
    fn new(mut scratch: &'a mut [u8], input: usize, output: usize) -> Result<Room<'a>> {
        Ok(Room {
            places: take_scratch(&mut scratch, output)?,
            weights: take_scratch(&mut scratch, output)?,
            row: take_scratch(&mut scratch, input)?,
            kept: take_scratch(&mut scratch, KEPT * output)?,
        })
    }

    fn list(&mut self, axis: Axis, taps: fn(Axis, i64) -> Taps) -> usize {
        let mut count = 0;
        for (o, (places, weights)) in self.places.iter_mut().zip(self.weights.iter_mut()).enumerate() {
            let found = taps(axis, o as i64);
            *places = found.taps.map(|(place, _)| place as u64);
            *weights = found.taps.map(|(_, weight)| weight);
            count = found.count;
        }
        count
    }

    /// Resamples the input row to kept row `slot`, in sums of `COUNT`.
    fn resample<const COUNT: usize>(&mut self, slot: usize) {
        let width = self.places.len();
        let kept = &mut self.kept[slot * width..(slot + 1) * width];
        for ((sum, places), weights) in kept.iter_mut().zip(&*self.places).zip(&*self.weights) {
            *sum = (0..COUNT).fold(0.0, |sum, t| sum + self.row[places[t] as usize] * weights[t]);
        }
    }
}

impl<const N: usize> Weighted<N> {
    fn bind(self, args: &mut BindArgs<'_>) -> Result<Split> {
        bind::<N>(args, self.form)?;
        let view = args.args();
        let [deep, high, wide] = axes::<N>(&view, self.form)?.map(|a| a.output as usize);
        Ok(Split::within(volumes::<N>(view.tensor(0)?.meta()) * deep * high, wide, CHUNK, 4))
    }

    fn run(self, args: &Args<'_>, rows: Range<usize>, scratch: &mut [u8]) -> Result<()> {
        let axes = axes::<N>(args, self.form)?;
        let [deep, high, wide] = axes;
        let x = Reader::<f64>::new(args.tensor(0)?)?;
        let mut y = Writer::<f64>::new(args.output(self.form.out)?)?;
        let width = wide.output as usize;
        let mut room = Room::new(scratch, wide.input as usize, width)?;
        let count = room.list(wide, self.taps);
        // A dimension that the input does not have is read once.
        let once = Taps { taps: [(0, 1.0); 4], count: 1 };
        let taps = |d: usize, o: i64| if d + N < 3 { once } else { (self.taps)(axes[d], o) };
        let mut kept = [None; KEPT];
        let mut volume = None;
        for row in rows {
            let (rest, v) = ((row as i64) / high.output, (row as i64) % high.output);
            let (p, z) = ((rest / deep.output) as usize, rest % deep.output);
            if volume.replace(p) != Some(p) {
                kept = [None; KEPT];
            }
            let (from, to) = (Volume::of::<N>(x.meta(), p), Volume::of::<N>(y.meta(), p));
            let (planes, lines) = (taps(0, z), taps(1, v));
            for (z, _) in &planes.taps[..planes.count] {
                for (v, _) in &lines.taps[..lines.count] {
                    let slot = slot(*z, *v);
                    if kept[slot].replace((*z, *v)) != Some((*z, *v)) {
                        x.read(from.at([*z, *v, 0]) as isize, from.step(), room.row)?;
                        if count == 4 { room.resample::<4>(slot) } else { room.resample::<2>(slot) }
                    }
                }
            }
            let mut sums = [0.0; BLOCK];
            for first in (0..width).step_by(BLOCK) {
                let n = (width - first).min(BLOCK);
                sums[..n].fill(0.0);
                for (z, wz) in &planes.taps[..planes.count] {
                    let mut plane = [0.0; BLOCK];
                    for (v, wv) in &lines.taps[..lines.count] {
                        let at = slot(*z, *v) * width + first;
                        plane
                            .iter_mut()
                            .zip(&room.kept[at..at + n])
                            .for_each(|(sum, value)| *sum += value * wv);
                    }
                    sums[..n].iter_mut().zip(&plane).for_each(|(sum, plane)| *sum += plane * wz);
                }
                y.write(to.at([z, v, first as i64]) as isize, to.step(), &sums[..n])?;
            }
        }
        Ok(())
    }
}

/// Where the resampled input row `v` of plane `z` is kept: neighbours do not meet.
fn slot(z: i64, v: i64) -> usize {
    ((z & 3) * 4 + (v & 3)) as usize
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

fn check_nearest(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    same_dtype(ctx, 0, out)?;
    Class::required(dtype_of(ctx, 0)?).map(drop)
}

fn prepare_nearest<const N: usize, const EXACT: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    let form = nearest_form(N);
    check_nearest(ctx, form.out)?;
    mapped_copy::prepare(
        ctx,
        form.out,
        |a| map::<N>(a, nearest_form(N)),
        |a, d, first, out| list::<N>(a, nearest_form(N), d, (first, out), EXACT),
    )
}

fn prepare_nearest_list(ctx: &PrepareContext<'_>) -> Preparation {
    check_nearest(ctx, NEAREST_LIST.out)?;
    mapped_copy::prepare(
        ctx,
        NEAREST_LIST.out,
        |a| map::<2>(a, NEAREST_LIST),
        |a, d, first, out| list::<2>(a, NEAREST_LIST, d, (first, out), false),
    )
}

fn prepare_weighted<const N: usize>(
    ctx: &PrepareContext<'_>,
    form: Form,
    taps: fn(Axis, i64) -> Taps,
) -> Preparation {
    same_dtype(ctx, 0, form.out)?;
    check_float(ctx, form.out)?;
    let widest = |i: usize| ctx.tensor(i).and_then(|t| t.shape.last().copied()).unwrap_or(0);
    let scratch = weighted_scratch(widest(0), widest(form.out))?;
    let sums = Weighted::<N> { form, taps };
    in_ranges(
        scratch,
        move |args, _: &mut ()| sums.bind(args),
        move |_, args, rows, scratch| sums.run(args, rows, scratch),
    )
}

fn prepare_linear<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    prepare_weighted::<N>(ctx, weighted_form(N), Axis::linear)
}

/// Resampling.
pub static OPERATORS: &[Operator] = &[
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
    operator(
        "aten::upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("f32", |ctx| bilinear::prepare(ctx, LIST))
    .plain(|ctx| prepare_weighted::<2>(ctx, LIST, Axis::linear)),
    operator(
        "aten::upsample_linear1d.out(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("rows", linear_rows::prepare)
    .plain(prepare_linear::<1>),
    operator(
        "aten::upsample_bilinear2d.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("f32", |ctx| bilinear::prepare(ctx, weighted_form(2)))
    .plain(prepare_linear::<2>),
    kernel(
        "aten::upsample_trilinear3d.out(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_linear::<3>,
    ),
    kernel(
        "aten::upsample_bicubic2d.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare_weighted::<2>(ctx, weighted_form(2), Axis::cubic),
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
