//! The most likely tokens of all, without sorting all: those that may stay are counted by ranges of weights, and only the
//! ranges that matter are sorted.

/// Ranges of a power of two.
const FINE: u32 = 5;
/// Ranges of all weights of up to 41 bits.
const RANGES: usize = 42 << FINE;

/// Weights of tokens, looked at from the largest on.
#[derive(Default)]
pub(super) struct RankedWeights {
    /// The tokens that may stay.
    candidates: Vec<(u64, u32)>,
    /// Sums of the candidates' weights of each range.
    sums: Vec<u64>,
    /// Tokens of one range, the most likely first, of equal ones the lowest number.
    sorted: Vec<(u64, u32)>,
}

impl RankedWeights {
    /// Keeps the fewest most likely tokens whose weights, a weight for each token, add up to `share`, at least 1, and of
    /// them those of a weight of `least` or more; the sum of their weights. `all`: the sum of all weights.
    pub(super) fn keep(&mut self, weights: &[u64], all: u64, share: u64, least: u64) -> u64 {
        // All tokens of this weight or less together have no more than the rest, so none of them stays.
        let too_little = all.saturating_sub(share) / weights.len().max(1) as u64;
        self.candidates.clear();
        let likely = (0u32..).zip(weights).filter(|(_, weight)| **weight > too_little);
        self.candidates.extend(likely.map(|(token, weight)| (*weight, token)));
        self.sums.clear();
        self.sums.resize(RANGES, 0);
        for (weight, _) in &self.candidates {
            if let Some(sum) = self.sums.get_mut(range_of(*weight)) {
                *sum += weight;
            }
        }
        let (range, before) = self.find(share - 1);
        self.sort(range);
        let mut total = before;
        for (weight, _) in &self.sorted {
            if total >= share {
                break;
            }
            total += weight;
        }
        if least > 0 {
            let (range, above) = (range_of(least), self.above(range_of(least)));
            self.sort(range);
            let likely = self.sorted.iter().map(|(weight, _)| *weight).take_while(|weight| *weight >= least);
            // Both are the most likely tokens up to one of them.
            total = total.min(above + likely.sum::<u64>());
        }
        total
    }

    /// The kept token at which the weights, from the most likely one on, add up to more than `drawn`.
    pub(super) fn token_at(&mut self, drawn: u64) -> Option<u32> {
        let (range, mut sum) = self.find(drawn);
        self.sort(range);
        self.sorted
            .iter()
            .find(|(weight, _)| {
                sum += weight;
                sum > drawn
            })
            .map(|(_, token)| *token)
    }

    /// The range, from the most likely on, at which sums exceed `drawn`, and the sum before it.
    fn find(&self, drawn: u64) -> (usize, u64) {
        let mut before = 0;
        for (range, sum) in self.sums.iter().enumerate().rev() {
            if before + sum > drawn {
                return (range, before);
            }
            before += sum;
        }
        (0, before)
    }

    /// The sum of all ranges above one.
    fn above(&self, range: usize) -> u64 {
        self.sums.iter().skip(range + 1).sum()
    }

    /// Sorts the candidates of one range.
    fn sort(&mut self, range: usize) {
        let (low, high) = bounds(range);
        self.sorted.clear();
        self.sorted.extend(self.candidates.iter().filter(|(weight, _)| (low..=high).contains(weight)));
        self.sorted.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    }
}

/// Larger weights are in the same range or a later one.
#[inline(always)]
fn range_of(weight: u64) -> usize {
    let bits = u64::BITS - weight.leading_zeros();
    if bits <= FINE {
        return weight as usize;
    }
    let shift = bits - 1 - FINE;
    (((shift as usize) + 1) << FINE) + (weight >> shift) as usize - (1 << FINE)
}

/// The smallest and the largest weight of a range.
fn bounds(range: usize) -> (u64, u64) {
    let (power, fine) = (range >> FINE, (range & ((1 << FINE) - 1)) as u64);
    if power == 0 {
        return (fine, fine);
    }
    let shift = power - 1;
    let low = ((1 << FINE) + fine) << shift;
    (low, low + ((1 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other() {
        let mut next = 0;
        for range in 0..(37 << FINE) {
            let (low, high) = bounds(range);
            assert_eq!(low, next, "{range}");
            assert!([low, high].iter().all(|weight| range_of(*weight) == range), "{range}");
            next = high + 1;
        }
        assert!(range_of(1 << 40) < RANGES && next > 1 << 40);
    }

    #[test]
    fn what_is_kept_and_drawn_is_that_of_a_sorted_list() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 24
        };
        let mut ranked = RankedWeights::default();
        for round in 0..300 {
            let weights: Vec<u64> = (0..100).map(|_| random() >> (random() % 41)).collect();
            let mut sorted: Vec<(u64, u32)> = weights.iter().copied().zip(0..).collect();
            sorted.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            let all: u64 = weights.iter().sum();
            let share = (all / 300 * round).max(1);
            let least = if round % 3 == 0 { sorted[(random() % 100) as usize].0 } else { 0 };
            let mut total = 0;
            for (weight, _) in &sorted {
                if total >= share || *weight < least {
                    break;
                }
                total += weight;
            }
            assert_eq!(ranked.keep(&weights, all, share, least), total, "{round}");
            for drawn in [0, total / 2, total.saturating_sub(1)] {
                let mut sum = 0;
                let expected = sorted.iter().find(|(weight, _)| {
                    sum += weight;
                    sum > drawn
                });
                assert_eq!(ranked.token_at(drawn), expected.map(|(_, token)| *token), "{round}");
            }
        }
    }
}
