//! Gradients of pooling with respect to the input: averages, adaptive averages, maxima.
//!
//! Shape: that of the pooled input; the incoming gradient has the shape of the pooling's result. Dtype: that
//! of the gradient, floats and for averages int64 too; sums, in the row-major order of the windows as in PyTorch, are those
//! of float32 for 16-bit floats, rounded once. Edge cases: inputs may lack the batch dimension; a position of a maximum
//! outside the input is an error, one of -1 is skipped. `windows` is the fast kernel of averages, `maxima` that of maxima.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::grid_kernel::take_scratch;
use crate::operator::{Operator, kernel};
use crate::ops::adaptive_pooling;
use crate::ops::layout::same_dtype;
use crate::ops::pooling::{Mean, axes, divisor_override, window};
use crate::ops::sums::check_float;
use crate::ops::volume::{Volume, extents, places, volumes, with_extents};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::{check_index, check_same};
use crate::strided::copy::zero;
use bytemuck::Pod;
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, sizes};

#[cfg(test)]
#[path = "pooling_backward/tests.rs"]
mod fast_tests;
mod maxima;
mod windows;

const GRAD: usize = 0;
const X: usize = 1;

/// Elements of a volume of argument `i`, whose shape is known or has an upper bound.
fn most_elements<const N: usize>(ctx: &PrepareContext<'_>, i: usize) -> Result<usize> {
    let shape = ctx.tensor(i).map(|t| t.shape).unwrap_or(Dims::EMPTY);
    sizes::checked_numel(&shape[shape.len().saturating_sub(N)..])
}

/// Bytes for the sums of a volume of argument `i`.
fn room<const N: usize>(ctx: &PrepareContext<'_>, i: usize) -> Result<usize> {
    most_elements::<N>(ctx, i)?
        .checked_mul(size_of::<f64>())
        .ok_or_else(|| Error::limit("the input of a pooling is too large"))
}

/// Calls `add(gradient's element, its place, volume, sums of the volume)` for every output of every volume; `room` is for
/// the sums, which lie row-major.
fn spread<const N: usize, C: Compute + Pod>(
    args: &Args<'_>,
    out: usize,
    mut room: &mut [u8],
    mut add: impl FnMut(C, [i64; 3], usize, &mut [C]) -> Result<()>,
) -> Result<()> {
    let grad = Reader::<C>::new(args.tensor(GRAD)?)?;
    if grad.meta().numel() == 0 {
        zero(args.output(out)?);
        return Ok(());
    }
    let mut result = Writer::<C>::new(args.output(out)?)?;
    let (size, out_size) = (extents::<N>(result.meta().shape())?, extents::<N>(grad.meta().shape())?);
    let sums = take_scratch::<C>(&mut room, size.iter().product::<i64>() as usize)?;
    for p in 0..volumes::<N>(grad.meta()) {
        let (from, to) = (Volume::of::<N>(grad.meta(), p), Volume::of::<N>(result.meta(), p));
        sums.fill(C::ZERO);
        for o in places(out_size) {
            add(grad.get(from.at(o))?, o, p, sums)?;
        }
        for (place, sum) in places(size).zip(sums.iter()) {
            result.put(to.at(place), *sum)?;
        }
    }
    Ok(())
}

/// Adds to one of the sums of a volume.
fn add_at<C: Compute>(sums: &mut [C], [_, h, w]: [i64; 3], [z, y, x]: [i64; 3], value: C) -> Result<()> {
    let at = ((z * h + y) * w + x) as usize;
    let sum = sums.get_mut(at).ok_or_else(|| Error::internal("a window would leave its input"))?;
    *sum = sum.plus(value);
    Ok(())
}

fn bind_average<const N: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let axes = axes::<N>(&view, X, false)?;
    divisor_override(&view, 7)?;
    let shape = *view.tensor(X)?.shape();
    check_same("grad_output", &with_extents::<N>(&shape, axes.map(|a| a.out)), view.tensor(GRAD)?.shape())?;
    args.resize(8, &shape)
}

