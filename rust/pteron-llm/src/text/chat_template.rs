//! Chat templates: Jinja that came with a model, so nobody trusts it.
//!
//! A budget bounds what a template does and the memory that it makes. Names and functions are those that transformers
//! gives templates.

use crate::model::json_file::{Object, damaged, read_bounded, read_object};
use crate::text::date;
use crate::text::message::{Message, object};
use crate::text::python_json::dumps;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, ErrorKind, Value as Jinja};
use pteron_core::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Steps of a template, and units of 64 bytes that it makes, beyond those that messages bring along.
const BUDGET: u64 = 1 << 20;
/// Characters of a template.
const MOST_CHARACTERS: usize = 1 << 20;
const NAME: &str = "the chat template";

/// Turns messages into a prompt.
pub struct ChatTemplate {
    environment: Environment<'static>,
    special: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// `source`: Jinja. `special`: texts of special tokens by names such as "bos_token".
    ///
    /// Errors: `Program` where the source is no template.
    pub fn new(source: &str, special: BTreeMap<String, String>) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| damaged(NAME, &short(&error)))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", refuse);
        environment.add_function("strftime_now", present);
        environment.add_filter("tojson", to_json);
        let added = environment.add_template_owned(NAME, without_generation(source));
        added.map_err(|error| damaged(NAME, &short(&error)))?;
        Ok(ChatTemplate { environment, special })
    }

    /// The template of a folder: chat_template.jinja, or "chat_template" of chat_template.json or of
    /// tokenizer_config.json, where a list of several has one named "default". `None` where there is none.
    pub(crate) fn open(folder: &Path, config: &Object) -> Result<Option<ChatTemplate>> {
        let special = special_texts(config);
        if let Some(bytes) = read_bounded(&folder.join("chat_template.jinja"), "chat_template.jinja")? {
            let source =
                String::from_utf8(bytes).map_err(|_| damaged("chat_template.jinja", "it is no UTF-8"))?;
            return checked(&source, "chat_template.jinja", special).map(Some);
        }
        let beside = read_object(&folder.join("chat_template.json"))?;
        let stated = match beside.get("chat_template").or_else(|| config.get("chat_template")) {
            Some(Value::Array(list)) => list
                .iter()
                .find(|entry| entry.get("name").is_some_and(|name| name == "default"))
                .and_then(|entry| entry.get("template")),
            other => other,
        };
        match stated {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(source)) => checked(source, "tokenizer_config.json", special).map(Some),
            Some(_) => Err(damaged("tokenizer_config.json", "its chat_template is no text")),
        }
    }

    /// The prompt. `variables`: what else the template looks at, such as `tools` or `enable_thinking`: a JSON object.
    ///
    /// Errors: `Input` where the template refuses the messages or the variables are none, `Program` where it fails.
    pub fn render(&self, messages: &[Message], variables: &str) -> Result<String> {
        let mut names: BTreeMap<String, Jinja> = BTreeMap::new();
        names.extend(self.special.iter().map(|(name, text)| (name.clone(), Jinja::from(text.as_str()))));
        names.insert("tools".into(), Jinja::from(()));
        names.insert("add_generation_prompt".into(), Jinja::from(true));
        let given = object(variables)?;
        for name in given.try_iter().into_iter().flatten() {
            let value = given.get_item(&name).unwrap_or_default();
            names.insert(name.to_string(), value);
        }
        let fields: Vec<Jinja> = messages.iter().map(|message| message.fields().clone()).collect();
        names.insert("messages".into(), Jinja::from(fields));
        let bytes = messages.iter().fold(variables.len(), |sum, message| sum.saturating_add(message.bytes()));
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BUDGET.saturating_add(bytes as u64)));
        let template = environment.get_template(NAME).map_err(|error| damaged(NAME, &short(&error)))?;
        template.render(names).map_err(|error| failed(&error))
    }
}

fn checked(source: &str, file: &str, special: BTreeMap<String, String>) -> Result<ChatTemplate> {
    if source.len() > MOST_CHARACTERS {
        return Err(damaged(file, "its chat template is too long"));
    }
    ChatTemplate::new(source, special)
}

/// Texts of special tokens that a tokenizer_config.json states, by names such as "eos_token".
pub(crate) fn special_texts(config: &Object) -> BTreeMap<String, String> {
    let text = |token: &Value| token.get("content").unwrap_or(token).as_str().map(str::to_string);
    config
        .iter()
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, token)| Some((name.clone(), text(token)?)))
        .collect()
}

/// `{% generation %}` marks what a model says; the text is written as it is.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}") else { break };
        let (tag, behind) = tag.split_at(end + 2);
        let name = tag.trim_matches(|c: char| "{}%-+".contains(c) || c.is_whitespace());
        match name {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

const REFUSAL: &str = "refused: ";

fn refuse(message: String) -> Result<Jinja, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("{REFUSAL}{message}")))
}

fn present(form: &str) -> Result<String, minijinja::Error> {
    let wrong =
        || minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know {form:?}"));
    date::now(form).ok_or_else(wrong)
}

fn to_json(value: &Jinja, options: Kwargs) -> Result<Jinja, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _ = options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let wrong = |error: serde_json::Error| {
        minijinja::Error::new(ErrorKind::BadSerialization, "no value of JSON").with_source(error)
    };
    Ok(Jinja::from(dumps(value, indent.map(|width| width.min(16))).map_err(wrong)?))
}

fn failed(error: &minijinja::Error) -> Error {
    if let Some(reason) = error.detail().and_then(|text| text.strip_prefix(REFUSAL)) {
        return Error::input("the chat template refuses the messages")
            .got(reason.chars().take(200).collect::<String>());
    }
    match error.kind() {
        ErrorKind::OutOfFuel => damaged(NAME, "it does too much"),
        _ => Error::program("the chat template fails on these messages").got(short(error)),
    }
}

fn short(error: &minijinja::Error) -> String {
    error.to_string().chars().take(200).collect()
}

#[cfg(test)]
#[path = "chat_template_tests.rs"]
mod tests;
