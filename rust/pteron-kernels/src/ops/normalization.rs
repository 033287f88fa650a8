//! Layer, group and batch normalisation: the rows of the table and the plain kernels. `layer_norm`, `group_norm` and
//! `batch_norm` are the fast ones.
//!
//! Shape: that of the input; statistics as PyTorch returns them. Dtype: floats; statistics are
//! accumulated in float64. Edge cases: weight and bias may be absent; empty batches.

use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel, operator};
use crate::ops::sums::{check_float, moments};
use crate::reduction::plain::{Reduction, row_major};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::check_same;
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, Dims, Error, PrepareContext, Result};

mod batch_norm;
#[cfg(test)]
#[path = "normalization/tests.rs"]
mod fast_tests;
mod group_norm;
mod layer_norm;
pub mod rms_norm;
#[allow(unsafe_code, reason = "a SIMD task")]
mod tasks;

pub(crate) fn optional<'a>(args: &Args<'a>, i: usize) -> Result<Option<Reader<'a, f64>>> {
    args.optional_tensor(i)?.map(Reader::new).transpose()
}

/// An error unless argument `i` is absent or has `shape`.
pub(crate) fn check_optional(args: &Args<'_>, i: usize, name: &str, shape: &[usize]) -> Result<()> {
    match args.optional_tensor(i)? {
        Some(t) => check_same(name, shape, t.shape()),
        None => Ok(()),
    }
}

pub(crate) fn check_outputs(ctx: &PrepareContext<'_>, outputs: [usize; 3]) -> Result<()> {
    check_float(ctx, outputs[0])?;
    for i in outputs {
        if !dtype_of(ctx, i)?.is_float() {
            return Err(Error::kernel("statistics are floats").got(dtype_of(ctx, i)?.name()));
        }
    }
    Ok(())
}

fn bind_layer(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    let normalized = view.int_list(1)?.to_dims()?;
    let lead = shape.len().checked_sub(normalized.len());
    let Some(lead) = lead.filter(|l| shape[*l..] == *normalized && !normalized.is_empty()) else {
        return Err(Error::kernel("the input must end with the normalised shape")
            .argument("normalized_shape")
            .expected(format!("the last extents of {shape}"))
            .got(normalized.to_string()));
    };
    check_optional(&view, 2, "weight", &normalized)?;
    check_optional(&view, 3, "bias", &normalized)?;
    let mut statistics = shape;
    statistics[lead..].fill(1);
    args.resize(5, &shape)?;
    args.resize(6, &statistics)?;
    args.resize(7, &statistics)
}

fn layer(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let lead = x.rank() - args.int_list(1)?.len();
    let set = (lead..x.rank()).fold(0u32, |set, d| set | 1 << d);
    let eps = args.double(4)?;
    let (weight, bias) = (optional(args, 2)?, optional(args, 3)?);
    let walks = [weight.as_ref(), bias.as_ref()].map(|r| r.map_or(Walk::EMPTY, |r| row_major(r.meta())));
    let x = Reader::<f64>::new(x)?;
    let mut y = Writer::<f64>::new(args.output(5)?)?;
    let (mut means, mut rstds) = (Writer::<f64>::new(args.output(6)?)?, Writer::<f64>::new(args.output(7)?)?);
    let statistics = [row_major(means.meta()), row_major(rstds.meta())];
    let (from, to) = (Reduction::new(x.meta(), set), Reduction::new(y.meta(), set));
    let (mut buffer, mut result, mut factor) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
    from.for_each(|position, base| {
        let (mean, squares) = moments(&x, from.inner(), base, &mut buffer)?;
        let rstd = 1.0 / (squares / from.count() as f64 + eps).sqrt();
        means.write(statistics[0].offset(position), 1, &[mean])?;
        rstds.write(statistics[1].offset(position), 1, &[rstd])?;
        let target = to.outer.offset(position);
        x.blocks(from.inner(), base, &mut buffer, |at, b| {
            let (result, factor) = (&mut result[..b.len()], &mut factor[..b.len()]);
            for (r, v) in result.iter_mut().zip(b) {
                *r = (v - mean) * rstd;
            }
            if let Some(weight) = &weight {
                weight.gather(&walks[0], 0, at, factor)?;
                result.iter_mut().zip(factor.iter()).for_each(|(r, w)| *r *= w);
            }
            if let Some(bias) = &bias {
                bias.gather(&walks[1], 0, at, factor)?;
                result.iter_mut().zip(factor.iter()).for_each(|(r, b)| *r += b);
            }
            y.scatter(to.inner(), target, at, result)
        })
    })
}

