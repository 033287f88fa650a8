//! Adaptive pooling of signals, images and volumes: the average or the largest element of windows that
//! cover the input, as many as asked for.
//!
//! Shape: `output_size`; window `o` of `m` covers ⌊o·n/m⌋..⌈(o+1)·n/m⌉ of `n`. Dtype: averages of floats
//! accumulate in float64; maxima of floats only, as in PyTorch. Edge cases: an output size of zero gives an
//! empty output; NaN counts as largest; inputs may lack the batch dimension.

use crate::compute::{Class, Compute};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::ops::layout::same_dtype;
use crate::ops::pooling::{avg_pool, largest, max_pool};
use crate::ops::sums::check_float;
use crate::ops::volume::{Volume, integers, places, spatial_extents, volumes, with_extents};
use crate::routine::{Preparation, Routine, dtype_of};
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result};

/// Extents of input and output. Which dimensions of the input may be empty depends on the operator, as in
/// PyTorch: the first one always, batch or not; channels where the average of images or signals is asked for; a
/// signal where it has one average, which is then NaN.
fn sizes<const N: usize>(args: &Args<'_>, is_average: bool) -> Result<([i64; 3], [i64; 3])> {
    let (shape, count) = (*args.tensor(0)?.shape(), args.int_list(1)?.len());
    if count != N {
        return Err(Error::kernel("output_size needs one extent per spatial dimension")
            .argument("output_size")
            .expected(N.to_string())
            .got(count.to_string()));
    }
    let out = integers::<N>(args, 1, ("output_size", 0, 1), None)?;
    let rank = shape.len();
    let filled = match (is_average, N) {
        (true, 1) if out == [1; 3] => rank,
        (true, 1 | 2) => rank.saturating_sub(N),
        _ => 1,
    };
    if !(N + 1..=N + 2).contains(&rank) || shape[filled..].contains(&0) {
        return Err(Error::kernel(
            "the input must be [N, C, spatial] or [C, spatial], with elements to choose from",
        )
        .argument("self")
        .expected(format!("{N} spatial dimensions"))
        .got(shape.to_string()));
    }
    Ok((spatial_extents::<N>(&shape)?, out))
}

/// Input ranges of output `o`.
pub(crate) fn window(size: [i64; 3], out: [i64; 3], o: [i64; 3]) -> [std::ops::Range<i64>; 3] {
    [0, 1, 2].map(|d| o[d] * size[d] / out[d]..((o[d] + 1) * size[d] + out[d] - 1) / out[d])
}

/// The places of a box.
pub(crate) fn within([d, h, w]: [std::ops::Range<i64>; 3]) -> impl Iterator<Item = [i64; 3]> {
    places([d.end - d.start, h.end - h.start, w.end - w.start])
        .map(move |[z, y, x]| [d.start + z, h.start + y, w.start + x])
}

fn bind<const N: usize, const OUTPUTS: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (_, out) = sizes::<N>(&view, OUTPUTS == 1)?;
    let shape = with_extents::<N>(view.tensor(0)?.shape(), out);
    (0..OUTPUTS).try_for_each(|i| args.resize(2 + i, &shape))
}

fn average<const N: usize>(args: &Args<'_>) -> Result<()> {
    let (size, out) = sizes::<N>(args, true)?;
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(2)?)?;
    for p in 0..volumes::<N>(x.meta()) {
        let (from, to) = (Volume::of::<N>(x.meta(), p), Volume::of::<N>(y.meta(), p));
        for o in places(out) {
            let window = window(size, out, o);
            let count: i64 = window.iter().map(|r| r.end - r.start).product();
            let mut sum = 0.0;
            for place in within(window) {
                sum += x.get(from.at(place))?;
            }
            y.put(to.at(o), sum / count as f64)?;
        }
    }
    Ok(())
}

fn max<const N: usize, C: Compute>(args: &Args<'_>) -> Result<()> {
    let (size, out) = sizes::<N>(args, false)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let (mut y, mut at) = (Writer::<C>::new(args.output(2)?)?, Writer::<i64>::new(args.output(3)?)?);
    for p in 0..volumes::<N>(x.meta()) {
        let from = Volume::of::<N>(x.meta(), p);
        let (to, to_index) = (Volume::of::<N>(y.meta(), p), Volume::of::<N>(at.meta(), p));
        for o in places(out) {
            let (value, index) = largest(&x, from, size, within(window(size, out, o)))?;
            y.put(to.at(o), value)?;
            at.put(to_index.at(o), index)?;
        }
    }
    Ok(())
}

fn prepare_average<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    check_float(ctx, 2)?;
    Routine::prepare(bind::<N, 1>, |args, _| average::<N>(args))
}

fn prepare_max<const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    check_float(ctx, 2)?;
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::F64) => Routine::prepare(bind::<N, 2>, |args, _| max::<N, f64>(args)),
        _ => Routine::prepare(bind::<N, 2>, |args, _| max::<N, f32>(args)),
    }
}

/// Adaptive pooling.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::adaptive_avg_pool1d.out(Tensor self, int[1] output_size, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| avg_pool::prepare_adaptive(ctx, 1))
    .plain(prepare_average::<1>),
    operator(
        "aten::_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| avg_pool::prepare_adaptive(ctx, 2))
    .plain(prepare_average::<2>),
    operator(
        "aten::_adaptive_avg_pool3d.out(Tensor self, SymInt[3] output_size, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| avg_pool::prepare_adaptive(ctx, 3))
    .plain(prepare_average::<3>),
    operator(
        "aten::adaptive_max_pool2d.out(Tensor self, int[2] output_size, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
    )
    .fast("float", |ctx| max_pool::prepare_adaptive(ctx, 2))
    .plain(prepare_max::<2>),
    operator(
        "aten::adaptive_max_pool3d.out(Tensor self, int[3] output_size, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
    )
    .fast("float", |ctx| max_pool::prepare_adaptive(ctx, 3))
    .plain(prepare_max::<3>),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn windows_cover_the_volume() {
        let x = Tensor::of(&[1, 1, 2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let args = [x.clone().into(), vec![1, 2, 2].into()];
        let y = run_out("aten::_adaptive_avg_pool3d.out", &args, DType::Float32, &[1, 1, 2, 2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.5, 2.5, 4.5, 5.5]);
        let e =
            run_out("aten::_adaptive_avg_pool3d.out", &[x.into(), vec![1, 2].into()], DType::Float32, &[1]);
        assert!(error_text(e).contains("output_size"));
    }

    #[test]
    fn largest_elements_and_their_places() {
        let x = Tensor::of(&[1, 2, 3], &[1f32, 7.0, 3.0, f32::NAN, 5.0, 7.0]);
        let args = [
            x.into(),
            vec![1, 3].into(),
            Tensor::output(DType::Float32, &[1, 1, 3]).into(),
            Tensor::output(DType::Int64, &[1, 1, 3]).into(),
        ];
        let r = call("aten::adaptive_max_pool2d.out", &args).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[2], &r[3]) else { panic!("no tensors") };
        assert!(v.values::<f32>()[0].is_nan());
        assert_eq!(i.values::<i64>(), [3, 1, 5]);
    }
}
