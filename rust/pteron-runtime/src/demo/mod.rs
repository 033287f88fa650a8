//! The demo backends, registered only on request.

use crate::Runtime;
use pteron_core::Result;

/// Registers `BackendWithCompilerDemo` and `ExecutorBackend`.
pub fn register(_runtime: &std::sync::Arc<Runtime>) -> Result<()> {
    todo!()
}