/// One value per channel: what a channel is multiplied with and what is added to it.
pub(crate) struct Affine {
    scale: f64,
    shift: f64,
}

impl Affine {
    /// `(x - mean) * rstd * weight + bias` of channel `c`.
    pub(crate) fn new(
        mean: f64,
        rstd: f64,
        c: usize,
        weight: &Option<Reader<'_, f64>>,
        bias: &Option<Reader<'_, f64>>,
    ) -> Result<Affine> {
        let weight = weight.as_ref().map_or(Ok(1.0), |w| w.get(c))?;
        let bias = bias.as_ref().map_or(Ok(0.0), |b| b.get(c))?;
        let scale = rstd * weight;
        Ok(Affine { scale, shift: bias - mean * scale })
    }
}

/// The positions of one image and channel of a tensor `[N, C, *]`.
pub(crate) fn plane(shape: &Dims, strides: &Dims) -> Walk {
    Walk::new(2..shape.len(), shape, &signed(strides))
}

/// Applies an affine map to one plane.
pub(crate) fn map_plane(
    x: &Reader<'_, f64>,
    y: &mut Writer<'_, f64>,
    planes: &[Walk; 2],
    bases: [isize; 2],
    affine: &Affine,
) -> Result<()> {
    let (mut buffer, mut result) = ([0.0; BLOCK], [0.0; BLOCK]);
    x.blocks(&planes[0], bases[0], &mut buffer, |at, b| {
        for (r, v) in result.iter_mut().zip(b) {
            *r = v * affine.scale + affine.shift;
        }
        y.scatter(&planes[1], bases[1], at, &result[..b.len()])
    })
}

pub(crate) fn base(meta: &pteron_core::TensorMeta, n: usize, c: usize) -> isize {
    (n * meta.strides()[0] + c * meta.strides()[1]) as isize
}

/// Batch, channels and groups of a group norm, arguments `first` to `first + 3`, checked against the input,
/// argument `x`.
pub(crate) fn group_counts(args: &Args<'_>, x: usize, first: usize) -> Result<(usize, usize, usize)> {
    let x = args.tensor(x)?;
    let (n, c) = (args.int(first)?, args.int(first + 1)?);
    let (hw, group) = (args.int(first + 2)?, args.int(first + 3)?);
    let shape = x.shape();
    let fits = x.rank() >= 2
        && [n, c, group, hw].iter().all(|v| *v >= 0)
        && (shape[0] as i64, shape[1] as i64) == (n, c)
        && shape[2..].iter().product::<usize>() as i64 == hw
        && group > 0
        && c % group == 0;
    if !fits {
        return Err(Error::kernel("N, C, HxW and group do not describe the input")
            .expected(format!("those of shape {shape}, group dividing C"))
            .got(format!("{n}, {c}, {hw}, {group}")));
    }
    Ok((n as usize, c as usize, group as usize))
}

fn bind_group(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (n, c, group) = group_counts(&view, 0, 3)?;
    check_optional(&view, 1, "weight", &[c])?;
    check_optional(&view, 2, "bias", &[c])?;
    let shape = *view.tensor(0)?.shape();
    args.resize(8, &shape)?;
    args.resize(9, &[n, group])?;
    args.resize(10, &[n, group])
}

