//! Log-probabilities as the model gives them, before any setting.

use crate::generation_result::TokenLogprob;

/// Of `token`, with the `count` most likely tokens at its place.
pub(crate) fn log_probability(logits: &[f32], token: u32, count: usize) -> TokenLogprob {
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, x| most.max(*x));
    let sum: f64 = logits.iter().map(|x| (f64::from(*x) - f64::from(most)).exp()).sum();
    let shift = f64::from(most) + sum.ln();
    let of = |token: u32| logits.get(token as usize).map_or(f64::NEG_INFINITY, |x| f64::from(*x) - shift);
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| of(*b).total_cmp(&of(*a)).then(a.cmp(b));
    if count < order.len() {
        order.select_nth_unstable_by(count, by_logit);
        order.truncate(count);
    }
    order.sort_unstable_by(by_logit);
    TokenLogprob {
        token,
        logprob: of(token),
        top: order.into_iter().map(|token| (token, of(token))).collect(),
    }
}
