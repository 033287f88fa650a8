//! `tokenizer.json`, by the crate `tokenizers`.

use crate::model::json_file::{damaged, read_bounded};
use crate::text::tokenizer::Tokenizer;
use pteron_core::error::panic_text;
use pteron_core::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// A tokenizer of a `tokenizer.json`.
pub struct TokenizerJson {
    inner: tokenizers::Tokenizer,
    size: usize,
    name: String,
}

impl TokenizerJson {
    /// Opens the file.
    ///
    /// Errors: `NotFound` without the file, `Program` where it is no tokenizer.
    pub fn open(path: &Path) -> Result<TokenizerJson> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(bytes) = read_bounded(path, &name)? else {
            return Err(Error::not_found(format!("there is no tokenizer {}", path.display())));
        };
        Self::from_bytes(&bytes, name)
    }

    /// The tokenizer that the bytes of a file state; `name` is for messages.
    ///
    /// Errors: `Program` where they state none.
    pub fn from_bytes(bytes: &[u8], name: impl Into<String>) -> Result<TokenizerJson> {
        let name = name.into();
        let mut inner = catching(&name, || tokenizers::Tokenizer::from_bytes(bytes))?;
        // Limits of training time; a prompt is never cut in silence.
        catching(&name, || inner.with_truncation(None).map(|_| ()))?;
        inner.with_padding(None);
        let size = inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        Ok(TokenizerJson { inner, size, name })
    }
}

impl Tokenizer for TokenizerJson {
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>> {
        let found = catching(&self.name, || self.inner.encode_fast(text, add_special_tokens))?;
        Ok(found.get_ids().to_vec())
    }

    fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String> {
        catching(&self.name, || self.inner.decode(ids, skip_special_tokens))
    }

    fn size(&self) -> usize {
        self.size
    }

    fn special(&self, name: &str) -> Option<u32> {
        let id = self.inner.token_to_id(name)?;
        self.inner.get_added_vocabulary().is_special_token(name).then_some(id)
    }
}

/// What the crate gives; what it refuses, and what it panics about on a damaged file, is the file's fault.
fn catching<T>(name: &str, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let cut = |text: String| text.chars().take(200).collect::<String>();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(damaged(name, &cut(error.to_string()))),
        Err(panic) => Err(damaged(name, &panic_text(&*panic))),
    }
}
