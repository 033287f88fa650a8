//! Pooling windows over signals, images and volumes: max with positions, average. The rows of the table and the plain kernels;
//! `max_pool` and `avg_pool` are the fast ones, `max_values` the maximum without its place.
//!
//! Shape: PyTorch's formula, `ceil_mode` included. Dtype: numbers; averages of floats accumulate in
//! float64, those of integers are cut to integers. Edge cases: NaN counts as largest and its last place in
//! a window is reported; padding counts for an average when `count_include_pad` says so; inputs may lack the
//! batch dimension.

use crate::compute::{Class, Compute, unsupported};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::ops::layout::same_dtype;
use crate::ops::volume::{Volume, extents, integers, places, volumes, with_extents};
use crate::routine::{Preparation, Routine, dtype_of};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

pub(crate) mod avg_pool;
#[cfg(test)]
#[path = "pooling/tests.rs"]
mod fast_tests;
pub(crate) mod max_pool;
pub mod max_values;
#[allow(unsafe_code, reason = "a SIMD task")]
mod max_windows;
#[allow(unsafe_code, reason = "a SIMD task")]
mod mean_windows;
#[cfg(test)]
mod plain_tests;
pub(crate) mod window;

/// One spatial dimension of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) size: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    pub(crate) out: i64,
}

impl Axis {
    fn new(size: i64, [kernel, stride, padding, dilation]: [i64; 4], ceil: bool) -> Result<Axis> {
        if padding > kernel / 2 {
            return Err(Error::kernel("padding must be at most half of the kernel")
                .argument("padding")
                .expected(format!("at most {}", kernel / 2))
                .got(padding.to_string()));
        }
        let span = size + 2 * padding - dilation * (kernel - 1) - 1;
        let mut out = (span + if ceil { stride - 1 } else { 0 }).div_euclid(stride) + 1;
        // The last window must begin inside the input or its leading padding.
        if ceil && (out - 1) * stride >= size + padding {
            out -= 1;
        }
        if out < 1 {
            return Err(Error::kernel("the window is larger than the padded input")
                .got(format!("window {kernel}, input {size}, padding {padding}")));
        }
        Ok(Axis { size, kernel, stride, padding, dilation, out })
    }

    /// Taps of output `o` that lie inside the input.
    fn taps(self, o: i64) -> impl Iterator<Item = i64> + Clone {
        let start = o * self.stride - self.padding;
        (0..self.kernel).map(move |k| start + k * self.dilation).filter(move |i| (0..self.size).contains(i))
    }

    /// The inputs of window `o`, of neighbouring elements.
    pub(crate) fn stretch(self, o: i64) -> Range<i64> {
        let start = o * self.stride - self.padding;
        let inside = start.max(0);
        inside..(start + self.kernel).min(self.size).max(inside)
    }

    /// The windows, of neighbouring elements, that input `i` lies in.
    pub(crate) fn covering(self, i: i64) -> Range<i64> {
        let at = i + self.padding;
        let first = (at - self.kernel).div_euclid(self.stride) + 1;
        first.max(0)..(at / self.stride + 1).min(self.out)
    }

    /// The windows whose element `k` lies inside the input, and where it lies for the first of them.
    pub(crate) fn with_element(self, k: i64) -> (Range<i64>, i64) {
        let shift = k - self.padding;
        let first = (self.stride - 1 - shift).div_euclid(self.stride).max(0);
        let end = ((self.size - 1 - shift).div_euclid(self.stride) + 1).min(self.out);
        (first..end.max(first), first * self.stride + shift)
    }

    /// The windows all of whose elements lie inside the input.
    pub(crate) fn whole(self) -> Range<i64> {
        let first = (self.padding + self.stride - 1) / self.stride;
        let end = ((self.size - self.kernel + self.padding).div_euclid(self.stride) + 1).min(self.out);
        first.min(end.max(0))..end.max(0)
    }

    /// Elements of a window, steps between windows.
    pub(crate) fn reach(self) -> (i64, i64) {
        (self.kernel, self.stride)
    }

    /// The part of window `o` within the padded input, which `ceil_mode` may leave.
    pub(crate) fn padded(self, o: i64) -> i64 {
        let start = o * self.stride - self.padding;
        (start + self.kernel).min(self.size + self.padding) - start
    }
}

/// The windows over argument `x`, which kernel, stride, padding, dilation if there is one, and the
/// rounding follow.
pub(crate) fn axes<const N: usize>(args: &Args<'_>, x: usize, has_dilation: bool) -> Result<[Axis; 3]> {
    let size = extents::<N>(args.tensor(x)?.shape())?;
    let kernel = integers::<N>(args, x + 1, ("kernel_size", 1, 1), None)?;
    let stride = integers::<N>(args, x + 2, ("stride", 1, 1), Some(kernel))?;
    let padding = integers::<N>(args, x + 3, ("padding", 0, 0), Some([0; 3]))?;
    let dilation =
        if has_dilation { integers::<N>(args, x + 4, ("dilation", 1, 1), Some([1; 3]))? } else { [1; 3] };
    let ceil = args.bool(if has_dilation { x + 5 } else { x + 4 })?;
    let axis = |d: usize| Axis::new(size[d], [kernel[d], stride[d], padding[d], dilation[d]], ceil);
    Ok([axis(0)?, axis(1)?, axis(2)?])
}

