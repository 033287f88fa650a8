//! Text from language models in `.pte` programs, without Python and without torch.
//!
//! [`Generator`] opens a folder as `pteron.llm.export` writes it: `model.pte`, the files of a tokenizer, and JSON files
//! that state defaults. [`Generator::stream`] gives the text piece by piece. The same logits, settings and seed give the
//! same text as `pteron.llm.Generator` in Python does, on every machine and number of threads.
//!
//! The folders: `model` (what a folder states, the program's cache), `sampling` (from logits to a token), `text`
//! (tokens to text and back, stop strings, chat templates). [`Generation`] is the loop.
//!
//! Nobody trusts a folder: what is damaged is an error with the name of the file.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod generation;
mod generation_config;
mod generation_result;
mod generator;
mod model;
mod opened;
mod sampling;
mod text;

pub use generation::Generation;
pub use generation_config::GenerationConfig;
pub use generation_result::{FinishReason, GenerationResult, Stop, Timings, TokenLogprob};
pub use generator::{Generator, GeneratorOptions, Prompt};
pub use model::cache::Cache;
pub use model::folder::ModelFolder;
pub use model::signature::{Positions, Signature};
pub use sampling::parameters::SamplingParameters;
pub use sampling::sampler::Sampler;
#[cfg(feature = "chat-templates")]
pub use text::chat_template::ChatTemplate;
#[cfg(feature = "chat-templates")]
pub use text::message::Message;
pub use text::stop_strings::StopStrings;
pub use text::text_stream::TextStream;
pub use text::tokenizer::Tokenizer;
#[cfg(feature = "tokenizers")]
pub use text::tokenizer_json::TokenizerJson;

/// The snippet of the guide compiles.
#[cfg(all(doctest, feature = "tokenizers", feature = "chat-templates"))]
#[doc = include_str!("../../../docs/how-to/language-models-in-rust.md")]
struct Guide;
