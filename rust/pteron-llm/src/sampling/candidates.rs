//! The tokens that the filters leave, with their weights.

use crate::sampling::blocks::{BLOCK, Logit, first_place, largest};
use crate::sampling::parameters::SamplingParameters;
use crate::sampling::philox::draw;
use crate::sampling::weights::{BITS, LOG2_E, weight};
use pteron_core::Result;

/// Memory of a choice, kept from token to token.
#[derive(Default)]
pub(super) struct Candidates {
    maxima: Vec<f64>,
    /// Tokens by number, or nothing where `weights` has one for each token.
    tokens: Vec<u32>,
    weights: Vec<u64>,
    sums: Vec<u64>,
    scratch: Vec<f64>,
    order: Vec<(u64, u32)>,
}

impl Candidates {
    /// The token for place number `place` of a text.
    ///
    /// Errors: `Kernel` for logits that are no numbers.
    pub(super) fn choose<T: Logit>(
        &mut self,
        logits: &[T],
        settings: &SamplingParameters,
        place: u64,
    ) -> Result<usize> {
        let most = largest(logits, &mut self.maxima)?;
        if settings.is_greedy() {
            return Ok(first_place(logits, &self.maxima, most));
        }
        self.filter(logits, most, settings);
        Ok(self.drawn(settings.seed, place).unwrap_or_else(|| first_place(logits, &self.maxima, most)))
    }

    /// Tokens and weights behind temperature, top-k, top-p, min-p.
    fn filter<T: Logit>(&mut self, logits: &[T], most: f64, settings: &SamplingParameters) {
        let temperature = settings.temperature;
        // Farther down every weight is 0.
        let mut floor = most - temperature * (BITS + 1) as f64 / LOG2_E;
        if 0 < settings.top_k && settings.top_k < logits.len() {
            floor = floor.max(self.kth(logits, settings.top_k));
        }
        if settings.min_p > 0.0 && settings.top_p == 1.0 {
            // A little lower than the filter below, which decides.
            floor = floor.max(most + temperature * (settings.min_p.ln() - 1e-3));
        }
        let is_cut = settings.top_k > 0 || settings.min_p > 0.0;
        let blocks = self.maxima.iter().filter(|x| **x >= floor).count();
        self.tokens.clear();
        self.weights.clear();
        self.sums.clear();
        let is_dense = !is_cut && blocks > self.maxima.len() / 2;
        if is_dense {
            weigh_all(logits, most, temperature, &mut self.weights, &mut self.sums);
        } else {
            self.keep(logits, floor, most, temperature);
        }
        if settings.top_p < 1.0 {
            self.keep_most_likely(settings.top_p);
        }
        if settings.min_p > 0.0 {
            let least = (settings.min_p * (1u64 << BITS) as f64).round_ties_even() as u64;
            self.keep_if(|weight| weight >= least);
        }
    }

    /// The `k`th largest logit.
    fn kth<T: Logit>(&mut self, logits: &[T], k: usize) -> f64 {
        let nth = |values: &mut Vec<f64>| {
            let at = k.min(values.len()).saturating_sub(1);
            match at < values.len() {
                true => *values.select_nth_unstable_by(at, |a, b| b.total_cmp(a)).1,
                false => f64::NEG_INFINITY,
            }
        };
        // So many blocks have a logit at least as large as the kth of their largest: less cannot be the kth of all.
        self.scratch.clear();
        let mut least = f64::NEG_INFINITY;
        if k <= self.maxima.len() {
            self.scratch.extend_from_slice(&self.maxima);
            least = nth(&mut self.scratch);
        }
        self.scratch.clear();
        for (block, most) in logits.chunks(BLOCK).zip(&self.maxima) {
            if *most >= least {
                self.scratch.extend(block.iter().map(|x| (*x).into()).filter(|x| *x >= least));
            }
        }
        nth(&mut self.scratch)
    }

