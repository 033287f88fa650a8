//! Running results along a dimension that sums and products do not give: cummax, cummin, logcumsumexp.
//!
//! Shape: that of `self`. Dtype: kept; positions are int64; logcumsumexp takes floats and accumulates in
//! float64. Edge cases: of equal extremes the last; from the first NaN on all is NaN, its position that of
//! the last NaN so far.

use crate::compute::{BLOCK, Class, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::reduction::Reduction;
use crate::routine::{Preparation, Routine, dtype_of, kernel};
use crate::shape::wrap_dim;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result, StaticKernel};

fn bind<const FIRST: usize, const LAST: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    wrap_dim(view.int(1)?, shape.len())?;
    (FIRST..=LAST).try_for_each(|out| args.resize(out, &shape))
}

fn extremes<C: Compute, const LARGEST: bool>(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let set = 1 << wrap_dim(args.int(1)?, x.rank())?;
    let x = Reader::<C>::new(x)?;
    let (mut values, mut positions) = (Writer::<C>::new(args.output(2)?)?, Writer::<i64>::new(args.output(3)?)?);
    let from = Reduction::new(x.meta(), set);
    let (to, to_positions) = (Reduction::new(values.meta(), set), Reduction::new(positions.meta(), set));
    let (mut buffer, mut best, mut places) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK], [0i64; BLOCK]);
    from.for_each(|position, base| {
        let (target, target_position) = (to.outer.offset(position), to_positions.outer.offset(position));
        let mut state: Option<(C, i64)> = None;
        x.blocks(from.inner(), base, &mut buffer, |at, block| {
            for (i, v) in block.iter().enumerate() {
                let new = (*v, (at + i) as i64);
                let now = match state {
                    Some(old) if !v.is_nan() && (old.0.is_nan() || if LARGEST { *v < old.0 } else { *v > old.0 }) => old,
                    _ => new,
                };
                (best[i], places[i]) = now;
                state = Some(now);
            }
            values.scatter(to.inner(), target, at, &best[..block.len()])?;
            positions.scatter(to_positions.inner(), target_position, at, &places[..block.len()])
        })
    })
}

/// The logarithm of the sum of the exponentials.
fn log_add(sum: f64, v: f64) -> f64 {
    if sum.is_nan() || v.is_nan() {
        return f64::NAN;
    }
    let (low, high) = (sum.min(v), sum.max(v));
    // Equal infinities have no difference.
    if low == high && low.is_infinite() { low } else { (low - high).exp().ln_1p() + high }
}

fn log_sums(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let set = 1 << wrap_dim(args.int(1)?, x.rank())?;
    let (x, mut out) = (Reader::<f64>::new(x)?, Writer::<f64>::new(args.output(2)?)?);
    let (from, to) = (Reduction::new(x.meta(), set), Reduction::new(out.meta(), set));
    let (mut buffer, mut sums) = ([0.0; BLOCK], [0.0; BLOCK]);
    from.for_each(|position, base| {
        let target = to.outer.offset(position);
        let mut sum = f64::NEG_INFINITY;
        x.blocks(from.inner(), base, &mut buffer, |at, block| {
            for (slot, v) in sums.iter_mut().zip(block) {
                sum = log_add(sum, *v);
                *slot = sum;
            }
            out.scatter(to.inner(), target, at, &sums[..block.len()])
        })
    })
}

fn prepare_extremes<const LARGEST: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    if dtype_of(ctx, 3)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices").got(dtype_of(ctx, 3)?.name()));
    }
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::I64) => Routine::prepare(bind::<2, 3>, |args, _| extremes::<i64, LARGEST>(args)),
        Some(_) => Routine::prepare(bind::<2, 3>, |args, _| extremes::<f64, LARGEST>(args)),
        None => Err(Error::kernel("the operator does not support this dtype").got(dtype_of(ctx, 0)?.name())),
    }
}

fn prepare_log_sums(ctx: &PrepareContext<'_>) -> Preparation {
    check_float(ctx, 2)?;
    same_dtype(ctx, 0, 2)?;
    Routine::prepare(bind::<2, 2>, |args, _| log_sums(args))
}

/// cummax, cummin, logcumsumexp.
pub static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::cummax.out(Tensor self, int dim, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        prepare_extremes::<true>,
    ),
    kernel(
        "aten::cummin.out(Tensor self, int dim, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        prepare_extremes::<false>,
    ),
    kernel("aten::logcumsumexp.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)", prepare_log_sums),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Arg, Tensor, call, run_out};

    #[test]
    fn the_last_of_equal_extremes_and_the_last_nan() {
        let x = Tensor::of(&[6], &[1f32, 1.0, 0.0, f32::NAN, 2.0, f32::NAN]);
        let args = [x.into(), 0i64.into(), Tensor::output(DType::Float32, &[6]).into(), Tensor::output(DType::Int64, &[6]).into()];
        let r = call("aten::cummax.out", &args).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[2], &r[3]) else { panic!("no tensors") };
        assert_eq!((&v.values::<f32>()[..3], i.values::<i64>()), (&[1.0, 1.0, 1.0][..], vec![0, 1, 1, 3, 3, 5]));
        assert!(v.values::<f32>()[3..].iter().all(|v| v.is_nan()));
    }

    #[test]
    fn blocks_carry_on_what_came_before() {
        let n = 3 * BLOCK;
        let x = Tensor::of(&[n], &(0..n as i64).rev().collect::<Vec<_>>());
        let args = [x.into(), 0i64.into(), Tensor::output(DType::Int64, &[n]).into(), Tensor::output(DType::Int64, &[n]).into()];
        let r = call("aten::cummax.out", &args).unwrap();
        let Arg::Tensor(i) = &r[3] else { panic!("no tensor") };
        assert!(i.values::<i64>().iter().all(|i| *i == 0));
    }

    #[test]
    fn infinities_add_up() {
        let x = Tensor::of(&[4], &[f64::NEG_INFINITY, f64::NEG_INFINITY, 2.0, f64::INFINITY]);
        let y = run_out("aten::logcumsumexp.out", &[x.into(), 0i64.into()], DType::Float64, &[4]).unwrap();
        assert_eq!(y.values::<f64>(), [f64::NEG_INFINITY, f64::NEG_INFINITY, 2.0, f64::INFINITY]);
        assert!(log_add(1.0, f64::NAN).is_nan());
    }
}
