//! softmax and log_softmax.

mod columns;
pub mod kernel;
mod rows;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Softmax,
    LogSoftmax,
}
