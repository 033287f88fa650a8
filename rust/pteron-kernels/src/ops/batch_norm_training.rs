//! Batch normalisation that keeps running statistics: in training it normalises with those of the batch
//! and moves the running ones towards them, else it normalises with the running ones.
//!
//! Shape: that of the input; the statistics of the batch `[C]`, empty outside training. Dtype: floats;
//! statistics are accumulated in float64. Edge cases: the running variance takes the unbiased variance, so
//! that of a single element is NaN; weight and bias may be absent.

use crate::compute::BLOCK;
use crate::elements::{Reader, UpdateView, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::normalization::{
    Affine, base, channel_members, check_batch, check_outputs, map_plane, optional, plane,
};
use crate::ops::sums::moments;
use crate::routine::Routine;
use crate::shape::check_same;
use pteron_core::{Args, BindArgs, Result};

const RUNNING: [usize; 2] = [3, 4];
const OUT: usize = 8;

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = check_batch(&view)?;
    check_same("running_mean", &[shape[1]], view.tensor(RUNNING[0])?.shape())?;
    check_same("running_var", &[shape[1]], view.tensor(RUNNING[1])?.shape())?;
    let statistics = if view.bool(5)? { shape[1] } else { 0 };
    args.resize(OUT, &shape)?;
    args.resize(OUT + 1, &[statistics])?;
    args.resize(OUT + 2, &[statistics])
}

/// Means and variances of the batch to the places of statistics, and into the running ones.
struct Training<'a> {
    momentum: f64,
    running: [UpdateView<'a, f64>; 2],
    saved: [Writer<'a, f64>; 2],
}

impl<'a> Training<'a> {
    fn new(args: &Args<'a>) -> Result<Self> {
        Ok(Training {
            momentum: args.double(6)?,
            running: [UpdateView::new(args, RUNNING[0])?, UpdateView::new(args, RUNNING[1])?],
            saved: [Writer::new(args.output(OUT + 1)?)?, Writer::new(args.output(OUT + 2)?)?],
        })
    }

    /// Takes channel `c` with its mean and sum of squared deviations over `count` elements; gives the
    /// reciprocal of its standard deviation.
    fn take(&mut self, c: usize, mean: f64, squares: f64, count: usize, eps: f64) -> Result<f64> {
        let rstd = 1.0 / (squares / count as f64 + eps).sqrt();
        self.saved[0].put(c, mean)?;
        self.saved[1].put(c, rstd)?;
        let momentum = self.momentum;
        let moved = |old: f64, new: f64| (1.0 - momentum) * old + momentum * new;
        self.running[0].update(c, |old| moved(old, mean))?;
        self.running[1].update(c, |old| moved(old, squares / (count as f64 - 1.0)))?;
        Ok(rstd)
    }
}

fn normalize(args: &Args<'_>) -> Result<()> {
    let eps = args.double(7)?;
    let (weight, bias) = (optional(args, 1)?, optional(args, 2)?);
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(OUT)?)?;
    let shape = *x.meta().shape();
    let planes = [plane(&shape, x.meta().strides()), plane(&shape, y.meta().strides())];
    let members = channel_members(&shape, x.meta().strides());
    let mut training = if args.bool(5)? { Some(Training::new(args)?) } else { None };
    let mut buffer = [0.0; BLOCK];
    for c in 0..shape[1] {
        let (mean, rstd) = match &mut training {
            Some(training) => {
                let (mean, squares) = moments(&x, &members, base(x.meta(), 0, c), &mut buffer)?;
                (mean, training.take(c, mean, squares, members.numel(), eps)?)
            }
            None => {
                let running = |i: usize| Reader::<f64>::new(args.tensor(RUNNING[i])?)?.get(c);
                (running(0)?, 1.0 / (running(1)? + eps).sqrt())
            }
        };
        let affine = Affine::new(mean, rstd, c, &weight, &bias)?;
        for n in 0..shape[0] {
            let bases = [base(x.meta(), n, c), base(y.meta(), n, c)];
            map_plane(&x, &mut y, &planes, bases, &affine)?;
        }
    }
    Ok(())
}

/// _native_batch_norm_legit.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::_native_batch_norm_legit.out(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, float eps, *, Tensor(d!) out, Tensor(e!) save_mean, Tensor(f!) save_invstd) -> (Tensor(d!), Tensor(e!), Tensor(f!))",
    |ctx| {
        check_outputs(ctx, [OUT, OUT + 1, OUT + 2])?;
        check_outputs(ctx, [OUT, RUNNING[0], RUNNING[1]])?;
        Routine::prepare(bind, |args, _| normalize(args))
    },
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call};
    use pteron_core::DType;

    fn run(training: bool, running: [f32; 2]) -> pteron_core::Result<Vec<Vec<f32>>> {
        let x = Tensor::of(&[2, 1, 2], &[1f32, 3.0, 5.0, 7.0]);
        let out = |shape: &[usize]| -> Arg { Tensor::output(DType::Float32, shape).into() };
        let args = [
            x.into(),
            Arg::None,
            Arg::None,
            Tensor::of(&[1], &running[..1]).into(),
            Tensor::of(&[1], &running[1..]).into(),
            training.into(),
            0.5.into(),
            0.0.into(),
            out(&[2, 1, 2]),
            out(&[1]),
            out(&[1]),
        ];
        let result = call("aten::_native_batch_norm_legit.out", &args)?;
        let values = |i: usize| match &result[i] {
            Arg::Tensor(t) => t.values(),
            _ => panic!("no tensor"),
        };
        Ok([3, 4, 8, 9, 10].map(values).to_vec())
    }

    #[test]
    fn training_moves_the_running_statistics() {
        let r = run(true, [0.0, 1.0]).unwrap();
        let rstd = (1.0 / 5f64.sqrt()) as f32;
        // The batch: mean 4, variance 5, unbiased 20 / 3.
        assert_eq!((r[0][0], r[1][0]), (2.0, (0.5 + 10.0 / 3.0) as f32));
        let expected = [-3.0, -1.0, 1.0, 3.0].map(|v: f64| (v / 5f64.sqrt()) as f32);
        assert_eq!(r[2], expected);
        assert_eq!((r[3].clone(), r[4].clone()), (vec![4.0], vec![rstd]));
    }

    #[test]
    fn outside_training_the_running_statistics_stay_and_count() {
        let r = run(false, [3.0, 4.0]).unwrap();
        assert_eq!((r[0][0], r[1][0]), (3.0, 4.0));
        assert_eq!(r[2], [-1.0, 0.0, 1.0, 2.0]);
        assert!(r[3].is_empty() && r[4].is_empty());
    }
}
