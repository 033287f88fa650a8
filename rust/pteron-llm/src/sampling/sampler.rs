//! Chooses the tokens of one text.

use crate::sampling::candidates::Candidates;
use crate::sampling::parameters::SamplingParameters;
use crate::sampling::token_counts::TokenCounts;
use pteron_core::{Error, Result};

/// Most logits of a row: the sum of so many weights fits into 64 bits.
pub(crate) const MOST_LOGITS: usize = 1 << 23;

/// Chooses the tokens of one text, in order. Without penalties a token allocates nothing once the memory is there.
pub struct Sampler {
    settings: SamplingParameters,
    counts: TokenCounts,
    place: u64,
    candidates: Candidates,
    wide: Vec<f64>,
    masked: Vec<f32>,
}

impl Sampler {
    /// `prompt`: what stands before the text.
    ///
    /// Errors: `Input` for a setting that is out of range.
    pub fn new(settings: SamplingParameters, prompt: &[u32]) -> Result<Sampler> {
        settings.check()?;
        Ok(Sampler {
            counts: TokenCounts::new(&settings, prompt),
            settings,
            place: 0,
            candidates: Candidates::default(),
            wide: Vec::new(),
            masked: Vec::new(),
        })
    }

    /// The settings.
    pub fn settings(&self) -> &SamplingParameters {
        &self.settings
    }

    /// The next token, by its logits `[vocabulary]`, none of `banned`.
    ///
    /// Errors: `Kernel` for logits that are NaN, infinite, or leave no token.
    pub fn next(&mut self, logits: &[f32], banned: &[u32]) -> Result<u32> {
        if logits.is_empty() || logits.len() > MOST_LOGITS {
            return Err(Error::input("a row of logits cannot be sampled")
                .expected(format!("from 1 to {MOST_LOGITS} logits"))
                .got(logits.len().to_string()));
        }
        let token = if self.counts.is_needed(&self.settings) || !self.settings.logit_bias.is_empty() {
            self.wide.clear();
            self.wide.extend(logits.iter().map(|x| f64::from(*x)));
            self.counts.apply(&self.settings, &mut self.wide);
            for (token, bias) in &self.settings.logit_bias {
                if let Some(logit) = self.wide.get_mut(*token as usize) {
                    *logit += bias;
                }
            }
            mask(&mut self.wide, banned, f64::NEG_INFINITY);
            self.candidates.choose(&self.wide, &self.settings, self.place)?
        } else if banned.is_empty() {
            self.candidates.choose(logits, &self.settings, self.place)?
        } else {
            self.masked.clear();
            self.masked.extend_from_slice(logits);
            mask(&mut self.masked, banned, f32::NEG_INFINITY);
            self.candidates.choose(&self.masked, &self.settings, self.place)?
        } as u32;
        self.counts.add(&self.settings, token);
        self.place += 1;
        Ok(token)
    }
}

fn mask<T: Copy>(logits: &mut [T], banned: &[u32], lowest: T) {
    for token in banned {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = lowest;
        }
    }
}
