//! What a generation gives.

use std::time::Duration;

/// Log-probability of a token of the text, as the model gives it, before temperature, filters and penalties.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Its number.
    pub token: u32,
    /// Natural logarithm.
    pub logprob: f64,
    /// The most likely tokens at its place with theirs.
    pub top: Vec<(u32, f64)>,
}

/// Times of a generation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Until the logits behind the prompt were there.
    pub prefill: Duration,
    /// From the first token to the end.
    pub decode: Duration,
    /// The part of all that choosing tokens took.
    pub sampling: Duration,
    /// Tokens behind the first one.
    pub decoded: usize,
}

impl Timings {
    /// Tokens behind the first one by the time that they took; 0 where there is none.
    pub fn tokens_per_second(&self) -> f64 {
        let seconds = self.decode.as_secs_f64();
        if self.decoded > 0 && seconds > 0.0 { self.decoded as f64 / seconds } else { 0.0 }
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A token or text that ends it.
    Stop,
    /// As many tokens as asked for, or the cache is full.
    Length,
    /// It was cancelled.
    Cancelled,
    /// The time was over.
    Deadline,
}

impl FinishReason {
    /// The name that Python gives it.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
            FinishReason::Deadline => "deadline",
        }
    }
}

/// What ended a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A stop string.
    Text(String),
    /// A token.
    Token(u32),
}

/// A text with what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationResult {
    /// The new text, without what ended it.
    pub text: String,
    /// The new tokens, with the one that ended the text where one did.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string or token that ended it.
    pub stop: Option<Stop>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were in the cache before.
    pub reused_tokens: usize,
    /// Of the draws.
    pub seed: u64,
    /// One for each token, where asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// How long it took.
    pub timings: Timings,
}
