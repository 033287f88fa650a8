//! Text piece by piece: a character comes when all its bytes have come.

use crate::text::tokenizer::Tokenizer;
use pteron_core::Result;

/// What stands for bytes that are no text, yet or at all.
const BROKEN: char = '\u{FFFD}';
/// Tokens that wait for the end of a character before broken bytes are given as U+FFFD.
const PATIENCE: usize = 8;

/// Decodes token by token. The pieces together are the text of all tokens, except where bytes are broken for good.
pub struct TextStream {
    skips_special: bool,
    // Tokens from the last piece on: spaces of a word depend on the tokens before it.
    ids: Vec<u32>,
    given: usize,
    // Characters of `ids` that were given.
    shown: usize,
}

impl TextStream {
    /// The beginning of a text.
    pub fn new(skip_special_tokens: bool) -> TextStream {
        TextStream { skips_special: skip_special_tokens, ids: Vec::new(), given: 0, shown: 0 }
    }

    /// What the token completes; often nothing.
    pub fn push(&mut self, tokenizer: &dyn Tokenizer, token: u32) -> Result<String> {
        self.ids.push(token);
        let text = self.decoded(tokenizer)?;
        if !text.ends_with(BROKEN) {
            return self.give(tokenizer, &text);
        }
        if self.ids.len() - self.given <= PATIENCE {
            return Ok(String::new());
        }
        // A character has at most four bytes, so only the last three can still become one.
        let tail = text.chars().rev().take(3).take_while(|c| *c == BROKEN).count();
        let stable = text.chars().count() - tail;
        let piece = text.chars().take(stable).skip(self.shown).collect();
        self.shown = stable;
        Ok(piece)
    }

    /// What is left: U+FFFD for bytes whose character never ended.
    pub fn finish(&mut self, tokenizer: &dyn Tokenizer) -> Result<String> {
        if self.ids.len() <= self.given {
            return Ok(String::new());
        }
        let text = self.decoded(tokenizer)?;
        self.give(tokenizer, &text)
    }

    fn give(&mut self, tokenizer: &dyn Tokenizer, text: &str) -> Result<String> {
        let piece = text.chars().skip(self.shown).collect();
        self.ids.drain(..self.given.min(self.ids.len()));
        self.given = self.ids.len();
        self.shown = self.decoded(tokenizer)?.chars().count();
        Ok(piece)
    }

    fn decoded(&self, tokenizer: &dyn Tokenizer) -> Result<String> {
        tokenizer.decode(&self.ids, self.skips_special)
    }
}
