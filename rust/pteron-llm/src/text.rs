//! Tokens to text and back, what ends a text, and the prompts of conversations.

#[cfg(feature = "chat-templates")]
pub(crate) mod chat_template;
#[cfg(feature = "chat-templates")]
mod date;
#[cfg(feature = "chat-templates")]
pub(crate) mod message;
#[cfg(feature = "chat-templates")]
mod python_json;
pub(crate) mod stop_strings;
pub(crate) mod text_stream;
pub(crate) mod tokenizer;
#[cfg(feature = "tokenizers")]
pub(crate) mod tokenizer_json;
