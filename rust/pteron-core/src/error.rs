//! The one error type of the Rust half. Its text says what happened, where, what was expected,
//! what was found, and what to do; `pteron-python` maps [`ErrorKind`] to an exception class.

pub use crate::error_kind::ErrorKind;
use std::borrow::Cow;
use std::fmt;

/// Shorthand for results with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its place. Cheap to move: one pointer.
pub struct Error(Box<ErrorDetail>);

/// The fields behind an [`Error`]; every field but `kind` and `message` is optional.
#[derive(Debug)]
pub struct ErrorDetail {
    /// The class of the error.
    pub kind: ErrorKind,
    /// What happened, one sentence without place.
    pub message: String,
    /// Method name.
    pub method: Option<String>,
    /// Index of the instruction in the method's chain.
    pub instruction: Option<usize>,
    /// Operator name, such as `aten::add.out`.
    pub operator: Option<String>,
    /// Argument name.
    pub argument: Option<String>,
    /// What was expected.
    pub expected: Option<String>,
    /// What was found instead.
    pub got: Option<String>,
    /// Source line of the model, `file.py:12 (module.path)`.
    pub source_line: Option<String>,
    /// What the reader can do about it.
    pub hint: Option<String>,
    /// Backend name, for delegate errors.
    pub backend: Option<String>,
    /// Debug handle in the number space of the delegate that failed.
    pub debug_handle: Option<i64>,
    /// Something outside may still look at memory that was lent to the call that failed (a view that a
    /// Python delegate kept). Whoever owns such memory must neither reuse nor free it.
    pub is_memory_kept: bool,
    /// The error of a lower layer (a Python exception travels here).
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        impl Error {
            $( $(#[$doc])* #[must_use] pub fn $name(mut self, value: impl Into<String>) -> Self {
                if self.0.$name.is_none() { self.0.$name = Some(value.into()); }
                self
            } )*
        }
    };
}
setters! {
    /// Sets the method name, unless a deeper layer set it.
    method,
    /// Sets the operator, unless a deeper layer set it.
    operator,
    /// Sets the argument name, unless a deeper layer set it.
    argument,
    /// Sets what was expected.
    expected,
    /// Sets what was found.
    got,
    /// Sets the model's source line.
    source_line,
    /// Sets the hint.
    hint,
    /// Sets the backend name.
    backend,
}

impl Error {
    /// A new error of `kind`.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorDetail {
            kind,
            message: message.into(),
            method: None,
            instruction: None,
            operator: None,
            argument: None,
            expected: None,
            got: None,
            source_line: None,
            hint: None,
            backend: None,
            debug_handle: None,
            is_memory_kept: false,
            cause: None,
        }))
    }

    /// Sets the instruction index, unless a deeper layer set it.
    #[must_use]
    pub fn instruction(mut self, index: usize) -> Self {
        self.0.instruction.get_or_insert(index);
        self
    }

    /// Changes the instruction index, keeping everything else.
    #[must_use]
    pub fn with_instruction(mut self, index: usize) -> Self {
        self.0.instruction = Some(index);
        self
    }

    /// Sets the debug handle, in the number space of the delegate that failed.
    #[must_use]
    pub fn debug_handle(mut self, handle: i64) -> Self {
        self.0.debug_handle.get_or_insert(handle);
        self
    }

    /// Says that lent memory may still be looked at; see [`ErrorDetail::is_memory_kept`].
    #[must_use]
    pub fn memory_kept(mut self) -> Self {
        self.0.is_memory_kept = true;
        self
    }

    /// Attaches the error of a lower layer.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Changes the kind, keeping everything else.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Changes the message, keeping everything else.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// All fields.
    pub fn detail(&self) -> &ErrorDetail {
        &self.0
    }

    /// All fields, owned (to take the cause out).
    pub fn into_detail(self) -> ErrorDetail {
        *self.0
    }
}

impl fmt::Display for ErrorDetail {
    /// One line: place, message, expected, got, source line, hint. Control characters are escaped,
    /// wherever they come from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(&mut Escaping(f))
    }
}

