//! What ends a call: an error of the runtime, or a broken rule of the header.

use crate::codes;
use pteron_core::Error;

/// An error with its code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// One of `codes`.
    pub code: i32,
    /// What happened.
    pub error: Error,
}

/// The result of what a function does.
pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        Failure { code: codes::number(error.kind()), error }
    }
}

/// A broken rule of the header, in the argument `argument`.
#[cold]
pub(crate) fn misuse(argument: &str, message: impl Into<String>) -> Failure {
    Failure { code: codes::MISUSE, error: Error::input(message).argument(argument) }
}

impl Failure {
    /// Adds what there should have been, and what there was.
    #[cold]
    pub(crate) fn instead(self, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Failure { error: self.error.expected(expected).got(got), ..self }
    }

    /// Adds what to do.
    #[cold]
    pub(crate) fn hint(self, hint: &str) -> Self {
        Failure { error: self.error.hint(hint), ..self }
    }
}
