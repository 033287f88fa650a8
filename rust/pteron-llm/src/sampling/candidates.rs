//! The tokens that the filters leave, with their weights.

use crate::sampling::blocks::{first_place, largest};
use crate::sampling::logit::{BLOCK, Logit};
use crate::sampling::parameters::SamplingParameters;
use crate::sampling::philox::draw;
use crate::sampling::ranked_weights::RankedWeights;
use crate::sampling::vector_loops::{large, weigh};
use crate::sampling::weights::{BITS, LOG2_E, weight};
use pteron_core::Result;

/// Memory of a choice, kept from token to token.
#[derive(Default)]
pub(super) struct Candidates {
    maxima: Vec<f64>,
    tokens: Vec<u32>,
    /// Of `tokens`, or of every token by number.
    weights: Vec<u64>,
    sums: Vec<u64>,
    scratch: Vec<f64>,
    /// Logits, with their tokens in order, that were found large enough to look at.
    large: Vec<(f64, u32)>,
    order: Vec<(u64, u32)>,
    ranked: RankedWeights,
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
        let found = match self.floor(logits, most, settings) {
            Some(floor) => {
                self.keep(logits, floor, most, settings);
                self.drawn_of_few(settings, place)
            }
            None => {
                self.weights.resize(logits.len(), 0);
                weigh(logits, most, settings.temperature, &mut self.weights);
                self.drawn_of_all(settings, place)
            }
        };
        Ok(found.map_or_else(|| first_place(logits, &self.maxima, most), |token| token as usize))
    }

    /// What logits must reach to count; `None` where that is not worth looking at.
    fn floor<T: Logit>(&mut self, logits: &[T], most: f64, settings: &SamplingParameters) -> Option<f64> {
        let temperature = settings.temperature;
        // Farther down every weight is 0.
        let mut floor = most - temperature * (BITS + 1) as f64 / LOG2_E;
        if 0 < settings.top_k && settings.top_k < logits.len() {
            floor = floor.max(self.kth(logits, settings.top_k));
        }
        // Of top-p the weights of all tokens decide.
        if settings.min_p > 0.0 && settings.top_p == 1.0 {
            // A little lower than the filter below, which decides.
            floor = floor.max(most + temperature * (settings.min_p.ln() - 1e-3));
        }
        let blocks = self.maxima.iter().filter(|x| **x >= floor).count();
        (settings.top_k > 0 || blocks < self.maxima.len() / 4).then_some(floor)
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
        self.find(logits, least);
        self.scratch.clear();
        self.scratch.extend(self.large.iter().map(|(x, _)| *x));
        nth(&mut self.scratch)
    }

    /// Lists the logits of at least `least`.
    fn find<T: Logit>(&mut self, logits: &[T], least: f64) {
        self.large.clear();
        for (at, (block, largest)) in logits.chunks(BLOCK).zip(&self.maxima).enumerate() {
            if *largest >= least {
                large(block, (at * BLOCK) as u32, least, &mut self.large);
            }
        }
    }

    /// Keeps the tokens whose logits reach `floor`; those of top-k are listed already.
    fn keep<T: Logit>(&mut self, logits: &[T], floor: f64, most: f64, settings: &SamplingParameters) {
        if settings.top_k == 0 || settings.top_k >= logits.len() {
            self.find(logits, floor);
        }
        self.tokens.clear();
        self.weights.clear();
        for (x, token) in &self.large {
            if *x >= floor {
                self.tokens.push(*token);
                self.weights.push(weight((x - most) / settings.temperature));
            }
        }
    }

    /// The token of a draw among `tokens`; `None` where none is left.
    fn drawn_of_few(&mut self, settings: &SamplingParameters, place: u64) -> Option<u32> {
        if settings.top_p < 1.0 {
            let share = share_of(settings.top_p, self.weights.iter().sum());
            self.order.clear();
            self.order.extend(self.weights.iter().copied().zip(self.tokens.iter().copied()));
            // Of equal weights the lower token comes first.
            self.order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            self.tokens.clear();
            self.weights.clear();
            let mut before = 0;
            for (weight, token) in &self.order {
                if before >= share {
                    break;
                }
                self.tokens.push(*token);
                self.weights.push(*weight);
                before += weight;
            }
        }
        let least = least_of(settings.min_p);
        let likely = |weight: &&u64| **weight >= least;
        let total = self.weights.iter().filter(likely).sum::<u64>();
        let mut rest = draw(settings.seed, place, total);
        let of_likely = self.weights.iter().map(|weight| if *weight >= least { *weight } else { 0 });
        self.tokens.get(position(of_likely, &mut rest)?).copied()
    }

    /// The token of a draw among all.
    fn drawn_of_all(&mut self, settings: &SamplingParameters, place: u64) -> Option<u32> {
        let least = least_of(settings.min_p);
        if settings.top_p < 1.0 {
            let all = self.weights.iter().sum();
            let kept = self.ranked.keep(&self.weights, all, share_of(settings.top_p, all), least);
            return self.ranked.token_at(draw(settings.seed, place, kept));
        }
        if least > 0 {
            self.weights.iter_mut().for_each(|weight| *weight = if *weight >= least { *weight } else { 0 });
        }
        self.sums.clear();
        self.sums.extend(self.weights.chunks(BLOCK).map(|block| block.iter().sum::<u64>()));
        let mut rest = draw(settings.seed, place, self.sums.iter().sum());
        let begin = position(self.sums.iter().copied(), &mut rest)? * BLOCK;
        let inside = self.weights.get(begin..)?.iter().copied();
        Some((begin + position(inside, &mut rest)?) as u32)
    }
}

/// The part of `total` that top-p asks for. At least one: the most likely token always stays.
fn share_of(top_p: f64, total: u64) -> u64 {
    let part = (top_p * (1u64 << 53) as f64).round_ties_even() as u128;
    (((part * u128::from(total)) >> 53) as u64).max(1)
}

/// The smallest weight that min-p leaves.
fn least_of(min_p: f64) -> u64 {
    (min_p * (1u64 << BITS) as f64).round_ties_even() as u64
}

/// The first place where the sum of weights exceeds `rest`, which becomes what is left of it there.
fn position(mut weights: impl Iterator<Item = u64>, rest: &mut u64) -> Option<usize> {
    weights.position(|weight| match rest.checked_sub(weight) {
        Some(left) => {
            *rest = left;
            false
        }
        None => true,
    })
}
