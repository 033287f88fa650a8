//! Which tokens a prompt and the text behind it have, and how often.

use crate::sampling::parameters::SamplingParameters;
use std::collections::{BTreeMap, BTreeSet};

/// Kept up to date token by token.
pub(super) struct TokenCounts {
    seen: BTreeSet<u32>,
    counts: BTreeMap<u32, u32>,
}

impl TokenCounts {
    pub(super) fn new(settings: &SamplingParameters, prompt: &[u32]) -> TokenCounts {
        let counts_prompt = settings.repetition_penalty != 1.0;
        TokenCounts {
            seen: if counts_prompt { prompt.iter().copied().collect() } else { BTreeSet::new() },
            counts: BTreeMap::new(),
        }
    }

    /// A token of the text.
    pub(super) fn add(&mut self, settings: &SamplingParameters, token: u32) {
        if settings.repetition_penalty != 1.0 {
            self.seen.insert(token);
        }
        if counts_text(settings) {
            *self.counts.entry(token).or_default() += 1;
        }
    }

    /// Does any penalty change anything?
    pub(super) fn is_needed(&self, settings: &SamplingParameters) -> bool {
        // Both are empty where their penalties change nothing.
        !self.counts.is_empty() || (settings.repetition_penalty != 1.0 && !self.seen.is_empty())
    }

    /// Changes logits as the penalties say.
    pub(super) fn apply(&self, settings: &SamplingParameters, logits: &mut [f64]) {
        let penalty = settings.repetition_penalty;
        if penalty != 1.0 {
            for token in &self.seen {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
                }
            }
        }
        for (token, count) in &self.counts {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit -= settings.presence_penalty;
                *logit -= settings.frequency_penalty * f64::from(*count);
            }
        }
    }
}

fn counts_text(settings: &SamplingParameters) -> bool {
    settings.presence_penalty != 0.0 || settings.frequency_penalty != 0.0
}