impl ErrorDetail {
    fn write(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let mut place = Vec::new();
        if let Some(m) = &self.method {
            place.push(format!("method '{}'", printable(m)));
        }
        if let Some(i) = self.instruction {
            place.push(format!("instruction {i}"));
        }
        if let Some(o) = &self.operator {
            place.push(format!("operator {}", printable(o)));
        }
        if let Some(b) = &self.backend {
            place.push(format!("backend {}", printable(b)));
        }
        if let Some(a) = &self.argument {
            place.push(format!("argument '{}'", printable(a)));
        }
        if !place.is_empty() {
            write!(f, "{}: ", place.join(", "))?;
        }
        f.write_str(&cut(&self.message))?;
        if let Some(e) = &self.expected {
            write!(f, "; expected {}", cut(e))?;
        }
        if let Some(g) = &self.got {
            write!(f, "; got {}", cut(g))?;
        }
        if let Some(h) = self.debug_handle {
            write!(f, "; debug handle is: {h}")?;
        }
        if let Some(s) = &self.source_line {
            write!(f, "; model source: {}", cut(s))?;
        }
        if let Some(h) = &self.hint {
            write!(f, " (hint: {})", cut(h))?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_deref().map(|c| c as &(dyn std::error::Error + 'static))
    }
}

/// Longest part of a text, in characters: a list of all operators that are missing is long, the names of a
/// hostile file have no end.
const LONGEST_PART: usize = 4000;

/// The beginning of a part of a text that is too long.
fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST_PART) {
        Some((at, _)) => Cow::Owned(format!("{}…", text.get(..at).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

/// Passes text on with control characters escaped. Escaped text passes unchanged.
struct Escaping<W>(W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_unprintable) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_unicode())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Could `c` change what a terminal or a log shows of the text around it? (Control characters, line and
/// paragraph separators, marks that turn the writing direction.)
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name from a file made fit for a message: control characters escaped, cut after 200 characters.
pub fn printable(name: &str) -> String {
    const LIMIT: usize = 200;
    let (kept, end) = match name.char_indices().nth(LIMIT) {
        Some((at, _)) => (name.get(..at).unwrap_or_default(), "…"),
        None => (name, ""),
    };
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = fmt::Write::write_str(&mut Escaping(&mut out), kept);
    out.push_str(end);
    out
}

/// What a caught panic said, made fit for a message.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.map_or_else(|| "a panic without a message".into(), printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_place_expected_got_and_hint() {
        let e = Error::kernel("shapes do not broadcast")
            .method("forward")
            .instruction(3)
            .operator("aten::add.out")
            .argument("other")
            .expected("[2, 3]")
            .got("[4]")
            .source_line("m.py:7")
            .hint("check the exporter");
        assert_eq!(
            e.to_string(),
            "method 'forward', instruction 3, operator aten::add.out, argument 'other': shapes do not broadcast; \
             expected [2, 3]; got [4]; model source: m.py:7 (hint: check the exporter)"
        );
        assert_eq!(e.kind(), ErrorKind::Kernel);
    }

    #[test]
    fn deeper_layer_wins() {
        let e = Error::kernel("x").operator("inner").operator("outer");
        assert_eq!(e.detail().operator.as_deref(), Some("inner"));
    }

    #[test]
    fn hostile_names_are_escaped_and_cut() {
        assert_eq!(printable("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(printable(&"x".repeat(300)).chars().count(), 201);
    }

    #[test]
    fn texts_are_one_clean_line_whatever_the_fields_hold() {
        let evil = "a\u{1b}[2J\nb\u{202e}";
        let e = Error::delegate(evil)
            .method(evil)
            .operator(evil)
            .backend(evil)
            .argument(evil)
            .expected(evil)
            .got(evil)
            .source_line(evil)
            .hint(evil);
        let text = e.to_string();
        assert!(!text.contains(is_unprintable), "{text:?}");
        assert_eq!(text.matches("a\\u{1b}[2J\\u{a}b\\u{202e}").count(), 9, "{text}");
    }

    #[test]
    fn long_parts_are_cut() {
        let long = "x".repeat(100_000);
        let e = Error::delegate(&*long).got(&*long).expected(&*long).hint(&*long).method(&*long);
        let text = e.to_string();
        assert!(text.chars().count() < 5 * LONGEST_PART && text.contains("…; expected x"));
    }

    #[test]
    fn one_pointer() {
        assert_eq!(std::mem::size_of::<Error>(), std::mem::size_of::<usize>());
    }
}