/// Input places of the window of output `o`.
pub(crate) fn window(axes: [Axis; 3], o: [i64; 3]) -> impl Iterator<Item = [i64; 3]> {
    let [d, h, w] = [0, 1, 2].map(|i| axes[i].taps(o[i]));
    d.flat_map(move |z| {
        let w = w.clone();
        h.clone().flat_map(move |y| w.clone().map(move |x| [z, y, x]))
    })
}

fn bind_max<const N: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let axes = axes::<N>(&view, 0, true)?;
    let shape = with_extents::<N>(view.tensor(0)?.shape(), axes.map(|a| a.out));
    args.resize(6, &shape)?;
    args.resize(7, &shape)
}

/// The largest element among `places` of a volume of `size`, and its row-major position. A later NaN
/// replaces an earlier one, as in PyTorch.
pub(crate) fn largest<C: Compute>(
    x: &Reader<'_, C>,
    from: Volume,
    size: [i64; 3],
    places: impl Iterator<Item = [i64; 3]>,
) -> Result<(C, i64)> {
    let mut best: Option<(C, i64)> = None;
    for [d, h, w] in places {
        let v = x.get(from.at([d, h, w]))?;
        if best.is_none_or(|(b, _)| v > b || v.is_nan()) {
            best = Some((v, (d * size[1] + h) * size[2] + w));
        }
    }
    Ok(best.unwrap_or((C::LOWEST, -1)))
}

fn max<const N: usize, C: Compute>(args: &Args<'_>) -> Result<()> {
    let axes = axes::<N>(args, 0, true)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let (mut y, mut at) = (Writer::<C>::new(args.output(6)?)?, Writer::<i64>::new(args.output(7)?)?);
    for p in 0..volumes::<N>(x.meta()) {
        let from = Volume::of::<N>(x.meta(), p);
        let (to, to_index) = (Volume::of::<N>(y.meta(), p), Volume::of::<N>(at.meta(), p));
        for o in places(axes.map(|a| a.out)) {
            let (value, index) = largest(&x, from, axes.map(|a| a.size), window(axes, o))?;
            y.put(to.at(o), value)?;
            at.put(to_index.at(o), index)?;
        }
    }
    Ok(())
}

/// Position of the output of an average; only the one of signals has no divisor.
const fn average_out(n: usize) -> usize {
    if n == 1 { 6 } else { 7 }
}

fn divisor<const N: usize>(args: &Args<'_>) -> Result<Option<i64>> {
    if N == 1 { Ok(None) } else { divisor_override(args, 6) }
}

/// The number to divide by whatever a window covers, argument `i`.
pub(crate) fn divisor_override(args: &Args<'_>, i: usize) -> Result<Option<i64>> {
    let divisor = args.optional_int(i)?;
    if divisor == Some(0) {
        return Err(Error::kernel("the divisor must not be zero").argument("divisor_override"));
    }
    Ok(divisor)
}

fn bind_average<const N: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let axes = axes::<N>(&view, 0, false)?;
    divisor::<N>(&view)?;
    // PyTorch has this rule for volumes alone, whatever the padding and the rounding.
    if let (3, Some(axis)) = (N, axes.iter().find(|a| a.size < a.kernel)) {
        return Err(Error::kernel("the window is larger than the input")
            .argument("kernel_size")
            .expected(format!("at most {}", axis.size))
            .got(axis.kernel.to_string()));
    }
    let shape = with_extents::<N>(view.tensor(0)?.shape(), axes.map(|a| a.out));
    args.resize(average_out(N), &shape)
}

/// A number that a sum is divided by the way its kind divides.
pub(crate) trait Mean: Compute {
    /// `self / count`.
    fn over(self, count: i64) -> Self;
}

impl Mean for f32 {
    fn over(self, count: i64) -> f32 {
        self / count as f32
    }
}

impl Mean for f64 {
    fn over(self, count: i64) -> f64 {
        self / count as f64
    }
}

impl Mean for i64 {
    fn over(self, count: i64) -> i64 {
        self.wrapping_div(count)
    }
}

fn average<const N: usize, C: Mean>(args: &Args<'_>) -> Result<()> {
    let axes = axes::<N>(args, 0, false)?;
    let (include_pad, divisor) = (args.bool(5)?, divisor::<N>(args)?);
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let mut y = Writer::<C>::new(args.output(average_out(N))?)?;
    for p in 0..volumes::<N>(x.meta()) {
        let (from, to) = (Volume::of::<N>(x.meta(), p), Volume::of::<N>(y.meta(), p));
        for o in places(axes.map(|a| a.out)) {
            let (mut sum, mut count) = (C::ZERO, 0i64);
            for place in window(axes, o) {
                sum = sum.plus(x.get(from.at(place))?);
                count += 1;
            }
            let area = if include_pad { (0..3).map(|d| axes[d].padded(o[d])).product() } else { count };
            y.put(to.at(o), if count == 0 { C::ZERO } else { sum.over(divisor.unwrap_or(area)) })?;
        }
    }
    Ok(())
}

