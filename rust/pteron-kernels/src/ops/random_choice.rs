//! Random orders and choices: randperm, multinomial.
//!
//! Shape: as stated; multinomial gives rows of chosen positions. Dtype: randperm's output is any that holds
//! the numbers; multinomial reads floats and gives int64. Edge cases: weights that are negative, not finite
//! or all zero, and more samples than can be chosen, are errors, as in PyTorch.

use crate::chunked;
use crate::compute::unsupported;
use crate::draws::Draws;
use crate::elements::{Reader, UpdateView, Writer};
use crate::operator::{Operator, kernel};
use crate::reduction::plain::{Reduction, row_major};
use crate::routine::{Preparation, dtype_of};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, RandomDraws, Result};

mod fast;

/// One more than the largest number that a dtype holds with all below it, as far as that matters.
fn most(dtype: DType) -> Result<i64> {
    Ok(match dtype {
        DType::UInt8 => 1 << 8,
        DType::Int8 => 1 << 7,
        DType::Int16 => 1 << 15,
        DType::Int32 => 1 << 31,
        DType::Int64 => i64::MAX,
        DType::Float16 => 1 << 11,
        DType::BFloat16 => 1 << 8,
        DType::Float32 => 1 << 24,
        DType::Float64 => 1 << 53,
        other => return Err(unsupported(other)),
    })
}

fn bind_order(args: &mut BindArgs<'_>, draws: &mut RandomDraws, most: i64) -> Result<()> {
    let n = args.args().int(0)?;
    if !(0..=most).contains(&n) {
        return Err(Error::kernel("the output's dtype does not hold the numbers")
            .argument("n")
            .expected(format!("0 to {most}"))
            .got(n.to_string()));
    }
    args.resize(1, &[n as usize])?;
    *draws = args.random_draws()?;
    Ok(())
}

/// Numbers 0 to n - 1 in a random order: what they lie in must hold them exactly.
fn randperm(ctx: &PrepareContext<'_>) -> Preparation {
    let most = most(dtype_of(ctx, 1)?)?;
    chunked::prepare_random(
        move |args, draws: &mut RandomDraws| {
            bind_order(args, draws, most)?;
            // One chunk: every step depends on the one before.
            Ok(1)
        },
        |draws, args, _| {
            let n = args.output(1)?.numel();
            let mut out = Writer::<i64>::new(args.output(1)?)?;
            for i in 0..n {
                out.put(i, i as i64)?;
            }
            // Fisher and Yates: place i takes one of the numbers that are not placed yet.
            let (mut draws, mut out) = (Draws::new(*draws), UpdateView::<i64>::new(args, 1)?);
            for i in 0..n {
                let j = i + draws.below(i as u64, (n - i) as u64) as usize;
                let (mut first, mut second) = (0, 0);
                out.update(i, |v| {
                    first = v;
                    v
                })?;
                out.update(j, |v| {
                    second = v;
                    first
                })?;
                out.update(i, |_| second)?;
            }
            Ok(())
        },
    )
}

fn bind_choice(args: &mut BindArgs<'_>, draws: &mut RandomDraws) -> Result<usize> {
    let view = args.args();
    let (x, samples) = (view.tensor(0)?, view.int(1)?);
    let Some((choices, rows)) = x.shape().split_last().filter(|(_, rows)| rows.len() <= 1) else {
        return Err(Error::kernel("weights are a vector or the rows of a matrix")
            .argument("self")
            .got(x.shape().to_string()));
    };
    let most = if view.bool(2)? { i64::MAX } else { *choices as i64 };
    if samples <= 0 || samples > most || *choices == 0 {
        return Err(Error::kernel("as many samples cannot be chosen")
            .argument("num_samples")
            .expected(format!("1 to {most}, of at least one weight"))
            .got(samples.to_string()));
    }
    let mut shape = *x.shape();
    let last = rows.len();
    shape[last] = samples as usize;
    args.resize(4, &shape)?;
    *draws = args.random_draws()?;
    Ok(1)
}

/// The sum of a row; an error where it is no distribution.
fn total(weights: impl Iterator<Item = Result<f64>>) -> Result<f64> {
    let mut sum = 0.0;
    for weight in weights {
        let weight = weight?;
        if weight < 0.0 || !weight.is_finite() {
            return Err(Error::kernel("a weight is no probability")
                .argument("self")
                .expected("finite numbers of 0 or more")
                .got(weight.to_string()));
        }
        sum += weight;
    }
    if sum > 0.0 {
        return Ok(sum);
    }
    Err(Error::kernel("all weights of a row are zero").argument("self").expected("a sum above 0"))
}

