//! Writes the text that follows a prompt, piece by piece, and how long it took.
//!
//! `cargo run --release -p pteron-llm --example generate -- FOLDER "Once upon a time" [--max-new-tokens 64]
//! [--temperature 0.8] [--top-k 40] [--top-p 0.9] [--seed 7] [--threads 2] [--chat]`

use pteron_core::{Error, Result};
use pteron_llm::{GenerationConfig, Generator, GeneratorOptions, Message, Prompt};
use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

struct Arguments {
    folder: String,
    prompt: String,
    is_chat: bool,
    threads: Option<usize>,
    config: GenerationConfig,
}

fn parse() -> Result<Arguments> {
    let mut words = std::env::args().skip(1);
    let mut found = Arguments {
        folder: String::new(),
        prompt: String::new(),
        is_chat: false,
        threads: None,
        config: GenerationConfig::default(),
    };
    let mut texts = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--chat" => found.is_chat = true,
            "--threads" => found.threads = Some(number(&word, words.next())?),
            "--max-new-tokens" => found.config.max_new_tokens = Some(number(&word, words.next())?),
            "--temperature" => found.config.temperature = Some(number(&word, words.next())?),
            "--top-k" => found.config.top_k = Some(number(&word, words.next())?),
            "--top-p" => found.config.top_p = Some(number(&word, words.next())?),
            "--seed" => found.config.seed = Some(number(&word, words.next())?),
            _ if word.starts_with("--") => return Err(Error::input(format!("unknown argument {word}"))),
            _ => texts.push(word),
        }
    }
    match <[String; 2]>::try_from(texts) {
        Ok([folder, prompt]) => Ok(Arguments { folder, prompt, ..found }),
        Err(_) => {
            Err(Error::input("usage: generate FOLDER PROMPT [--chat] [--max-new-tokens N] [--seed N] ..."))
        }
    }
}

fn number<T: FromStr>(name: &str, value: Option<String>) -> Result<T> {
    let given = value.unwrap_or_default();
    given.parse().map_err(|_| Error::input(format!("{name} needs a number")).got(given))
}

fn run() -> Result<()> {
    let arguments = parse()?;
    let options = GeneratorOptions { threads: arguments.threads, ..GeneratorOptions::default() };
    let generator = Generator::open(&arguments.folder, options)?;
    let said = [Message::new("user", &arguments.prompt)];
    let prompt = if arguments.is_chat { Prompt::Messages(&said) } else { Prompt::Text(&arguments.prompt) };
    let mut text = generator.stream(prompt, &arguments.config)?;
    let mut out = std::io::stdout().lock();
    for piece in text.by_ref() {
        let written = out.write_all(piece?.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Error::input(format!("the text cannot be written: {error}")))?;
    }
    let result = text.result()?;
    eprintln!(
        "\n[{} + {} tokens, {}, prefill {:.1} ms, {:.1} tokens/s, choosing a token {:.1} us]",
        result.prompt_tokens,
        result.tokens.len(),
        result.finish_reason.name(),
        result.timings.prefill.as_secs_f64() * 1e3,
        result.timings.tokens_per_second(),
        result.timings.sampling.as_secs_f64() * 1e6 / result.tokens.len().max(1) as f64,
    );
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
