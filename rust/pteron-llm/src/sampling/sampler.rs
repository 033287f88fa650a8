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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// As `row` of tests/llm/rust_folder.py.
    fn row(number: u64) -> Vec<f32> {
        let bits = |at: u64| ((at / 2 * 2_654_435_761 + number * 40_503 * 977) % (1 << 32)) >> 12;
        (0..300)
            .map(|at| (bits(at) as f64 / f64::from(1 << 20) * (2 + number % 5 * 6) as f64) as f32)
            .collect()
    }

    fn parameters(settings: &Value) -> SamplingParameters {
        let mut found = SamplingParameters { seed: 77, ..SamplingParameters::default() };
        for (name, value) in settings.as_object().unwrap() {
            let number = value.as_f64().unwrap();
            match name.as_str() {
                "temperature" => found.temperature = number,
                "top_k" => found.top_k = number as usize,
                "top_p" => found.top_p = number,
                "min_p" => found.min_p = number,
                "repetition_penalty" => found.repetition_penalty = number,
                "presence_penalty" => found.presence_penalty = number,
                "frequency_penalty" => found.frequency_penalty = number,
                other => panic!("{other}"),
            }
        }
        found
    }

    #[test]
    fn tokens_are_those_that_python_chooses() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/folder/expected.json");
        let expected: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for case in expected["choices"].as_array().unwrap() {
            let mut sampler = Sampler::new(parameters(&case["settings"]), &[1, 2, 3]).unwrap();
            let found: Vec<u32> = (0..40).map(|place| sampler.next(&row(place), &[]).unwrap()).collect();
            let tokens: Vec<u64> = found.iter().map(|token| u64::from(*token)).collect();
            assert_eq!(Value::from(tokens), case["tokens"], "{}", case["settings"]);
        }
    }

    #[test]
    fn banned_tokens_do_not_come_and_what_is_no_number_is_an_error() {
        let settings = SamplingParameters { temperature: 0.0, ..SamplingParameters::default() };
        let mut sampler = Sampler::new(settings, &[]).unwrap();
        assert_eq!(sampler.next(&[1.0, 3.0, 2.0], &[1]).unwrap(), 2);
        assert_eq!(sampler.next(&[1.0, f32::NEG_INFINITY, 2.0], &[]).unwrap(), 2);
        for row in [vec![], vec![f32::NAN, 1.0], vec![f32::INFINITY; 100], vec![f32::NEG_INFINITY; 70]] {
            assert!(sampler.next(&row, &[]).is_err(), "{row:?}");
        }
        let mut long = vec![0.5; 1000];
        long[640] = f32::NAN;
        assert!(sampler.next(&long, &[]).is_err());
        assert!(sampler.next(&[1.0], &[0]).is_err());
    }
}
