//! Gradients of layer and group normalisation with respect to input, weight and bias.
//!
//! With x̂ = (x − mean) · rstd and h = gradient · weight, the gradient of the input is
//! rstd · (h − mean(h) − x̂ · mean(h · x̂)), means taken over what was normalised together.
//!
//! Shape: those of input, weight and bias. Dtype: floats; everything accumulates in float64. Edge cases:
//! weight and bias may be absent; a result that `output_mask` does not ask for is left as it is; without
//! rows the gradients of weight and bias are 0. `layer` and `group` are the fast kernels, `totals` has their loops.

use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::normalization::{base, check_optional, group_counts, optional, plane};
use crate::ops::sums::check_float;
use crate::reduction::plain::{Reduction, row_major};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::check_same;
use crate::strided::loops::Walk;
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result};

#[cfg(test)]
#[path = "norm_backward/tests.rs"]
mod fast_tests;
mod group;
mod layer;
mod totals;

const GRAD: usize = 0;
const X: usize = 1;

fn mask(args: &Args<'_>, i: usize) -> Result<[bool; 3]> {
    let mask = args.bool_list(i)?;
    mask.try_into().map_err(|_| {
        Error::kernel("there are three gradients")
            .argument("output_mask")
            .expected("3")
            .got(mask.len().to_string())
    })
}

/// Sizes the results that are asked for.
fn resize(args: &mut BindArgs<'_>, mask: [bool; 3], out: usize, shapes: [&[usize]; 3]) -> Result<()> {
    (0..3).filter(|i| mask[*i]).try_for_each(|i| args.resize(out + i, shapes[i]))
}

fn bind_layer(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(X)?.shape();
    let normalized = view.int_list(2)?.to_dims()?;
    let lead = shape.len().checked_sub(normalized.len());
    let Some(lead) = lead.filter(|l| shape[*l..] == *normalized && !normalized.is_empty()) else {
        return Err(Error::kernel("the input must end with the normalised shape")
            .argument("normalized_shape")
            .expected(format!("the last extents of {shape}"))
            .got(normalized.to_string()));
    };
    check_same("grad_out", &shape, view.tensor(GRAD)?.shape())?;
    let mut statistics = shape;
    statistics[lead..].fill(1);
    check_same("mean", &statistics, view.tensor(3)?.shape())?;
    check_same("rstd", &statistics, view.tensor(4)?.shape())?;
    check_optional(&view, 5, "weight", &normalized)?;
    check_optional(&view, 6, "bias", &normalized)?;
    let mask = mask(&view, 7)?;
    resize(args, mask, 8, [&shape, &normalized, &normalized])
}

/// The operands of a layer norm's gradient, by row.
struct Layer<'a> {
    grad: Reader<'a, f64>,
    x: Reader<'a, f64>,
    statistics: [Reader<'a, f64>; 2],
    weight: Option<Reader<'a, f64>>,
    rows: [Reduction; 2],
}

impl<'a> Layer<'a> {
    fn new(args: &Args<'a>) -> Result<Self> {
        let (grad, x) = (Reader::<f64>::new(args.tensor(GRAD)?)?, Reader::<f64>::new(args.tensor(X)?)?);
        let set = Layer::set(args)?;
        let rows = [Reduction::new(grad.meta(), set), Reduction::new(x.meta(), set)];
        let statistics = [Reader::new(args.tensor(3)?)?, Reader::new(args.tensor(4)?)?];
        Ok(Layer { grad, x, statistics, weight: optional(args, 5)?, rows })
    }

    /// The normalised dimensions.
    fn set(args: &Args<'_>) -> Result<u32> {
        let rank = args.tensor(X)?.rank();
        Ok((rank - args.int_list(2)?.len()..rank).fold(0, |set, d| set | 1 << d))
    }

    /// Mean and reciprocal standard deviation of a row.
    fn moments(&self, row: usize) -> Result<[f64; 2]> {
        let at = |i: usize| self.statistics[i].get(row_major(self.statistics[i].meta()).offset(row) as usize);
        Ok([at(0)?, at(1)?])
    }

    /// Gradient and x̂ of the elements from `at` on of a row.
    fn block(
        &self,
        row: usize,
        [mean, rstd]: [f64; 2],
        at: usize,
        grad: &mut [f64],
        x: &mut [f64],
    ) -> Result<()> {
        self.grad.gather(self.rows[0].inner(), self.rows[0].outer.offset(row), at, grad)?;
        self.x.gather(self.rows[1].inner(), self.rows[1].outer.offset(row), at, x)?;
        x.iter_mut().for_each(|v| *v = (*v - mean) * rstd);
        Ok(())
    }

    /// Multiplies by the weight.
    fn weigh(&self, at: usize, grad: &mut [f64], factor: &mut [f64]) -> Result<()> {
        if let Some(weight) = &self.weight {
            weight.gather(&row_major(weight.meta()), 0, at, factor)?;
            grad.iter_mut().zip(factor.iter()).for_each(|(g, w)| *g *= w);
        }
        Ok(())
    }

