//! Settings of a generation: what the caller says, else generation_config.json, else defaults.

use crate::model::json_file::{Object, damaged};
use crate::sampling::parameters::SamplingParameters;
use pteron_core::{Error, Result};
use serde_json::Value;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// New tokens where neither the caller nor the folder says how many.
const DEFAULT_NEW_TOKENS: usize = 256;
const FILE: &str = "generation_config.json";

/// Settings by the names that transformers gives them; `None`: as generation_config.json says, else as here.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// Most tokens of the text (256), and never more than the cache takes.
    pub max_new_tokens: Option<usize>,
    /// Tokens before one may end the text.
    pub min_new_tokens: usize,
    /// Draw tokens, or take the most likely one. Without it, drawing is what a given temperature, top_k, top_p, min_p or
    /// seed asks for, then what generation_config.json says, then not.
    pub do_sample: Option<bool>,
    /// See [`SamplingParameters::temperature`].
    pub temperature: Option<f64>,
    /// See [`SamplingParameters::top_k`].
    pub top_k: Option<usize>,
    /// See [`SamplingParameters::top_p`].
    pub top_p: Option<f64>,
    /// See [`SamplingParameters::min_p`].
    pub min_p: Option<f64>,
    /// See [`SamplingParameters::repetition_penalty`].
    pub repetition_penalty: Option<f64>,
    /// See [`SamplingParameters::presence_penalty`].
    pub presence_penalty: f64,
    /// See [`SamplingParameters::frequency_penalty`].
    pub frequency_penalty: f64,
    /// See [`SamplingParameters::logit_bias`].
    pub logit_bias: Vec<(u32, f64)>,
    /// Of the draws; without one the system chooses, and the result tells which.
    pub seed: Option<u64>,
    /// Texts that end the text; they are not part of it.
    pub stop_strings: Vec<String>,
    /// Tokens that do, beside those of the model.
    pub stop_token_ids: Vec<u32>,
    /// Go on behind tokens that end a text.
    pub ignore_eos: bool,
    /// Log-probabilities of the tokens, with so many most likely others at each place.
    pub logprobs: Option<usize>,
    /// Leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// Time until the text ends where it is.
    pub deadline: Option<Duration>,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        GenerationConfig {
            max_new_tokens: None,
            min_new_tokens: 0,
            do_sample: None,
            temperature: None,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
            stop_strings: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            skip_special_tokens: true,
            deadline: None,
        }
    }
}

impl GenerationConfig {
    /// How tokens are chosen, with what generation_config.json states where the caller says nothing.
    pub(crate) fn sampling(&self, stated: &Object) -> Result<SamplingParameters> {
        let plain = SamplingParameters::default();
        let number = |given: Option<f64>, name: &str, default: f64| match given {
            Some(value) => Ok(value),
            None => of_file(stated, name, Value::as_f64).map(|found| found.unwrap_or(default)),
        };
        let top_k = match self.top_k {
            Some(value) => value,
            None => of_file(stated, "top_k", Value::as_u64)?
                .map_or(0, |k| usize::try_from(k).unwrap_or(usize::MAX)),
        };
        let mut chosen = SamplingParameters {
            temperature: number(self.temperature, "temperature", plain.temperature)?,
            top_k,
            top_p: number(self.top_p, "top_p", plain.top_p)?,
            min_p: number(self.min_p, "min_p", plain.min_p)?,
            repetition_penalty: number(
                self.repetition_penalty,
                "repetition_penalty",
                plain.repetition_penalty,
            )?,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            // The keys of a hash map are the standard library's random numbers.
            seed: self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
        };
        if !self.draws(stated)? {
            chosen.temperature = 0.0;
        }
        chosen.check()?;
        Ok(chosen)
    }

    fn draws(&self, stated: &Object) -> Result<bool> {
        let drawing = [self.temperature, self.top_p, self.min_p].iter().any(Option::is_some);
        match self.do_sample {
            Some(draws) => Ok(draws),
            None if drawing || self.top_k.is_some() || self.seed.is_some() => Ok(true),
            None => of_file(stated, "do_sample", Value::as_bool).map(|found| found.unwrap_or(false)),
        }
    }

    /// How many tokens at most, where `room` fit.
    pub(crate) fn new_tokens(&self, stated: &Object, room: usize) -> Result<usize> {
        let of_folder = || of_file(stated, "max_new_tokens", Value::as_u64);
        let found = match self.max_new_tokens {
            Some(found) => found,
            None => of_folder()?.map_or(DEFAULT_NEW_TOKENS, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        };
        if found == 0 {
            return Err(Error::input("a text has at least one new token")
                .argument("max_new_tokens")
                .expected("a whole number from 1")
                .got("0"));
        }
        Ok(found.min(room))
    }
}

/// An entry of generation_config.json; `None` where it is missing or null.
fn of_file<T>(stated: &Object, name: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
    match stated.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match read(value) {
            Some(found) => Ok(Some(found)),
            None => Err(damaged(FILE, &format!("{name} is of a wrong kind"))),
        },
    }
}
