//! The loop: a token, its text, the next call.

use crate::generation_result::{FinishReason, GenerationResult, Stop, Timings};
use crate::model::cache::{Bounds, Cache};
use crate::opened::Opened;
use crate::sampling::log_probability;
use crate::sampling::sampler::Sampler;
use crate::text::stop_strings::StopStrings;
use crate::text::text_stream::TextStream;
use pteron_core::{Error, ErrorKind, Result};
use pteron_runtime::CancelToken;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All that a generation needs to know.
pub(crate) struct Plan {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampler: Sampler,
    pub(crate) most_tokens: usize,
    pub(crate) fewest_tokens: usize,
    pub(crate) eos: Vec<u32>,
    pub(crate) stops: StopStrings,
    pub(crate) logprobs: Option<usize>,
    pub(crate) skip_special_tokens: bool,
    pub(crate) deadline: Option<Duration>,
}

/// A text as it comes: an iterator of pieces, each of whole characters and at least one.
///
/// [`Generation::result`] reads what is left. After an error the iterator has ended; the generator works on.
pub struct Generation {
    opened: Arc<Opened>,
    // Given back to the generator at the end.
    cache: Option<Cache>,
    plan: Plan,
    bounds: Bounds,
    text: TextStream,
    begin: Instant,
    first: Option<Instant>,
    is_over: bool,
    has_failed: bool,
    found: GenerationResult,
}

impl Generation {
    pub(crate) fn new(opened: Arc<Opened>, cache: Cache, plan: Plan) -> Generation {
        let begin = Instant::now();
        let deadline = plan.deadline.and_then(|time| begin.checked_add(time));
        Generation {
            opened,
            cache: Some(cache),
            bounds: Bounds { cancel: CancelToken::new(), deadline },
            text: TextStream::new(plan.skip_special_tokens),
            begin,
            first: None,
            is_over: false,
            has_failed: false,
            found: GenerationResult {
                text: String::new(),
                tokens: Vec::new(),
                finish_reason: FinishReason::Cancelled,
                stop: None,
                prompt_tokens: plan.prompt.len(),
                reused_tokens: 0,
                seed: plan.sampler.settings().seed,
                logprobs: Vec::new(),
                timings: Timings::default(),
            },
            plan,
        }
    }

    /// Ends the text from any thread: a call of the program that runs is stopped, and what came is the result.
    pub fn cancel_token(&self) -> CancelToken {
        self.bounds.cancel.clone()
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.found.tokens
    }

    /// The text with what is known about it; reads what is left.
    ///
    /// Errors: those of the iterator; `Cancelled` where the iterator has given one before.
    pub fn result(mut self) -> Result<GenerationResult> {
        for piece in &mut self {
            piece?;
        }
        if self.has_failed {
            return Err(Error::cancelled("the text ended with an error, so there is no result")
                .hint("look at the error that the iterator gave"));
        }
        let found = &mut self.found;
        found.timings.decoded = found.tokens.len().saturating_sub(1);
        Ok(found.clone())
    }

    /// The next piece, which may be empty.
    fn step(&mut self) -> Result<String> {
        let token = match self.next_token() {
            Ok(token) => token,
            Err(error) => {
                self.found.finish_reason = match error.kind() {
                    ErrorKind::Cancelled => FinishReason::Cancelled,
                    ErrorKind::DeadlineExceeded => FinishReason::Deadline,
                    _ => return Err(error),
                };
                return self.rest();
            }
        };
        if self.plan.eos.contains(&token) {
            self.found.finish_reason = FinishReason::Stop;
            self.found.stop = Some(Stop::Token(token));
            return self.rest();
        }
        let piece = self.text.push(&*self.opened.tokenizer, token)?;
        let piece = self.plan.stops.push(&piece);
        if self.is_stopped() {
            self.is_over = true;
        } else if self.found.tokens.len() == self.plan.most_tokens {
            self.found.finish_reason = FinishReason::Length;
            return Ok(piece + &self.rest()?);
        }
        Ok(piece)
    }

    /// What was held back, as no token follows.
    fn rest(&mut self) -> Result<String> {
        self.is_over = true;
        let piece = self.text.finish(&*self.opened.tokenizer)?;
        let mut rest = self.plan.stops.push(&piece);
        if !self.is_stopped() {
            rest += &self.plan.stops.finish();
        }
        Ok(rest)
    }

    /// Has a stop string come?
    fn is_stopped(&mut self) -> bool {
        let Some(stop) = self.plan.stops.found() else { return false };
        self.found.finish_reason = FinishReason::Stop;
        self.found.stop = Some(Stop::Text(stop.to_string()));
        true
    }

    fn next_token(&mut self) -> Result<u32> {
        let Some(cache) = self.cache.as_mut() else {
            return Err(Error::internal("a text goes on behind its end"));
        };
        let (plan, found) = (&mut self.plan, &mut self.found);
        let banned = match found.tokens.len() < plan.fewest_tokens {
            true => plan.eos.as_slice(),
            false => &[],
        };
        let (sampler, logprobs) = (&mut plan.sampler, &mut found.logprobs);
        let (asked, sampling) = (plan.logprobs, &mut found.timings.sampling);
        let mut is_ready = None;
        let choose = |logits: &[f32]| {
            let begin = *is_ready.insert(Instant::now());
            let token = sampler.next(logits, banned)?;
            logprobs.extend(asked.map(|count| log_probability(logits, token, count)));
            *sampling += begin.elapsed();
            Ok(token)
        };
        let token = match found.tokens.last() {
            None => {
                let (token, reused) = cache.prefill(&plan.prompt, &self.bounds, choose)?;
                found.reused_tokens = reused;
                token
            }
            Some(last) => cache.extend(&[*last], &self.bounds, choose)?,
        };
        let now = Instant::now();
        match self.first {
            None => {
                self.first = Some(now);
                found.timings.prefill = is_ready.unwrap_or(now).duration_since(self.begin);
            }
            Some(first) => found.timings.decode = now.duration_since(first),
        }
        found.tokens.push(token);
        Ok(token)
    }

    fn give_back(&mut self) {
        if let Some(cache) = self.cache.take() {
            self.opened.caches.give(cache);
        }
    }
}

impl Iterator for Generation {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        while !self.is_over {
            match self.step() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    self.found.text += &piece;
                    return Some(Ok(piece));
                }
                Err(error) => {
                    (self.is_over, self.has_failed) = (true, true);
                    self.give_back();
                    return Some(Err(error));
                }
            }
        }
        self.give_back();
        None
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.give_back();
    }
}
