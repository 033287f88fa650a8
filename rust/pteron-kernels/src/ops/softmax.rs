//! softmax and log_softmax along a dimension: the rows of the table and the plain kernel. `float` is the fast one.
//!
//! Shape: that of `self`. Dtype: floats, computed in float32 or float64. Edge cases: a row of
//! negative infinities gives NaN, as the quotient of two zeros does.

use crate::compute::{BLOCK, Class, Compute};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::ops::sums::check_float;
use crate::reduction::plain::{LaneSum, Reduction};
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::wrap_dim;
use pteron_core::{ArgSpec, Args, BindArgs, Error, PrepareContext, Result};

#[allow(unsafe_code, reason = "a SIMD task")]
mod columns;
mod doubles;
mod float;
#[allow(unsafe_code, reason = "a SIMD task")]
mod rows;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Softmax,
    LogSoftmax,
}

/// The function of compute types that a softmax needs.
trait Exponential: Compute {
    fn exp(self) -> Self;
    fn minus(self, other: Self) -> Self;
}
impl Exponential for f32 {
    #[inline(always)]
    fn exp(self) -> f32 {
        f32::exp(self)
    }
    #[inline(always)]
    fn minus(self, other: f32) -> f32 {
        self - other
    }
}
impl Exponential for f64 {
    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn minus(self, other: f64) -> f64 {
        self - other
    }
}

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    wrap_dim(view.int(1)?, shape.len())?;
    args.resize(3, &shape)
}

fn along<C: Exponential, const LOG: bool>(args: &Args<'_>) -> Result<()> {
    let x = args.tensor(0)?;
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    let (x, mut y) = (Reader::<C>::new(x)?, Writer::<C>::new(args.output(3)?)?);
    let (from, to) = (Reduction::new(x.meta(), 1 << dim), Reduction::new(y.meta(), 1 << dim));
    let mut buffer = [C::ZERO; BLOCK];
    let mut result = [C::ZERO; BLOCK];
    from.for_each(|position, base| {
        let mut top = C::LOWEST;
        x.blocks(from.inner(), base, &mut buffer, |_, b| {
            top = b.iter().fold(top, |t, v| if *v > t || v.is_nan() { *v } else { t });
            Ok(())
        })?;
        let mut sum = LaneSum::default();
        x.blocks(from.inner(), base, &mut buffer, |_, b| {
            sum.add(b, |v| v.minus(top).exp().to_f64());
            Ok(())
        })?;
        let (scale, log) = (C::from_f64(1.0 / sum.total()), C::from_f64(sum.total().ln()));
        let target = to.outer.offset(position);
        x.blocks(from.inner(), base, &mut buffer, |at, b| {
            for (r, v) in result.iter_mut().zip(b) {
                let shifted = v.minus(top);
                *r = if LOG { shifted.minus(log) } else { shifted.exp().times(scale) };
            }
            y.scatter(to.inner(), target, at, &result[..b.len()])
        })
    })
}

fn prepare<const LOG: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    check_float(ctx, 3)?;
    if matches!(ctx.args.get(2), Some(ArgSpec::Bool(Some(true)))) {
        return Err(Error::kernel("half_to_float is for other devices than the CPU, as in PyTorch")
            .argument("half_to_float")
            .expected("False"));
    }
    match Class::of(dtype_of(ctx, 0)?) {
        Some(Class::F64) => Routine::prepare(bind, |args, _| along::<f64, LOG>(args)),
        _ => Routine::prepare(bind, |args, _| along::<f32, LOG>(args)),
    }
}

/// softmax, log_softmax.
pub static OPERATORS: &[Operator] = &[
    operator("aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("float", |ctx| float::prepare(ctx, Kind::Softmax))
        .plain(prepare::<false>),
    operator(
        "aten::_log_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("float", |ctx| float::prepare(ctx, Kind::LogSoftmax))
    .plain(prepare::<true>),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, run_out};
    use pteron_core::DType;

    fn softmax(op: &str, x: &[f32], shape: &[usize], dim: i64) -> Vec<f32> {
        let args = [Tensor::of(shape, x).into(), dim.into(), false.into()];
        run_out(op, &args, DType::Float32, shape).unwrap().values()
    }

    #[test]
    fn rows_add_up_and_large_values_do_not_overflow() {
        let y = softmax("aten::_softmax.out", &[1000.0, 1001.0, -1000.0, 0.0], &[2, 2], 0);
        assert!((y[0] - 1.0).abs() < 1e-6 && y[2] == 0.0);
        assert!((y[1] + y[3] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn infinities_and_scalars() {
        let y = softmax("aten::_softmax.out", &[f32::NEG_INFINITY; 2], &[2], 0);
        assert!(y.iter().all(|v| v.is_nan()));
        assert_eq!(softmax("aten::_softmax.out", &[3.0], &[], 0), [1.0]);
        assert_eq!(softmax("aten::_log_softmax.out", &[3.0], &[], -1), [0.0]);
        assert_eq!(softmax("aten::_log_softmax.out", &[], &[0, 2], 0), Vec::<f32>::new());
    }
}
