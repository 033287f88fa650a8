//! How a token is chosen.

use pteron_core::{Error, Result};

/// How a token is chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParameters {
    /// Divides logits; 0: always the most likely token (greedy).
    pub temperature: f64,
    /// So many most likely tokens stay; 0: all. Ties with the last one stay too.
    pub top_k: usize,
    /// The most likely tokens stay whose probabilities add up to it; 1: all.
    pub top_p: f64,
    /// Tokens stay with at least this part of the most likely one's probability; 0: all.
    pub min_p: f64,
    /// Divides positive logits of tokens of prompt and text, multiplies negative ones; 1: nothing.
    pub repetition_penalty: f64,
    /// Is subtracted from logits of tokens of the text (not of the prompt).
    pub presence_penalty: f64,
    /// The same, times their count.
    pub frequency_penalty: f64,
    /// Tokens, and what is added to their logits.
    pub logit_bias: Vec<(u32, f64)>,
    /// The same seed, prompt and settings give the same text.
    pub seed: u64,
}

impl Default for SamplingParameters {
    fn default() -> Self {
        SamplingParameters {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl SamplingParameters {
    /// Is it always the most likely token?
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// Errors: `Input` for a setting that is out of range.
    pub fn check(&self) -> Result<()> {
        check("temperature", self.temperature, 0.0, f64::INFINITY)?;
        check("top_p", self.top_p, 0.0, 1.0)?;
        check("min_p", self.min_p, 0.0, 1.0)?;
        check("repetition_penalty", self.repetition_penalty, 1e-6, f64::INFINITY)?;
        check("presence_penalty", self.presence_penalty, f64::NEG_INFINITY, f64::INFINITY)?;
        check("frequency_penalty", self.frequency_penalty, f64::NEG_INFINITY, f64::INFINITY)
    }
}

fn check(name: &str, value: f64, low: f64, high: f64) -> Result<()> {
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::input("a setting of sampling is out of range")
        .argument(name)
        .expected(format!("a number from {low} to {high}"))
        .got(value.to_string()))
}