/// With replacement: the first position whose running sum exceeds a uniform share of the total. Without:
/// positions in the order of an exponential time divided by their weight, least first.
fn choose(draws: &RandomDraws, args: &Args<'_>) -> Result<()> {
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let has_replacement = args.bool(2)?;
    let last = x.meta().rank() - 1;
    let rows = Reduction::new(x.meta(), 1 << last);
    let (choices, inner) = (rows.count(), *rows.inner());
    let mut out = Writer::<i64>::new(args.output(4)?)?;
    let samples = out.meta().shape()[last];
    let at_out = row_major(out.meta());
    let mut draws = Draws::new(*draws);
    rows.for_each(|row, base| {
        let weight = |i: usize| x.get((base + inner.offset(i)) as usize);
        let sum = total((0..choices).map(weight))?;
        let first = (row * if has_replacement { samples } else { choices }) as u64;
        let (mut bound, mut found) = (f64::NEG_INFINITY, 0usize);
        for sample in 0..samples {
            let chosen = if has_replacement {
                with_replacement(choices, sum * draws.uniform(first + sample as u64, 53), weight)?
            } else {
                let next = next_time(choices, bound, found, |i| {
                    Ok((-draws.above_zero(first + i as u64).ln() / weight(i)?).abs())
                })?;
                let Some((time, chosen)) = next else {
                    return Err(Error::kernel("a row has fewer positive weights than samples")
                        .argument("num_samples")
                        .got(samples.to_string()));
                };
                (bound, found) = (time, chosen);
                chosen
            };
            out.put(at_out.offset(row * samples + sample) as usize, chosen as i64)?;
        }
        Ok(())
    })
}

fn with_replacement(choices: usize, share: f64, weight: impl Fn(usize) -> Result<f64>) -> Result<usize> {
    let (mut sum, mut chosen) = (0.0, 0);
    for i in 0..choices {
        let w = weight(i)?;
        if w > 0.0 {
            // The last positive one where rounding leaves the share above every sum.
            chosen = i;
            sum += w;
            if share < sum {
                break;
            }
        }
    }
    Ok(chosen)
}

/// The least time after `(bound, position)`, ties in the order of positions; weights of zero never come.
fn next_time(
    choices: usize,
    bound: f64,
    position: usize,
    mut time: impl FnMut(usize) -> Result<f64>,
) -> Result<Option<(f64, usize)>> {
    let mut best: Option<(f64, usize)> = None;
    for i in 0..choices {
        let t = time(i)?;
        let is_later = t > bound || (t == bound && i > position);
        if t.is_finite() && is_later && best.is_none_or(|(least, _)| t < least) {
            best = Some((t, i));
        }
    }
    Ok(best)
}

fn multinomial(ctx: &PrepareContext<'_>) -> Preparation {
    if !dtype_of(ctx, 0)?.is_float() || dtype_of(ctx, 4)? != DType::Int64 {
        return Err(Error::kernel("the operator does not support these dtypes")
            .expected("float weights, int64 positions")
            .got(format!("{} and {}", dtype_of(ctx, 0)?, dtype_of(ctx, 4)?)));
    }
    chunked::prepare_random(bind_choice, |draws, args, _| choose(draws, args))
}

/// randperm, multinomial.
pub static OPERATORS: &[Operator] = &[
    kernel("aten::randperm.out(SymInt n, *, Tensor(a!) out) -> Tensor(a!)", randperm)
        .fast("slices", fast::randperm),
    kernel(
        "aten::multinomial.out(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None, Tensor(a!) out) -> Tensor(a!)",
        multinomial,
    )
    .fast("sums", fast::multinomial),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn every_number_comes_once() {
        let y = run_out("aten::randperm.out", &[1000i64.into()], DType::Int16, &[1000]).unwrap();
        let mut y = y.values::<i16>();
        assert!(!y.is_sorted());
        y.sort();
        assert!(y.iter().enumerate().all(|(i, v)| i as i16 == *v));
        assert!(
            error_text(run_out("aten::randperm.out", &[300i64.into()], DType::UInt8, &[300])).contains("256")
        );
    }

    #[test]
    fn weights_are_a_distribution() {
        let choose = |w: &[f32], n: i64, replacement: bool| {
            let args = [Tensor::of(&[w.len()], w).into(), n.into(), replacement.into(), Arg::None];
            run_out("aten::multinomial.out", &args, DType::Int64, &[n.max(0) as usize])
        };
        let mut y = choose(&[0.0, 1.0, 0.0, 2.0, 3.0], 3, false).unwrap().values::<i64>();
        y.sort();
        assert_eq!(y, [1, 3, 4]);
        assert!(choose(&[0.0, 1.0, 0.0], 50, true).unwrap().values::<i64>().iter().all(|v| *v == 1));
        assert!(error_text(choose(&[0.0, 1.0, 0.0], 2, false)).contains("fewer positive"));
        assert!(error_text(choose(&[1.0, -1.0], 1, true)).contains("no probability"));
        assert!(error_text(choose(&[0.0, 0.0], 1, true)).contains("zero"));
        assert!(error_text(choose(&[1.0], 2, false)).contains("cannot be chosen"));
    }
}