    fn input(&self, set: u32, mut out: Writer<'_, f64>) -> Result<()> {
        let to = Reduction::new(out.meta(), set);
        let count = to.count();
        let (mut grad, mut x, mut factor) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
        for row in 0..to.outer.numel() {
            let moments = self.moments(row)?;
            let mut means = [0.0; 2];
            for is_second in [false, true] {
                for at in (0..count).step_by(BLOCK) {
                    let n = (count - at).min(BLOCK);
                    let (grad, x) = (&mut grad[..n], &mut x[..n]);
                    self.block(row, moments, at, grad, x)?;
                    self.weigh(at, grad, &mut factor[..n])?;
                    if is_second {
                        let slope = |h: f64, x: f64| moments[1] * (h - means[0] - x * means[1]);
                        grad.iter_mut().zip(x.iter()).for_each(|(h, x)| *h = slope(*h, *x));
                        out.scatter(to.inner(), to.outer.offset(row), at, grad)?;
                    } else {
                        means[0] += grad.iter().sum::<f64>();
                        means[1] += grad.iter().zip(x.iter()).map(|(h, x)| h * x).sum::<f64>();
                    }
                }
                if !is_second {
                    means.iter_mut().for_each(|m| *m /= count as f64);
                }
            }
        }
        Ok(())
    }

    /// The gradient of the weight, or of the bias.
    fn parameter(&self, is_weight: bool, mut out: Writer<'_, f64>) -> Result<()> {
        let count = self.rows[0].count();
        let to = row_major(out.meta());
        let (mut grad, mut x) = ([0.0; BLOCK], [0.0; BLOCK]);
        for at in (0..count).step_by(BLOCK) {
            let n = (count - at).min(BLOCK);
            let mut sums = [0.0; BLOCK];
            for row in 0..self.rows[0].outer.numel() {
                self.block(row, self.moments(row)?, at, &mut grad[..n], &mut x[..n])?;
                for (i, sum) in sums[..n].iter_mut().enumerate() {
                    *sum += if is_weight { grad[i] * x[i] } else { grad[i] };
                }
            }
            out.scatter(&to, 0, at, &sums[..n])?;
        }
        Ok(())
    }
}

fn layer(args: &Args<'_>) -> Result<()> {
    let (mask, set) = (mask(args, 7)?, Layer::set(args)?);
    let operands = Layer::new(args)?;
    if mask[0] {
        operands.input(set, Writer::new(args.output(8)?)?)?;
    }
    for i in [1, 2] {
        if mask[i] {
            operands.parameter(i == 1, Writer::new(args.output(8 + i)?)?)?;
        }
    }
    Ok(())
}

fn bind_group(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (n, c, groups) = group_counts(&view, X, 5)?;
    let shape = *view.tensor(X)?.shape();
    check_same("grad_out", &shape, view.tensor(GRAD)?.shape())?;
    check_same("mean", &[n, groups], view.tensor(2)?.shape())?;
    check_same("rstd", &[n, groups], view.tensor(3)?.shape())?;
    check_optional(&view, 4, "weight", &[c])?;
    let mask = mask(&view, 9)?;
    resize(args, mask, 10, [&shape, &[c], &[c]])
}

/// The operands of a group norm's gradient, by image and channel.
struct Group<'a> {
    grad: Reader<'a, f64>,
    x: Reader<'a, f64>,
    statistics: [Reader<'a, f64>; 2],
    planes: [Walk; 2],
    images: usize,
    channels: usize,
    per_group: usize,
}

impl<'a> Group<'a> {
    fn new(args: &Args<'a>) -> Result<Self> {
        let (images, channels, groups) = group_counts(args, X, 5)?;
        let (grad, x) = (Reader::<f64>::new(args.tensor(GRAD)?)?, Reader::<f64>::new(args.tensor(X)?)?);
        let planes = [grad.meta(), x.meta()].map(|m| plane(m.shape(), m.strides()));
        let statistics = [Reader::new(args.tensor(2)?)?, Reader::new(args.tensor(3)?)?];
        Ok(Group { grad, x, statistics, planes, images, channels, per_group: channels / groups })
    }

    fn moments(&self, n: usize, c: usize) -> Result<[f64; 2]> {
        let at = |i: usize| {
            let strides = self.statistics[i].meta().strides();
            self.statistics[i].get(n * strides[0] + c / self.per_group * strides[1])
        };
        Ok([at(0)?, at(1)?])
    }

    /// Visits gradient and x̂ of the elements of a channel of an image, with the position of the first.
    fn blocks(
        &self,
        n: usize,
        c: usize,
        mut visit: impl FnMut(usize, &mut [f64], &[f64]) -> Result<()>,
    ) -> Result<()> {
        let [mean, rstd] = self.moments(n, c)?;
        let (mut grad, mut x) = ([0.0; BLOCK], [0.0; BLOCK]);
        let count = self.planes[0].numel();
        for at in (0..count).step_by(BLOCK) {
            let len = (count - at).min(BLOCK);
            let (grad, x) = (&mut grad[..len], &mut x[..len]);
            self.grad.gather(&self.planes[0], base(self.grad.meta(), n, c), at, grad)?;
            self.x.gather(&self.planes[1], base(self.x.meta(), n, c), at, x)?;
            x.iter_mut().for_each(|v| *v = (*v - mean) * rstd);
            visit(at, grad, x)?;
        }
        Ok(())
    }

