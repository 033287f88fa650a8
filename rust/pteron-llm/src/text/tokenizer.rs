//! What a generator needs of a tokenizer.

use pteron_core::Result;

/// Text to tokens and back.
pub trait Tokenizer: Send + Sync {
    /// The tokens of a text; with those that the tokenizer itself puts around it, where asked for.
    ///
    /// Names of special tokens inside the text become these tokens, as chat templates need.
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>>;

    /// The text of tokens; bytes that are no UTF-8 become U+FFFD.
    fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String>;

    /// One more than the largest token.
    fn size(&self) -> usize;

    /// The special token of a name.
    fn special(&self, name: &str) -> Option<u32>;
}
