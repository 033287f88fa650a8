//! The folder of `tests/folder`, which `python -m tests.llm.rust_folder` writes: the same texts as in Python, and what a
//! caller can ask for.

#![cfg(all(feature = "tokenizers", feature = "chat-templates"))]

use pteron_core::ErrorKind;
use pteron_llm::{
    FinishReason, GenerationConfig, Generator, GeneratorOptions, Message, Prompt, Stop, Tokenizer,
    TokenizerJson,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/folder")
}

fn open() -> Generator {
    Generator::open(folder(), GeneratorOptions { threads: Some(1), ..GeneratorOptions::default() }).unwrap()
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The settings of a case, by their names in Python.
fn config(settings: &Value) -> GenerationConfig {
    let mut found = GenerationConfig::default();
    for (name, value) in settings.as_object().unwrap() {
        let size = || value.as_u64().unwrap() as usize;
        let texts =
            || value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect();
        match name.as_str() {
            "max_new_tokens" => found.max_new_tokens = Some(size()),
            "min_new_tokens" => found.min_new_tokens = size(),
            "do_sample" => found.do_sample = value.as_bool(),
            "temperature" => found.temperature = value.as_f64(),
            "top_k" => found.top_k = Some(size()),
            "top_p" => found.top_p = value.as_f64(),
            "min_p" => found.min_p = value.as_f64(),
            "repetition_penalty" => found.repetition_penalty = value.as_f64(),
            "presence_penalty" => found.presence_penalty = value.as_f64().unwrap(),
            "frequency_penalty" => found.frequency_penalty = value.as_f64().unwrap(),
            "seed" => found.seed = value.as_u64(),
            "ignore_eos" => found.ignore_eos = value.as_bool().unwrap(),
            "skip_special_tokens" => found.skip_special_tokens = value.as_bool().unwrap(),
            "stop_token_ids" => found.stop_token_ids = ids(value),
            "stop_strings" => found.stop_strings = texts(),
            "logit_bias" => {
                let bias =
                    |(token, bias): (&String, &Value)| (token.parse().unwrap(), bias.as_f64().unwrap());
                found.logit_bias = value.as_object().unwrap().iter().map(bias).collect();
            }
            other => panic!("{other}"),
        }
    }
    found
}

/// What a prompt of the file stands for, in memory of its own.
enum Stored {
    Text(String),
    Tokens(Vec<u32>),
    Messages(Vec<Message>),
}

impl Stored {
    fn of(value: &Value) -> Stored {
        match value {
            Value::String(text) => Stored::Text(text.clone()),
            Value::Array(list) if list[0].is_number() => Stored::Tokens(ids(value)),
            Value::Array(list) => Stored::Messages(list.iter().map(message).collect()),
            other => panic!("{other}"),
        }
    }

    fn prompt(&self) -> Prompt<'_> {
        match self {
            Stored::Text(text) => Prompt::Text(text),
            Stored::Tokens(tokens) => Prompt::Tokens(tokens),
            Stored::Messages(messages) => Prompt::Messages(messages),
        }
    }
}

/// The file is read with sorted keys, so that messages whose order templates see are written out here.
fn message(value: &Value) -> Message {
    match value.get("tool_calls") {
        None => Message::from_json(&value.to_string()).unwrap(),
        Some(_) => Message::from_json(
            r#"{"role": "user", "content": "é", "tool_calls": [{"name": "f", "arguments": {"b": 1, "a": [2.5]}}]}"#,
        )
        .unwrap(),
    }
}

#[test]
fn texts_are_those_of_the_generator_in_python() {
    let (generator, expected) = (open(), expected());
    for case in expected["cases"].as_array().unwrap() {
        let prompt = Stored::of(&case["prompt"]);
        let config = config(&case["settings"]);
        assert_eq!(generator.tokens_of(prompt.prompt()).unwrap(), ids(&case["prompt_tokens"]), "{case}");
        let mut stream = generator.stream(prompt.prompt(), &config).unwrap();
        let pieces: Vec<String> = stream.by_ref().map(|piece| piece.unwrap()).collect();
        let result = stream.result().unwrap();
        assert_eq!(result.tokens, ids(&case["tokens"]), "{case}");
        assert_eq!(result.text, case["text"].as_str().unwrap(), "{case}");
        assert_eq!(pieces.concat(), result.text);
        assert!(pieces.iter().all(|piece| !piece.is_empty()));
        assert_eq!(result.finish_reason.name(), case["finish_reason"].as_str().unwrap(), "{case}");
        let stop = match &result.stop {
            None => Value::Null,
            Some(Stop::Text(text)) => Value::from(text.as_str()),
            Some(Stop::Token(token)) => Value::from(*token),
        };
        assert_eq!(stop, case["stop"], "{case}");
    }
}