    /// Sums of the gradient and of its product with x̂ over a channel of an image.
    fn sums(&self, n: usize, c: usize) -> Result<[f64; 2]> {
        let mut sums = [0.0; 2];
        self.blocks(n, c, |_, grad, x| {
            sums[0] += grad.iter().sum::<f64>();
            sums[1] += grad.iter().zip(x).map(|(g, x)| g * x).sum::<f64>();
            Ok(())
        })?;
        Ok(sums)
    }

    fn input(&self, weight: &Option<Reader<'_, f64>>, mut out: Writer<'_, f64>) -> Result<()> {
        let to = plane(out.meta().shape(), out.meta().strides());
        let count = (self.per_group * self.planes[0].numel()) as f64;
        let factor = |c: usize| weight.as_ref().map_or(Ok(1.0), |w| w.get(c));
        for n in 0..self.images {
            for first in (0..self.channels).step_by(self.per_group.max(1)) {
                let mut means = [0.0; 2];
                for c in first..first + self.per_group {
                    let (sums, factor) = (self.sums(n, c)?, factor(c)?);
                    means = [means[0] + factor * sums[0], means[1] + factor * sums[1]];
                }
                let means = means.map(|m| m / count);
                for c in first..first + self.per_group {
                    let (rstd, factor) = (self.moments(n, c)?[1], factor(c)?);
                    let base = base(out.meta(), n, c);
                    self.blocks(n, c, |at, grad, x| {
                        let slope = |g: f64, x: f64| rstd * (factor * g - means[0] - x * means[1]);
                        grad.iter_mut().zip(x).for_each(|(g, x)| *g = slope(*g, *x));
                        out.scatter(&to, base, at, grad)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The gradient of the bias (`which` 0), or of the weight (1).
    fn parameter(&self, which: usize, mut out: Writer<'_, f64>) -> Result<()> {
        for c in 0..self.channels {
            let mut sum = 0.0;
            for n in 0..self.images {
                sum += self.sums(n, c)?[which];
            }
            out.put(c, sum)?;
        }
        Ok(())
    }
}

fn group(args: &Args<'_>) -> Result<()> {
    let mask = mask(args, 9)?;
    let operands = Group::new(args)?;
    if mask[0] {
        operands.input(&optional(args, 4)?, Writer::new(args.output(10)?)?)?;
    }
    for (i, which) in [(1, 1), (2, 0)] {
        if mask[i] {
            operands.parameter(which, Writer::new(args.output(10 + i)?)?)?;
        }
    }
    Ok(())
}

fn check(ctx: &PrepareContext<'_>, out: usize) -> Result<()> {
    check_float(ctx, out)?;
    for i in [X, out + 1, out + 2] {
        if ctx.tensor(i).is_some() && !dtype_of(ctx, i)?.is_float() {
            return Err(Error::kernel("the operator needs floats").got(dtype_of(ctx, i)?.name()));
        }
    }
    Ok(())
}

fn prepare_layer(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx, 8)?;
    Routine::prepare(bind_layer, |args, _| layer(args))
}

fn prepare_group(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx, 10)?;
    Routine::prepare(bind_group, |args, _| group(args))
}

/// Gradients of normalisations.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::native_layer_norm_backward.out(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        prepare_layer,
    )
    .fast("rows", layer::prepare),
    kernel(
        "aten::native_group_norm_backward.out(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        prepare_group,
    )
    .fast("groups", group::prepare),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text};
    use pteron_core::DType;

    #[test]
    fn a_row_whose_gradient_is_the_same_everywhere_moves_nothing() {
        let output = |shape: &[usize]| -> Arg { Tensor::output(DType::Float32, shape).into() };
        let mut args = vec![
            Tensor::of(&[1, 2], &[3f32, 3.0]).into(),
            Tensor::of(&[1, 2], &[1f32, 3.0]).into(),
            vec![2].into(),
            Tensor::of(&[1, 1], &[2f32]).into(),
            Tensor::of(&[1, 1], &[1f32]).into(),
            Arg::None,
            Arg::None,
            Arg::BoolList(vec![true; 3]),
            output(&[1, 2]),
            output(&[2]),
            output(&[2]),
        ];
        let r = call("aten::native_layer_norm_backward.out", &args).unwrap();
        let values = |i: usize| match &r[i] {
            Arg::Tensor(t) => t.values::<f32>(),
            _ => panic!("no tensor"),
        };
        assert_eq!((values(8), values(9), values(10)), (vec![0.0, 0.0], vec![-3.0, 3.0], vec![3.0, 3.0]));
        args[7] = Arg::BoolList(vec![true]);
        assert!(error_text(call("aten::native_layer_norm_backward.out", &args)).contains("three gradients"));
    }
}
