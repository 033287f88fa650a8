//! Running results of complex64 numbers: cumsum, cumprod, logcumsumexp.
//!
//! Shape: that of `self`. Dtype: complex64, accumulated in float64; real inputs count as complex ones. Edge cases:
//! of a running logarithm the number with the larger real part counts as the larger; NaN stays.

use crate::complex_number::{Number, number};
use crate::compute::{BLOCK, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::complex_elementwise::is_complex;
use crate::ops::layout::same_dtype;
use crate::reduction::plain::Reduction;
use crate::routine::{Preparation, Routine};
use crate::shape::wrap_dim;
use pteron_core::{Args, BindArgs, PrepareContext, Result};

fn bind<const OUT: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    wrap_dim(view.int(1)?, shape.len())?;
    args.resize(OUT, &shape)
}

fn scan<const OUT: usize>(args: &Args<'_>, start: Number, step: fn(Number, Number) -> Number) -> Result<()> {
    let x = args.tensor(0)?;
    let set = 1 << wrap_dim(args.int(1)?, x.rank())?;
    let (x, mut y) = (Reader::<Number>::new(x)?, Writer::<Number>::new(args.output(OUT)?)?);
    let (from, to) = (Reduction::new(x.meta(), set), Reduction::new(y.meta(), set));
    let (mut buffer, mut results) = ([Number::ZERO; BLOCK], [Number::ZERO; BLOCK]);
    from.for_each(|position, base| {
        let target = to.outer.offset(position);
        let mut state = start;
        x.blocks(from.inner(), base, &mut buffer, |at, block| {
            for (slot, v) in results.iter_mut().zip(block) {
                state = step(state, *v);
                *slot = state;
            }
            y.scatter(to.inner(), target, at, &results[..block.len()])
        })
    })
}

/// The logarithm of the sum of two exponentials.
fn log_add(sum: Number, v: Number) -> Number {
    let (low, high) = if sum.is_nan() || (!v.is_nan() && sum.re < v.re) { (sum, v) } else { (v, sum) };
    let (low, high) = if high.is_nan() { (high, low) } else { (low, high) };
    if low.is_nan() {
        return number(f64::NAN, f64::NAN);
    }
    if low.re == high.re && !low.re.is_finite() {
        // Of two zeros either logarithm will do; the exponentials of two infinities have directions.
        return if low.re < 0.0 { low } else { low.exp().plus(high.exp()).ln() };
    }
    low.minus(high).exp().ln_1p().plus(high)
}

fn prepare<const OUT: usize>(ctx: &PrepareContext<'_>, run: crate::routine::RunFn) -> Preparation {
    if !is_complex(ctx, &[OUT]) {
        return ctx.decline("takes complex tensors");
    }
    Routine::prepare(bind::<OUT>, run)
}

pub(crate) fn cumsum(ctx: &PrepareContext<'_>) -> Preparation {
    prepare::<3>(ctx, |args, _| scan::<3>(args, Number::ZERO, Number::plus))
}

pub(crate) fn cumprod(ctx: &PrepareContext<'_>) -> Preparation {
    prepare::<3>(ctx, |args, _| scan::<3>(args, Number::ONE, Number::times))
}

pub(crate) fn logcumsumexp(ctx: &PrepareContext<'_>) -> Preparation {
    if !is_complex(ctx, &[0]) {
        return ctx.decline("takes complex tensors");
    }
    same_dtype(ctx, 0, 2)?;
    prepare::<2>(ctx, |args, _| scan::<2>(args, number(f64::NEG_INFINITY, 0.0), log_add))
}
