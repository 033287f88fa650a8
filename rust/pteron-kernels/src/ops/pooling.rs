//! Pooling in two dimensions: max, average, adaptive average.
//!
//! Shape: PyTorch's formula, `ceil_mode` included. Dtype: numbers; averages of floats accumulate in
//! float64. Edge cases: the first NaN of a window is its maximum; padding counts for an average when
//! `count_include_pad` says so; inputs may lack the batch dimension.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::routine::{Preparation, Routine, dtype_of, kernel};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, StaticKernel, TensorMeta};

/// One spatial dimension of a window.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    out: i64,
}

/// The integers of argument `i`: one for both dimensions or one for each; `default` for an empty list.
fn pair(args: &Args<'_>, i: usize, name: &str, least: i64, default: Option<[i64; 2]>) -> Result<[i64; 2]> {
    let list = args.int_list(i)?;
    let values = match (list.len(), default) {
        (0, Some(default)) => default,
        (1, _) => [list.get(0)?; 2],
        (2, _) => [list.get(0)?, list.get(1)?],
        (n, _) => {
            return Err(Error::kernel("a list must have one or two entries").argument(name).got(n.to_string()));
        }
    };
    match values.iter().find(|v| **v < least || **v > i64::from(i32::MAX)) {
        Some(v) => Err(Error::kernel("a value is out of range")
            .argument(name)
            .expected(format!("between {least} and {}", i32::MAX))
            .got(v.to_string())),
        None => Ok(values),
    }
}

/// The last two extents of an input `[N, C, H, W]` or `[C, H, W]`.
fn plane_size(shape: &Dims) -> Result<[i64; 2]> {
    let rank = shape.len();
    if !(3..=4).contains(&rank) || shape[rank - 3..].contains(&0) {
        return Err(Error::kernel("the input must be [N, C, H, W] or [C, H, W] without empty dimensions after N")
            .argument("self")
            .got(shape.to_string()));
    }
    let extent = |n: usize| i32::try_from(n).map(i64::from).map_err(|_| Error::kernel("an extent is too large"));
    Ok([extent(shape[rank - 2])?, extent(shape[rank - 1])?])
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
}

fn axes(args: &Args<'_>, has_dilation: bool, ceil: usize) -> Result<[Axis; 2]> {
    let size = plane_size(args.tensor(0)?.shape())?;
    let kernel = pair(args, 1, "kernel_size", 1, None)?;
    let stride = pair(args, 2, "stride", 1, Some(kernel))?;
    let padding = pair(args, 3, "padding", 0, Some([0, 0]))?;
    let dilation = if has_dilation { pair(args, 4, "dilation", 1, Some([1, 1]))? } else { [1, 1] };
    let ceil = args.bool(ceil)?;
    let axis = |d: usize| Axis::new(size[d], [kernel[d], stride[d], padding[d], dilation[d]], ceil);
    Ok([axis(0)?, axis(1)?])
}

/// The shape with the last two extents replaced.
fn with_plane(shape: &Dims, h: i64, w: i64) -> Dims {
    let mut out = *shape;
    let rank = out.len();
    (out[rank - 2], out[rank - 1]) = (h as usize, w as usize);
    out
}

/// Where a plane begins, and the strides of its rows and columns.
#[derive(Clone, Copy)]
struct Plane {
    base: usize,
    row: usize,
    column: usize,
}

impl Plane {
    fn at(self, h: i64, w: i64) -> usize {
        self.base + h as usize * self.row + w as usize * self.column
    }

    /// Plane number `p` of a tensor, counting batch and channels in row-major order.
    fn of(meta: &TensorMeta, p: usize) -> Plane {
        let (shape, strides, rank) = (meta.shape(), meta.strides(), meta.rank());
        let channels = shape[rank - 3];
        let batch = if rank == 4 { p / channels * strides[0] } else { 0 };
        Plane { base: batch + p % channels * strides[rank - 3], row: strides[rank - 2], column: strides[rank - 1] }
    }
}

fn planes(meta: &TensorMeta) -> usize {
    let rank = meta.rank();
    meta.shape()[..rank - 2].iter().product()
}

fn bind_max(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let [h, w] = axes(&view, true, 5)?;
    let shape = with_plane(view.tensor(0)?.shape(), h.out, w.out);
    args.resize(6, &shape)?;
    args.resize(7, &shape)
}

fn max<C: Compute>(args: &Args<'_>) -> Result<()> {
    let [h, w] = axes(args, true, 5)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let (mut y, mut at) = (Writer::<C>::new(args.output(6)?)?, Writer::<i64>::new(args.output(7)?)?);
    for p in 0..planes(x.meta()) {
        let (from, to, to_index) = (Plane::of(x.meta(), p), Plane::of(y.meta(), p), Plane::of(at.meta(), p));
        for oh in 0..h.out {
            for ow in 0..w.out {
                let mut best: Option<(C, i64)> = None;
                for ih in h.taps(oh) {
                    for iw in w.taps(ow) {
                        let v = x.get(from.at(ih, iw))?;
                        if best.is_none_or(|(b, _)| !b.is_nan() && (v > b || v.is_nan())) {
                            best = Some((v, ih * w.size + iw));
                        }
                    }
                }
                let (value, index) = best.unwrap_or((C::LOWEST, -1));
                y.put(to.at(oh, ow), value)?;
                at.put(to_index.at(oh, ow), index)?;
            }
        }
    }
    Ok(())
}

