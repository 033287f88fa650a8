//! The largest logit of each block of a row: what a filter leaves out is skipped block by block.

use crate::sampling::logit::{BLOCK, Logit};
use crate::sampling::vector_loops;
use pteron_core::{Error, Result};

/// Fills `maxima` with the largest logit of each block; gives the largest of all.
///
/// Errors: `Kernel` where it is not a finite number, or a logit is no number.
pub(super) fn largest<T: Logit>(logits: &[T], maxima: &mut Vec<f64>) -> Result<f64> {
    maxima.clear();
    maxima.resize(logits.len().div_ceil(BLOCK), f64::NEG_INFINITY);
    let is_broken = vector_loops::block_maxima(logits, maxima);
    let most = maxima.iter().fold(f64::NEG_INFINITY, |most, x| if *x > most { *x } else { most });
    if is_broken || !most.is_finite() {
        let got = if is_broken { f64::NAN } else { most };
        return Err(Error::kernel("the logits of the model cannot be sampled")
            .expected("finite numbers")
            .got(format!("{got} as the largest")));
    }
    Ok(most)
}

/// The first place of `most`, which is the largest of all.
pub(super) fn first_place<T: Logit>(logits: &[T], maxima: &[f64], most: f64) -> usize {
    let block = maxima.iter().position(|x| *x == most).unwrap_or(0);
    let begin = block * BLOCK;
    let inside = logits.get(begin..).unwrap_or_default();
    begin + inside.iter().position(|x| (*x).into() == most).unwrap_or(0)
}