fn average<const N: usize, C: Mean + Pod>(args: &Args<'_>, room: &mut [u8]) -> Result<()> {
    let axes = axes::<N>(args, X, false)?;
    let (include_pad, divisor) = (args.bool(6)?, divisor_override(args, 7)?);
    let size = axes.map(|axis| axis.size);
    spread::<N, C>(args, 8, room, |grad, o, _, sums| {
        let count = if include_pad {
            (0..3).map(|d| axes[d].padded(o[d])).product()
        } else {
            window(axes, o).count() as i64
        };
        let part = match divisor.unwrap_or(count) {
            0 => return Ok(()),
            count => grad.over(count),
        };
        window(axes, o).try_for_each(|place| add_at(sums, size, place, part))
    })
}

fn bind_adaptive<const N: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(X)?.shape();
    extents::<N>(&shape)?;
    let grad = *view.tensor(GRAD)?.shape();
    let out = extents::<N>(&grad).map_err(|e| e.argument("grad_output"))?;
    check_same("grad_output", &with_extents::<N>(&shape, out), &grad)?;
    args.resize(2, &shape)
}

fn adaptive<const N: usize, C: Mean + Pod>(args: &Args<'_>, room: &mut [u8]) -> Result<()> {
    let size = extents::<N>(args.tensor(X)?.shape())?;
    let out = extents::<N>(args.tensor(GRAD)?.shape())?;
    spread::<N, C>(args, 2, room, |grad, o, _, sums| {
        let window = adaptive_pooling::window(size, out, o);
        let mut part = grad;
        // One division per dimension, which rounds as PyTorch does.
        for range in &window[3 - N..] {
            part = part.over(range.end - range.start);
        }
        adaptive_pooling::within(window).try_for_each(|place| add_at(sums, size, place, part))
    })
}

fn bind_max<const N: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let axes = axes::<N>(&view, X, true)?;
    let shape = *view.tensor(X)?.shape();
    let pooled = with_extents::<N>(&shape, axes.map(|a| a.out));
    check_same("grad_output", &pooled, view.tensor(GRAD)?.shape())?;
    check_same("indices", &pooled, view.tensor(7)?.shape())?;
    args.resize(8, &shape)
}

fn max<const N: usize, C: Compute + Pod>(args: &Args<'_>, room: &mut [u8]) -> Result<()> {
    let size @ [d, h, w] = extents::<N>(args.tensor(X)?.shape())?;
    let indices = Reader::<i64>::new(args.tensor(7)?)?;
    spread::<N, C>(args, 8, room, |grad, o, p, sums| {
        let index = indices.get(Volume::of::<N>(indices.meta(), p).at(o))?;
        if index == -1 {
            return Ok(());
        }
        let at = check_index(index, (d * h * w) as usize).map_err(|e| e.argument("indices"))? as i64;
        add_at(sums, size, [at / (h * w), at / w % h, at % w], grad)
    })
}

fn prepare_average<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, GRAD, 8)?;
    same_dtype(ctx, X, 8)?;
    let room = room::<N>(ctx, 8)?;
    if dtype_of(ctx, X)? == DType::Int64 {
        return Routine::prepare_with_scratch(room, bind_average::<N>, |args, s| {
            average::<N, i64>(args, s.worker)
        });
    }
    check_float(ctx, 8)?;
    match Class::of(dtype_of(ctx, X)?) {
        Some(Class::F64) => Routine::prepare_with_scratch(room, bind_average::<N>, |args, s| {
            average::<N, f64>(args, s.worker)
        }),
        _ => Routine::prepare_with_scratch(room, bind_average::<N>, |args, s| {
            average::<N, f32>(args, s.worker)
        }),
    }
}

fn prepare_adaptive<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, GRAD, 2)?;
    same_dtype(ctx, X, 2)?;
    check_float(ctx, 2)?;
    let room = room::<N>(ctx, 2)?;
    match Class::of(dtype_of(ctx, X)?) {
        Some(Class::F64) => Routine::prepare_with_scratch(room, bind_adaptive::<N>, |args, s| {
            adaptive::<N, f64>(args, s.worker)
        }),
        _ => Routine::prepare_with_scratch(room, bind_adaptive::<N>, |args, s| {
            adaptive::<N, f32>(args, s.worker)
        }),
    }
}

