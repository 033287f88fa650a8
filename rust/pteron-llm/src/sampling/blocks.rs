//! The largest logit of each block of a row: what a filter leaves out is skipped block by block.

use pteron_core::{Error, Result};

/// Logits of a block.
pub(super) const BLOCK: usize = 64;
/// Comparisons at a time.
const LANES: usize = 16;

/// An element of a row of logits: float32 as the model gives them, float64 behind penalties.
pub(super) trait Logit: Copy + PartialOrd + Into<f64> {
    const LOWEST: Self;
}

impl Logit for f32 {
    const LOWEST: f32 = f32::NEG_INFINITY;
}

impl Logit for f64 {
    const LOWEST: f64 = f64::NEG_INFINITY;
}

/// Fills `maxima` with the largest logit of each block; gives the largest of all.
///
/// Errors: `Kernel` where it is not a finite number, or a logit is no number.
pub(super) fn largest<T: Logit>(logits: &[T], maxima: &mut Vec<f64>) -> Result<f64> {
    maxima.clear();
    let mut is_broken = false;
    let (blocks, rest) = logits.as_chunks::<BLOCK>();
    maxima.extend(blocks.iter().map(|block| largest_of(block, &mut is_broken)));
    if !rest.is_empty() {
        maxima.push(largest_of(rest, &mut is_broken));
    }
    let most = maxima.iter().fold(f64::NEG_INFINITY, |most, x| if *x > most { *x } else { most });
    if is_broken || !most.is_finite() {
        let got = if is_broken { f64::NAN } else { most };
        return Err(Error::kernel("the logits of the model cannot be sampled")
            .expected("finite numbers")
            .got(format!("{got} as the largest")));
    }
    Ok(most)
}

#[inline(always)]
fn largest_of<T: Logit>(block: &[T], is_broken: &mut bool) -> f64 {
    let mut most = [T::LOWEST; LANES];
    let mut broken = [false; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for ((most, broken), x) in most.iter_mut().zip(&mut broken).zip(chunk) {
            *most = if *x > *most { *x } else { *most };
            *broken |= is_nan(*x);
        }
    }
    for ((most, broken), x) in most.iter_mut().zip(&mut broken).zip(rest) {
        *most = if *x > *most { *x } else { *most };
        *broken |= is_nan(*x);
    }
    *is_broken |= broken.iter().any(|broken| *broken);
    most.into_iter().fold(T::LOWEST, |most, x| if x > most { x } else { most }).into()
}

#[inline(always)]
#[allow(clippy::eq_op, reason = "a number that is none differs from itself")]
fn is_nan<T: PartialOrd>(x: T) -> bool
where
    T: Copy,
{
    x != x
}

/// The first place of `most`, which is the largest of all.
pub(super) fn first_place<T: Logit>(logits: &[T], maxima: &[f64], most: f64) -> usize {
    let block = maxima.iter().position(|x| *x == most).unwrap_or(0);
    let begin = block * BLOCK;
    let inside = logits.get(begin..).unwrap_or_default();
    begin + inside.iter().position(|x| (*x).into() == most).unwrap_or(0)
}