fn group(args: &Args<'_>) -> Result<()> {
    let (images, channels, groups) = group_counts(args, 0, 3)?;
    let eps = args.double(7)?;
    let (weight, bias) = (optional(args, 1)?, optional(args, 2)?);
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(8)?)?;
    let (mut means, mut rstds) =
        (Writer::<f64>::new(args.output(9)?)?, Writer::<f64>::new(args.output(10)?)?);
    let per_group = channels / groups;
    let planes = [plane(x.meta().shape(), x.meta().strides()), plane(y.meta().shape(), y.meta().strides())];
    let mut extents = *x.meta().shape();
    extents[1] = per_group;
    let members = Walk::new(1..extents.len(), &extents, &signed(x.meta().strides()));
    let mut buffer = [0.0; BLOCK];
    for n in 0..images {
        for g in 0..groups {
            let (mean, squares) = moments(&x, &members, base(x.meta(), n, g * per_group), &mut buffer)?;
            let rstd = 1.0 / (squares / members.numel() as f64 + eps).sqrt();
            means.put(n * means.meta().strides()[0] + g * means.meta().strides()[1], mean)?;
            rstds.put(n * rstds.meta().strides()[0] + g * rstds.meta().strides()[1], rstd)?;
            for c in g * per_group..(g + 1) * per_group {
                let bases = [base(x.meta(), n, c), base(y.meta(), n, c)];
                map_plane(&x, &mut y, &planes, bases, &Affine::new(mean, rstd, c, &weight, &bias)?)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn check_batch(args: &Args<'_>) -> Result<Dims> {
    let x = args.tensor(0)?;
    if x.rank() < 2 {
        return Err(Error::kernel("the input needs a batch and a channel dimension")
            .argument("input")
            .got(x.shape().to_string()));
    }
    let channels = [x.shape()[1]];
    check_optional(args, 1, "weight", &channels)?;
    check_optional(args, 2, "bias", &channels)?;
    Ok(*x.shape())
}

fn bind_batch(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = check_batch(&view)?;
    check_same("running_mean", &[shape[1]], view.tensor(3)?.shape())?;
    check_same("running_var", &[shape[1]], view.tensor(4)?.shape())?;
    args.resize(7, &shape)?;
    args.resize(8, &[0])?;
    args.resize(9, &[0])
}

fn batch(args: &Args<'_>) -> Result<()> {
    let eps = args.double(6)?;
    let (weight, bias) = (optional(args, 1)?, optional(args, 2)?);
    let (means, variances) = (Reader::<f64>::new(args.tensor(3)?)?, Reader::<f64>::new(args.tensor(4)?)?);
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(7)?)?;
    let shape = *x.meta().shape();
    let planes = [plane(&shape, x.meta().strides()), plane(&shape, y.meta().strides())];
    for c in 0..shape[1] {
        let rstd = 1.0 / (variances.get(c)? + eps).sqrt();
        let affine = Affine::new(means.get(c)?, rstd, c, &weight, &bias)?;
        for n in 0..shape[0] {
            let bases = [base(x.meta(), n, c), base(y.meta(), n, c)];
            map_plane(&x, &mut y, &planes, bases, &affine)?;
        }
    }
    Ok(())
}

/// The positions of one channel of a tensor `[N, C, *]`.
pub(crate) fn channel_members(shape: &Dims, strides: &Dims) -> Walk {
    Walk::new((0..shape.len()).filter(|d| *d != 1), shape, &signed(strides))
}

fn bind_batch_statistics(args: &mut BindArgs<'_>) -> Result<()> {
    let shape = check_batch(&args.args())?;
    args.resize(6, &shape)?;
    args.resize(7, &[shape[1]])?;
    args.resize(8, &[shape[1]])
}

/// Batch norm with the statistics of the batch itself (instance norm becomes this).
fn batch_statistics(args: &Args<'_>) -> Result<()> {
    let eps = args.double(5)?;
    let (weight, bias) = (optional(args, 1)?, optional(args, 2)?);
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(6)?)?;
    let (mut means, mut rstds) = (Writer::<f64>::new(args.output(7)?)?, Writer::<f64>::new(args.output(8)?)?);
    let shape = *x.meta().shape();
    let planes = [plane(&shape, x.meta().strides()), plane(&shape, y.meta().strides())];
    let members = channel_members(&shape, x.meta().strides());
    let mut buffer = [0.0; BLOCK];
    for c in 0..shape[1] {
        let (mean, squares) = moments(&x, &members, base(x.meta(), 0, c), &mut buffer)?;
        let rstd = 1.0 / (squares / members.numel() as f64 + eps).sqrt();
        means.put(c, mean)?;
        rstds.put(c, rstd)?;
        let affine = Affine::new(mean, rstd, c, &weight, &bias)?;
        for n in 0..shape[0] {
            let bases = [base(x.meta(), n, c), base(y.meta(), n, c)];
            map_plane(&x, &mut y, &planes, bases, &affine)?;
        }
    }
    Ok(())
}

fn prepare(
    ctx: &PrepareContext<'_>,
    outputs: [usize; 3],
    bind: crate::routine::BindFn,
    run: crate::routine::RunFn,
) -> Preparation {
    check_outputs(ctx, outputs)?;
    Routine::prepare(bind, run)
}

/// Normalisations.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    )
    .fast("rows", layer_norm::prepare)
    .plain(|ctx| prepare(ctx, [5, 6, 7], bind_layer, |args, _| layer(args))),
    operator(
        "aten::native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    )
    .fast("rows", group_norm::prepare)
    .plain(|ctx| prepare(ctx, [8, 9, 10], bind_group, |args, _| group(args))),
    operator(
        "aten::_native_batch_norm_legit_no_training.out(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    )
    .fast("channels", batch_norm::prepare)
    .plain(|ctx| prepare(ctx, [7, 8, 9], bind_batch, |args, _| batch(args))),
    kernel(
        "aten::_native_batch_norm_legit.no_stats_out(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps, *, Tensor(a!) out, Tensor(b!) save_mean, Tensor(c!) save_invstd) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        |ctx| prepare(ctx, [6, 7, 8], bind_batch_statistics, |args, _| batch_statistics(args)),
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    fn output(shape: &[usize]) -> Arg {
        Tensor::output(DType::Float32, shape).into()
    }

    fn tensor(arg: &Arg) -> Vec<f32> {
        match arg {
            Arg::Tensor(t) => t.values(),
            _ => panic!("no tensor"),
        }
    }

    #[test]
    fn layer_norm_scales_each_row() {
        let x = Tensor::of(&[2, 2], &[1f32, 3.0, -2.0, 2.0]);
        let w = Tensor::of(&[2], &[1f32, 2.0]);
        let args = [
            x.into(),
            vec![2].into(),
            w.into(),
            Arg::None,
            0.0.into(),
            output(&[2, 2]),
            output(&[2, 1]),
            output(&[2, 1]),
        ];
        let r = call("aten::native_layer_norm.out", &args).unwrap();
        assert_eq!(tensor(&r[5]), [-1.0, 2.0, -1.0, 2.0]);
        assert_eq!((tensor(&r[6]), tensor(&r[7])), (vec![2.0, 0.0], vec![1.0, 0.5]));
        let mut bad = args.to_vec();
        bad[1] = vec![3].into();
        assert!(error_text(call("aten::native_layer_norm.out", &bad)).contains("normalised shape"));
    }

    #[test]
    fn batch_norm_in_channels_last() {
        let x = Tensor::of(&[1, 2, 1, 2], &[1f32, 10.0, 2.0, 20.0]).in_order(&[0, 2, 3, 1]);
        let mean = Tensor::of(&[2], &[1f32, 10.0]);
        let var = Tensor::of(&[2], &[1f32, 100.0]);
        let args = [
            x.into(),
            Arg::None,
            Arg::None,
            mean.into(),
            var.into(),
            0.1.into(),
            0.0.into(),
            output(&[1, 2, 1, 2]),
            output(&[0]),
            output(&[0]),
        ];
        let r = call("aten::_native_batch_norm_legit_no_training.out", &args).unwrap();
        assert_eq!(tensor(&r[7]), [0.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn group_norm_checks_its_numbers() {
        let x = Tensor::of(&[1, 2, 2], &[1f32, 3.0, 5.0, 9.0]);
        let mut args = [
            x.into(),
            Arg::None,
            Arg::None,
            1i64.into(),
            2i64.into(),
            2i64.into(),
            2i64.into(),
            0.0.into(),
            output(&[1, 2, 2]),
            output(&[1, 2]),
            output(&[1, 2]),
        ];
        let r = call("aten::native_group_norm.out", &args).unwrap();
        assert_eq!(tensor(&r[8]), [-1.0, 1.0, -1.0, 1.0]);
        args[6] = 0i64.into();
        assert!(error_text(call("aten::native_group_norm.out", &args)).contains("group"));
    }
}
