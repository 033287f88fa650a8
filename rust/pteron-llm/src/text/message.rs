//! A message of a conversation.

use crate::text::python_json::dumps;
use minijinja::Value as Jinja;
use pteron_core::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A message of a conversation, as chat templates take it.
#[derive(Debug, Clone)]
pub struct Message {
    fields: Jinja,
    bytes: usize,
}

impl Message {
    /// What somebody said: `role` is "system", "user" or "assistant".
    pub fn new(role: &str, content: &str) -> Message {
        let fields = minijinja::context! { role, content };
        Message { fields, bytes: role.len().saturating_add(content.len()) }
    }

    /// A message with further fields, such as `tool_calls`: a JSON object, whose order templates see.
    ///
    /// Errors: `Input` for a text that is none.
    pub fn from_json(text: &str) -> Result<Message> {
        Ok(Message { fields: object(text)?, bytes: text.len() })
    }

    /// What templates look at.
    pub(super) fn fields(&self) -> &Jinja {
        &self.fields
    }

    /// About how long it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl std::fmt::Display for Message {
    /// As JSON.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&dumps(&self.fields, None).unwrap_or_default())
    }
}

/// The object that a JSON text holds, in its order.
///
/// Errors: `Input` for a text that holds none.
pub(super) fn object(text: &str) -> Result<Jinja> {
    let found: Object = serde_json::from_str(text).map_err(|error| {
        Error::input("a text is no JSON object")
            .expected("an object such as {\"role\": \"user\", \"content\": \"...\"}")
            .got(error.to_string())
    })?;
    Ok(found.0)
}

struct Object(Jinja);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let value = Jinja::deserialize(deserializer)?;
        match value.kind() {
            minijinja::value::ValueKind::Map => Ok(Object(value)),
            other => Err(D::Error::custom(format!("it is a {other}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_the_order_of_their_fields() {
        assert_eq!(Message::new("user", "é").to_string(), r#"{"role": "user", "content": "é"}"#);
        let text = r#"{"z": 1, "role": "user", "a": null}"#;
        assert_eq!(Message::from_json(text).unwrap().to_string(), text);
    }

    #[test]
    fn other_texts_are_no_objects() {
        for text in ["", "[1]", "\"x\"", "{\"a\":"] {
            assert!(object(text).unwrap_err().to_string().contains("JSON object"), "{text}");
        }
        assert!(object(&"[".repeat(100_000)).is_err());
    }
}