#[test]
fn prompts_of_messages_are_those_of_python() {
    let (generator, expected) = (open(), expected());
    let rendered = expected["rendered"].as_array().unwrap();
    let variables = ["{}", r#"{"tools": [{"type": "function", "function": {"name": "f"}}]}"#];
    for (case, variables) in rendered.iter().zip(variables) {
        let messages: Vec<_> = case["messages"].as_array().unwrap().iter().map(message).collect();
        assert_eq!(generator.render(&messages, variables).unwrap(), case["text"].as_str().unwrap());
    }
    let error = generator.render(&[Message::new("nobody", "x")], "{}").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("no such role: nobody"), "{error}");
}

#[test]
fn texts_do_not_depend_on_threads_chunks_and_what_ran_before() {
    let config = GenerationConfig { max_new_tokens: Some(20), seed: Some(3), ..GenerationConfig::default() };
    let prompt = "the copyright owner of a copy of the License";
    let plain = open().generate(prompt, &config).unwrap();
    assert_eq!(plain.reused_tokens, 0);
    for (threads, chunk) in [(1, 1), (2, 4), (2, 512)] {
        let options =
            GeneratorOptions { threads: Some(threads), prefill_chunk: chunk, ..GeneratorOptions::default() };
        let generator = Generator::open(folder(), options).unwrap();
        for expected_reuse in [0, plain.prompt_tokens - 1] {
            let found = generator.generate(prompt, &config).unwrap();
            assert_eq!((found.tokens, found.reused_tokens), (plain.tokens.clone(), expected_reuse));
        }
    }
}