fn bind_average(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let [h, w] = axes(&view, false, 4)?;
    if view.optional_int(6)? == Some(0) {
        return Err(Error::kernel("the divisor must not be zero").argument("divisor_override"));
    }
    let shape = with_plane(view.tensor(0)?.shape(), h.out, w.out);
    args.resize(7, &shape)
}

fn average(args: &Args<'_>) -> Result<()> {
    let [h, w] = axes(args, false, 4)?;
    let (include_pad, divisor) = (args.bool(5)?, args.optional_int(6)?);
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(7)?)?;
    // The part of a window within the padded input, which ceil_mode may leave.
    let padded = |a: Axis, o: i64| {
        let start = o * a.stride - a.padding;
        (start + a.kernel).min(a.size + a.padding) - start
    };
    for p in 0..planes(x.meta()) {
        let (from, to) = (Plane::of(x.meta(), p), Plane::of(y.meta(), p));
        for oh in 0..h.out {
            for ow in 0..w.out {
                let (mut sum, mut count) = (0.0, 0i64);
                for ih in h.taps(oh) {
                    for iw in w.taps(ow) {
                        sum += x.get(from.at(ih, iw))?;
                        count += 1;
                    }
                }
                let area = if include_pad { padded(h, oh) * padded(w, ow) } else { count };
                let mean = if count == 0 { 0.0 } else { sum / divisor.unwrap_or(area) as f64 };
                y.put(to.at(oh, ow), mean)?;
            }
        }
    }
    Ok(())
}

fn bind_adaptive(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let x = view.tensor(0)?;
    plane_size(x.shape())?;
    let [h, w] = pair(&view, 1, "output_size", 0, None)?;
    let shape = with_plane(x.shape(), h, w);
    args.resize(2, &shape)
}

fn adaptive(args: &Args<'_>) -> Result<()> {
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(2)?)?;
    let [height, width] = plane_size(x.meta().shape())?;
    let [out_h, out_w] = pair(args, 1, "output_size", 0, None)?;
    let range = |o: i64, size: i64, out: i64| o * size / out..((o + 1) * size + out - 1) / out;
    for p in 0..planes(x.meta()) {
        let (from, to) = (Plane::of(x.meta(), p), Plane::of(y.meta(), p));
        for oh in 0..out_h {
            for ow in 0..out_w {
                let (rows, columns) = (range(oh, height, out_h), range(ow, width, out_w));
                let count = (rows.end - rows.start) * (columns.end - columns.start);
                let mut sum = 0.0;
                for ih in rows {
                    for iw in columns.clone() {
                        sum += x.get(from.at(ih, iw))?;
                    }
                }
                y.put(to.at(oh, ow), sum / count as f64)?;
            }
        }
    }
    Ok(())
}

fn prepare_max(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 6)?;
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::I64) if dtype_of(ctx, 0)? != DType::Bool => Routine::prepare(bind_max, |args, _| max::<i64>(args)),
        Some(Class::F32) => Routine::prepare(bind_max, |args, _| max::<f32>(args)),
        Some(Class::F64) => Routine::prepare(bind_max, |args, _| max::<f64>(args)),
        _ => Err(Error::kernel("the operator does not support this dtype").got(dtype_of(ctx, 0)?.name())),
    }
}

fn check_float(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    same_dtype(ctx, 0, out)?;
    crate::ops::sums::check_float(ctx, out)
}

/// Pooling.
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
        prepare_max,
    ),
    kernel(
        "aten::avg_pool2d.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check_float(ctx, 7)?;
            Routine::prepare(bind_average, |args, _| average(args))
        },
    ),
    kernel(
        "aten::_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            check_float(ctx, 2)?;
            Routine::prepare(bind_adaptive, |args, _| adaptive(args))
        },
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn maxima_with_positions_and_nan() {
        let x = Tensor::of(&[1, 2, 3], &[1f32, f32::NAN, 2.0, 5.0, 3.0, 4.0]);
        let args = [
            x.into(), vec![2].into(), vec![1].into(), Arg::IntList(vec![]), Arg::IntList(vec![]), false.into(),
            Tensor::output(DType::Float32, &[1, 1, 2]).into(), Tensor::output(DType::Int64, &[1, 1, 2]).into(),
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
                x.clone().into(), vec![1, 2].into(), vec![1, 2].into(), vec![0, pad].into(), ceil.into(),
                include.into(), Arg::None,
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
        let y = run_out("aten::_adaptive_avg_pool2d.out", &[x.into(), vec![1, 2].into()], DType::Float32, &[1, 1, 2]);
        assert_eq!(y.unwrap().values::<f32>(), [4.5, 7.5]);
    }

    #[test]
    fn bad_windows_are_refused() {
        let x = Tensor::of(&[1, 2, 2], &[0f32; 4]);
        let pool = |kernel: i64, stride: i64, pad: i64| {
            let args = [
                x.clone().into(), vec![kernel].into(), vec![stride].into(), vec![pad].into(), false.into(),
                true.into(), Arg::None,
            ];
            error_text(run_out("aten::avg_pool2d.out", &args, DType::Float32, &[1, 2, 2]))
        };
        assert!(pool(0, 1, 0).contains("kernel_size"));
        assert!(pool(1, 0, 0).contains("stride"));
        assert!(pool(2, 1, 2).contains("half"));
        assert!(pool(3, 1, 0).contains("larger than"));
    }
}