fn prepare_max<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 6)?;
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::I64) if dtype_of(ctx, 0)? != DType::Bool => {
            Routine::prepare(bind_max::<N>, |args, _| max::<N, i64>(args))
        }
        Some(Class::F32) => Routine::prepare(bind_max::<N>, |args, _| max::<N, f32>(args)),
        Some(Class::F64) => Routine::prepare(bind_max::<N>, |args, _| max::<N, f64>(args)),
        _ => Err(unsupported(dtype_of(ctx, 0)?)),
    }
}

fn prepare_average<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, average_out(N))?;
    if dtype_of(ctx, 0)? == DType::Int64 {
        return Routine::prepare(bind_average::<N>, |args, _| average::<N, i64>(args));
    }
    crate::ops::sums::check_float(ctx, average_out(N))?;
    Routine::prepare(bind_average::<N>, |args, _| average::<N, f64>(args))
}

/// Pooling.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
    )
    .fast("float", |ctx| max_pool::prepare(ctx, 2))
    .plain(prepare_max::<2>),
    operator(
        "aten::max_pool3d_with_indices.out(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
    )
    .fast("float", |ctx| max_pool::prepare(ctx, 3))
    .plain(prepare_max::<3>),
    operator(
        "aten::avg_pool1d.out(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False, bool count_include_pad=True, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| avg_pool::prepare_fixed(ctx, 1))
    .plain(prepare_average::<1>),
    operator(
        "aten::avg_pool2d.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| avg_pool::prepare_fixed(ctx, 2))
    .plain(prepare_average::<2>),
    operator(
        "aten::avg_pool3d.out(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| avg_pool::prepare_fixed(ctx, 3))
    .plain(prepare_average::<3>),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn maxima_with_positions_and_nan() {
        let x = Tensor::of(&[1, 2, 3], &[1f32, f32::NAN, 2.0, 5.0, 3.0, 4.0]);
        let args = [
            x.into(),
            vec![2].into(),
            vec![1].into(),
            Arg::IntList(vec![]),
            Arg::IntList(vec![]),
            false.into(),
            Tensor::output(DType::Float32, &[1, 1, 2]).into(),
            Tensor::output(DType::Int64, &[1, 1, 2]).into(),
        ];
        let r = call("aten::max_pool2d_with_indices.out", &args).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[6], &r[7]) else { panic!("no tensors") };
        assert!(v.values::<f32>().iter().all(|v| v.is_nan()));
        assert_eq!(i.values::<i64>(), [1, 1]);
    }

    #[test]
    fn averages_with_padding_and_ceil_mode() {
        let x = Tensor::of(&[1, 1, 3], &[3f32, 6.0, 9.0]);
        let pool = |pad: i64, ceil: bool, include: bool, n| {
            let args = [
                x.clone().into(),
                vec![1, 2].into(),
                vec![1, 2].into(),
                vec![0, pad].into(),
                ceil.into(),
                include.into(),
                Arg::None,
            ];
            run_out("aten::avg_pool2d.out", &args, DType::Float32, &[1, 1, n]).unwrap().values::<f32>()
        };
        assert_eq!(pool(1, false, true, 2), [1.5, 7.5]);
        assert_eq!(pool(1, false, false, 2), [3.0, 7.5]);
        assert_eq!(pool(0, true, true, 2), [4.5, 9.0]);
        assert_eq!(pool(0, false, true, 1), [4.5]);
    }

    #[test]
    fn adaptive_windows_overlap() {
        let x = Tensor::of(&[1, 1, 3], &[3f32, 6.0, 9.0]);
        let y = run_out(
            "aten::_adaptive_avg_pool2d.out",
            &[x.into(), vec![1, 2].into()],
            DType::Float32,
            &[1, 1, 2],
        );
        assert_eq!(y.unwrap().values::<f32>(), [4.5, 7.5]);
    }

    #[test]
    fn bad_windows_are_refused() {
        let x = Tensor::of(&[1, 2, 2], &[0f32; 4]);
        let pool = |kernel: i64, stride: i64, pad: i64| {
            let args = [
                x.clone().into(),
                vec![kernel].into(),
                vec![stride].into(),
                vec![pad].into(),
                false.into(),
                true.into(),
                Arg::None,
            ];
            error_text(run_out("aten::avg_pool2d.out", &args, DType::Float32, &[1, 2, 2]))
        };
        assert!(pool(0, 1, 0).contains("kernel_size"));
        assert!(pool(1, 0, 0).contains("stride"));
        assert!(pool(2, 1, 2).contains("half"));
        assert!(pool(3, 1, 0).contains("larger than"));
    }
}