#[test]
fn many_threads_generate_at_once() {
    let generator = open();
    let text = |seed: u64| {
        let config =
            GenerationConfig { max_new_tokens: Some(30), seed: Some(seed), ..GenerationConfig::default() };
        generator.generate("You may", &config).unwrap().tokens
    };
    let alone: Vec<_> = (0..4).map(text).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|seed| scope.spawn(move || text(seed))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn a_text_ends_when_it_is_cancelled_or_its_time_is_over() {
    let generator = open();
    let config = GenerationConfig { ignore_eos: true, seed: Some(0), ..GenerationConfig::default() };
    let mut stream = generator.stream("You", &config).unwrap();
    let token = stream.cancel_token();
    let first = stream.next().unwrap().unwrap();
    token.cancel().unwrap();
    let result = stream.result().unwrap();
    assert_eq!(result.finish_reason, FinishReason::Cancelled);
    assert!(result.text.starts_with(&first) && result.tokens.len() < 10);

    let config = GenerationConfig { deadline: Some(Duration::ZERO), ..config };
    let result = generator.generate("You", &config).unwrap();
    assert_eq!((result.finish_reason, result.tokens.len()), (FinishReason::Deadline, 0));
    // The next text is not harmed.
    let config = GenerationConfig { deadline: None, max_new_tokens: Some(20), ..config };
    let found = [&generator, &open()].map(|each| each.generate("You", &config).unwrap().tokens);
    assert_eq!(found[0], found[1]);
}

#[test]
fn log_probabilities_are_of_the_model_itself() {
    let config = GenerationConfig {
        max_new_tokens: Some(8),
        do_sample: Some(false),
        logprobs: Some(3),
        ..GenerationConfig::default()
    };
    let result = open().generate("You may", &config).unwrap();
    assert_eq!(result.logprobs.len(), result.tokens.len());
    for (token, found) in result.tokens.iter().zip(&result.logprobs) {
        assert_eq!(*token, found.token);
        assert_eq!(found.top.len(), 3);
        // Greedy: the token is the most likely one.
        assert_eq!(found.top[0], (found.token, found.logprob));
        assert!(found.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        assert!(found.top.iter().map(|(_, logprob)| logprob.exp()).sum::<f64>() <= 1.0 + 1e-9);
    }
}

#[test]
fn what_cannot_be_is_an_error_and_the_next_call_works() {
    let generator = open();
    let plain = GenerationConfig { max_new_tokens: Some(4), ..GenerationConfig::default() };
    let refused = |prompt: Prompt<'_>, config: &GenerationConfig, text: &str| {
        let error = generator.generate(prompt, config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(Prompt::Tokens(&[320]), &plain, "does not know");
    refused(Prompt::Tokens(&[5; 65]), &plain, "at most 64 tokens");
    refused("x".into(), &GenerationConfig { max_new_tokens: Some(0), ..plain.clone() }, "max_new_tokens");
    refused("x".into(), &GenerationConfig { temperature: Some(-1.0), ..plain.clone() }, "temperature");
    refused("x".into(), &GenerationConfig { top_p: Some(f64::NAN), ..plain.clone() }, "top_p");
    assert_eq!(generator.generate(Prompt::Tokens(&[5; 64]), &plain).unwrap().tokens.len(), 1);
    assert_eq!(generator.generate("x", &plain).unwrap().tokens.len(), 4);
}

/// A copy of the folder in which `file` holds `text`.
fn damaged(name: &str, file: &str, text: &str) -> pteron_core::Error {
    let copy = std::env::temp_dir().join(format!("pteron-llm-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&copy).unwrap();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    std::fs::write(copy.join(file), text).unwrap();
    let error = match Generator::open(&copy, GeneratorOptions::default()) {
        Err(error) => error,
        Ok(generator) => generator.generate("x", &GenerationConfig::default()).unwrap_err(),
    };
    std::fs::remove_dir_all(&copy).unwrap();
    error
}

#[test]
fn damaged_folders_are_errors_with_the_name_of_the_file() {
    for (at, (file, text)) in [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("generation_config.json", r#"{"top_k": "many"}"#),
        ("generation_config.json", r#"{"temperature": [1]}"#),
        ("tokenizer.json", "{}"),
        (
            "tokenizer.json",
            r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}"#,
        ),
        ("tokenizer_config.json", r#"{"chat_template": 3}"#),
        ("chat_template.jinja", "{% for %}"),
    ]
    .into_iter()
    .enumerate()
    {
        let error = damaged(&at.to_string(), file, text);
        let name = if file.ends_with("jinja") { "the chat template" } else { file };
        assert_eq!(error.kind(), ErrorKind::Program, "{file} {text}: {error}");
        assert!(error.to_string().contains(name), "{file} {text}: {error}");
    }
    assert_eq!(damaged("program", "model.pte", "").kind(), ErrorKind::Program);
    let missing = Generator::open(folder().join("nothing"), GeneratorOptions::default());
    assert_eq!(missing.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// Encodes, but cannot decode.
struct Mute;

impl Tokenizer for Mute {
    fn encode(&self, _: &str, _: bool) -> pteron_core::Result<Vec<u32>> {
        Ok(vec![5])
    }
    fn decode(&self, _: &[u32], _: bool) -> pteron_core::Result<String> {
        Err(pteron_core::Error::program("no such token"))
    }
    fn size(&self) -> usize {
        320
    }
    fn special(&self, _: &str) -> Option<u32> {
        None
    }
}

#[test]
fn a_text_that_ended_with_an_error_has_no_result() {
    let generator = Generator::with_tokenizer(folder(), Box::new(Mute), GeneratorOptions::default()).unwrap();
    let plain = GenerationConfig { ignore_eos: true, ..GenerationConfig::default() };
    let mut text = generator.stream("x", &plain).unwrap();
    assert_eq!(text.next().unwrap().unwrap_err().kind(), ErrorKind::Program);
    assert!(text.next().is_none());
    assert_eq!(text.result().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn a_program_alone_takes_a_tokenizer_from_elsewhere() {
    let options = GeneratorOptions { tokenizer: Some(folder()), ..GeneratorOptions::default() };
    let alone = Generator::open(folder().join("model.pte"), options).unwrap();
    // No generation_config.json counts, so the most likely token is taken.
    let plain = GenerationConfig { max_new_tokens: Some(6), ..GenerationConfig::default() };
    let greedy = GenerationConfig { do_sample: Some(false), ..plain.clone() };
    let expected = open().generate("You", &greedy).unwrap();
    assert_eq!(alone.generate("You", &plain).unwrap().tokens, expected.tokens);
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    struct Large;
    impl Tokenizer for Large {
        fn encode(&self, _: &str, _: bool) -> pteron_core::Result<Vec<u32>> {
            Ok(vec![1])
        }
        fn decode(&self, _: &[u32], _: bool) -> pteron_core::Result<String> {
            Ok(String::new())
        }
        fn size(&self) -> usize {
            100_000
        }
        fn special(&self, _: &str) -> Option<u32> {
            None
        }
    }
    let found = Generator::with_tokenizer(folder(), Box::new(Large), GeneratorOptions::default());
    assert!(found.err().unwrap().to_string().contains("another model's"));
    let own = TokenizerJson::open(&folder().join("tokenizer.json")).unwrap();
    assert_eq!((own.size(), own.special("</s>"), own.special("the")), (320, Some(1), None));
}
