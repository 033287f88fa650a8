//! Random counts: poisson, binomial.
//!
//! Shape: that of the rate; counts and probabilities broadcast. Dtype: floats, kept. Values: a function of
//! the session's seed, the number of the call and the element's place; distributed as PyTorch's, not the same
//! numbers. One uniform number is taken off the probabilities from the likeliest count outwards, which takes
//! about as many steps as the standard deviation; from a variance of 1e9 on the count is a rounded normal
//! number. Edge cases: a rate below zero, NaN or infinite is an error; a probability outside of 0 to 1 counts
//! as the nearer end and NaN gives NaN, as in PyTorch.

use crate::chunked;
use crate::compute::BLOCK;
use crate::draws::Draws;
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::random::{Call, domain};
use crate::routine::{Preparation, dtype_of};
use crate::shape::broadcast;
use crate::strided::loops::Walk;
use pteron_core::{Error, PrepareContext, Result};

/// From this variance on a count is a rounded normal number.
const WIDE: f64 = 1e9;

/// Takes `share` off the probabilities of counts, from `mode` outwards. `up(k)` is the probability of `k + 1`
/// over that of `k`; counts end at `last`.
fn outwards(mut share: f64, mode: f64, at_mode: f64, last: f64, up: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (mode, mode);
    let (mut p_low, mut p_high) = (at_mode, at_mode);
    share -= at_mode;
    while share >= 0.0 {
        let before = share;
        if high < last {
            p_high *= up(high);
            high += 1.0;
            share -= p_high;
            if share < 0.0 {
                return high;
            }
        }
        if low > 0.0 {
            low -= 1.0;
            p_low /= up(low);
            share -= p_low;
            if share < 0.0 {
                return low;
            }
        }
        // Rounding has left a rest that no count takes.
        if share == before {
            break;
        }
    }
    mode
}

fn poisson(draws: &mut Draws, place: u64, rate: f64) -> f64 {
    if rate == 0.0 {
        return 0.0;
    }
    if rate >= WIDE {
        return (rate + rate.sqrt() * draws.normal(place)).round();
    }
    let mode = rate.floor();
    let at_mode = (mode * rate.ln() - rate - libm::lgamma(mode + 1.0)).exp();
    outwards(draws.uniform(place, 53), mode, at_mode, f64::INFINITY, |k| rate / (k + 1.0))
}

fn binomial(draws: &mut Draws, place: u64, count: f64, p: f64) -> f64 {
    if count.is_nan() || p.is_nan() {
        return f64::NAN;
    }
    if count <= 0.0 || p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return count;
    }
    let n = count.floor();
    if n * p * (1.0 - p) >= WIDE {
        return (n * p + (n * p * (1.0 - p)).sqrt() * draws.normal(place)).round().clamp(0.0, n);
    }
    let mode = ((n + 1.0) * p).floor().min(n);
    let ways = libm::lgamma(n + 1.0) - libm::lgamma(mode + 1.0) - libm::lgamma(n - mode + 1.0);
    let at_mode = (ways + mode * p.ln() + (n - mode) * (-p).ln_1p()).exp();
    let odds = p / (1.0 - p);
    outwards(draws.uniform(place, 53), mode, at_mode, n, |k| (n - k) / (k + 1.0) * odds)
}

/// `inputs` tensors of parameters, a generator, and the output.
fn prepare<const INPUTS: usize>(
    ctx: &PrepareContext<'_>,
    number: fn(&mut Draws, u64, [f64; 2]) -> Result<f64>,
) -> Preparation {
    let out = INPUTS + 1;
    for i in 0..INPUTS {
        same_dtype(ctx, i, out)?;
    }
    if !dtype_of(ctx, out)?.is_float() {
        return Err(Error::kernel("random counts are floats")
            .argument("out")
            .got(dtype_of(ctx, out)?.name()));
    }
    chunked::prepare_random(
        move |args, call: &mut Call| {
            let view = args.args();
            let mut shape = *view.tensor(0)?.shape();
            for i in 1..INPUTS {
                shape = broadcast(&shape, view.tensor(i)?.shape())?;
            }
            args.resize(out, &shape)?;
            for i in 0..INPUTS {
                call.walks[i] =
                    Walk::broadcast(args.args().tensor(out)?.meta(), [args.args().tensor(i)?.meta()]);
            }
            call.draws = args.random_draws()?;
            shape.numel()
        },
        move |call, args, places| {
            let mut writer = Writer::<f64>::new(args.output(out)?)?;
            let mut draws = Draws::new(call.draws);
            let mut parameters = [[0.0; BLOCK]; 2];
            let mut results = [0.0; BLOCK];
            for at in places.clone().step_by(BLOCK) {
                let n = (places.end - at).min(BLOCK);
                for (i, block) in parameters.iter_mut().take(INPUTS).enumerate() {
                    Reader::<f64>::new(args.tensor(i)?)?.gather(&call.walks[i], 0, at, &mut block[..n])?;
                }
                for (i, slot) in results[..n].iter_mut().enumerate() {
                    *slot = number(&mut draws, (at + i) as u64, [parameters[0][i], parameters[1][i]])?;
                }
                writer.write(at as isize, 1, &results[..n])?;
            }
            Ok(())
        },
    )
}

/// poisson, binomial.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::poisson.out(Tensor self, Generator? generator=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            prepare::<1>(ctx, |draws, place, [rate, _]| {
                if rate >= 0.0 && rate.is_finite() {
                    return Ok(poisson(draws, place, rate));
                }
                Err(domain("self", "a finite rate of 0 or more", rate))
            })
        },
    ),
    kernel(
        "aten::binomial.out(Tensor count, Tensor prob, Generator? generator=None, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare::<2>(ctx, |draws, place, [count, p]| Ok(binomial(draws, place, count, p))),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{RandomDraws, RandomStream};

    fn draws() -> Draws {
        let draws: RandomDraws = RandomStream::new(7).next_call();
        Draws::new(draws)
    }

    fn moments(mut number: impl FnMut(&mut Draws, u64) -> f64) -> (f64, f64) {
        const N: u64 = 40_000;
        let mut draws = draws();
        let all: Vec<f64> = (0..N).map(|i| number(&mut draws, i)).collect();
        let mean = all.iter().sum::<f64>() / N as f64;
        (mean, all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64)
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        for rate in [0.1, 3.0, 40.5, 2000.0] {
            let (mean, variance) = moments(|d, i| poisson(d, i, rate));
            assert!((mean - rate).abs() < 5.0 * (rate / 40_000.0).sqrt(), "{rate}: {mean}");
            assert!((variance / rate - 1.0).abs() < 0.06, "{rate}: {variance}");
        }
        for (n, p) in [(1.0, 0.3), (10.0, 0.5), (1000.0, 0.01), (500.0, 0.97)] {
            let (mean, variance) = moments(|d, i| binomial(d, i, n, p));
            let wanted = n * p * (1.0 - p);
            assert!((mean - n * p).abs() < 5.0 * (wanted / 40_000.0).sqrt(), "{n} {p}: {mean}");
            assert!((variance / wanted - 1.0).abs() < 0.06, "{n} {p}: {variance}");
        }
    }

    #[test]
    fn counts_at_the_ends() {
        let mut d = draws();
        assert_eq!(poisson(&mut d, 0, 0.0), 0.0);
        assert_eq!((binomial(&mut d, 0, 3.0, 1.5), binomial(&mut d, 0, 3.0, -0.5)), (3.0, 0.0));
        assert!(binomial(&mut d, 0, f64::NAN, 0.5).is_nan());
        assert!(poisson(&mut d, 0, 1e18) > 9e17);
    }
}
