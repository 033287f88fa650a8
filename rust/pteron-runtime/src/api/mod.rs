//! What callers hold: programs, methods and their options, with the locks, deadlines and pools between callers and
//! sessions.

pub(crate) mod builds;
#[cfg(test)]
mod call_tests;
pub(crate) mod call_tree;
pub(crate) mod calling_convention;
pub(crate) mod cancel_token;
pub(crate) mod deadline;
pub(crate) mod describe;
pub(crate) mod execute_options;
pub(crate) mod fork_lock;
pub(crate) mod kernel_check;
pub(crate) mod method;
pub(crate) mod method_instance;
pub(crate) mod method_options;
pub(crate) mod program;