    /// Keeps the tokens whose logits reach `floor`.
    fn keep<T: Logit>(&mut self, logits: &[T], floor: f64, most: f64, temperature: f64) {
        for (at, (block, largest)) in logits.chunks(BLOCK).zip(&self.maxima).enumerate() {
            if *largest < floor {
                continue;
            }
            for (token, x) in (at * BLOCK..).zip(block) {
                let x: f64 = (*x).into();
                if x >= floor {
                    self.tokens.push(token as u32);
                    self.weights.push(weight((x - most) / temperature));
                }
            }
        }
    }

    /// Keeps the most likely tokens whose weights add up to a part of all.
    fn keep_most_likely(&mut self, top_p: f64) {
        let total: u64 = match self.sums.is_empty() {
            true => self.weights.iter().sum(),
            false => self.sums.iter().sum(),
        };
        let part = (top_p * (1u64 << 53) as f64).round_ties_even() as u128;
        // At least one: the most likely token always stays.
        let share = ((part * u128::from(total) >> 53) as u64).max(1);
        // All tokens of this weight or less together have no more than the rest, so none of them stays.
        let least = total.saturating_sub(share) / self.weights.len().max(1) as u64;
        self.keep_if(|weight| weight > least);
        self.order.clear();
        self.order.extend(self.weights.iter().copied().zip(self.tokens.iter().copied()));
        // Of equal weights the lower token comes first.
        self.order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        self.tokens.clear();
        self.weights.clear();
        let mut before = 0;
        for (weight, token) in &self.order {
            if before >= share && !self.tokens.is_empty() {
                break;
            }
            self.tokens.push(*token);
            self.weights.push(*weight);
            before += weight;
        }
    }

    /// Keeps the tokens of some weights.
    fn keep_if(&mut self, is_kept: impl Fn(u64) -> bool) {
        if self.sums.is_empty() {
            let mut kept = self.weights.iter().map(|weight| is_kept(*weight));
            self.tokens.retain(|_| kept.next().unwrap_or(false));
            self.weights.retain(|weight| is_kept(*weight));
            return;
        }
        let kept = (0u32..).zip(&self.weights).filter(|(_, weight)| is_kept(**weight));
        self.tokens.extend(kept.map(|(token, _)| token));
        self.weights.retain(|weight| is_kept(*weight));
        self.sums.clear();
    }

    /// The token of a draw; `None` where none is left.
    fn drawn(&self, seed: u64, place: u64) -> Option<usize> {
        if self.sums.is_empty() {
            let total = self.weights.iter().sum::<u64>();
            let mut rest = draw(seed, place, total);
            let at = position(&self.weights, &mut rest)?;
            return self.tokens.get(at).map(|token| *token as usize);
        }
        let mut rest = draw(seed, place, self.sums.iter().sum::<u64>());
        let begin = position(&self.sums, &mut rest)? * BLOCK;
        Some(begin + position(self.weights.get(begin..)?, &mut rest)?)
    }
}

/// The first place where the sum of weights exceeds `rest`, which becomes what is left of it there.
fn position(weights: &[u64], rest: &mut u64) -> Option<usize> {
    weights.iter().position(|weight| match rest.checked_sub(*weight) {
        Some(left) => {
            *rest = left;
            false
        }
        None => true,
    })
}

/// The weight of every token, and the sums of blocks.
fn weigh_all<T: Logit>(
    logits: &[T],
    most: f64,
    temperature: f64,
    weights: &mut Vec<u64>,
    sums: &mut Vec<u64>,
) {
    // A division by 1 changes nothing, and takes its time.
    match temperature == 1.0 {
        true => weights.extend(logits.iter().map(|x| weight((*x).into() - most))),
        false => weights.extend(logits.iter().map(|x| weight(((*x).into() - most) / temperature))),
    }
    sums.extend(weights.chunks(BLOCK).map(|block| block.iter().sum::<u64>()));
}