fn prepare_max<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, GRAD, 8)?;
    same_dtype(ctx, X, 8)?;
    check_float(ctx, 8)?;
    if dtype_of(ctx, 7)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices").got(dtype_of(ctx, 7)?.name()));
    }
    let room = room::<N>(ctx, 8)?;
    match Class::of(dtype_of(ctx, X)?) {
        Some(Class::F64) => {
            Routine::prepare_with_scratch(room, bind_max::<N>, |args, s| max::<N, f64>(args, s.worker))
        }
        _ => Routine::prepare_with_scratch(room, bind_max::<N>, |args, s| max::<N, f32>(args, s.worker)),
    }
}

/// Gradients of pooling.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::avg_pool2d_backward.grad_input(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override, *, Tensor(a!) grad_input) -> Tensor(a!)",
        prepare_average::<2>,
    )
    .fast("windows", windows::prepare_average::<2>),
    kernel(
        "aten::avg_pool3d_backward.grad_input(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, bool ceil_mode, bool count_include_pad, int? divisor_override, *, Tensor(a!) grad_input) -> Tensor(a!)",
        prepare_average::<3>,
    )
    .fast("windows", windows::prepare_average::<3>),
    kernel(
        "aten::_adaptive_avg_pool2d_backward.out(Tensor grad_output, Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_adaptive::<2>,
    )
    .fast("windows", windows::prepare_adaptive::<2>),
    kernel(
        "aten::_adaptive_avg_pool3d_backward.out(Tensor grad_output, Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_adaptive::<3>,
    )
    .fast("windows", windows::prepare_adaptive::<3>),
    kernel(
        "aten::max_pool2d_with_indices_backward.grad_input(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices, *, Tensor(a!) grad_input) -> Tensor(a!)",
        prepare_max::<2>,
    )
    .fast("maxima", maxima::prepare::<2>),
    kernel(
        "aten::max_pool3d_with_indices_backward.grad_input(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, int[3] dilation, bool ceil_mode, Tensor indices, *, Tensor(a!) grad_input) -> Tensor(a!)",
        prepare_max::<3>,
    )
    .fast("maxima", maxima::prepare::<3>),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn averages_share_the_gradient_out() {
        let args: [Arg; 8] = [
            Tensor::of(&[1, 1, 2], &[4f32, 8.0]).into(),
            Tensor::of(&[1, 1, 4], &[0f32; 4]).into(),
            vec![1, 2].into(),
            vec![].into(),
            vec![0].into(),
            false.into(),
            true.into(),
            Arg::None,
        ];
        let y = run_out("aten::avg_pool2d_backward.grad_input", &args, DType::Float32, &[1, 1, 4]).unwrap();
        assert_eq!(y.values::<f32>(), [2.0, 2.0, 4.0, 4.0]);
    }

    #[test]
    fn maxima_pass_it_to_their_places_which_must_exist() {
        let run = |at: [i64; 2]| {
            let args: [Arg; 8] = [
                Tensor::of(&[1, 1, 2], &[4f32, 8.0]).into(),
                Tensor::of(&[1, 1, 3], &[0f32; 3]).into(),
                vec![1, 2].into(),
                vec![1].into(),
                vec![0].into(),
                vec![1].into(),
                false.into(),
                Tensor::of(&[1, 1, 2], &at).into(),
            ];
            run_out("aten::max_pool2d_with_indices_backward.grad_input", &args, DType::Float32, &[1, 1, 3])
        };
        assert_eq!(run([1, 1]).unwrap().values::<f32>(), [0.0, 12.0, 0.0]);
        assert_eq!(run([1, -1]).unwrap().values::<f32>(), [0.0, 4.0, 0.0]);
        assert!(error_text(run([1, 3])).contains("index out of range"));
    }
}
