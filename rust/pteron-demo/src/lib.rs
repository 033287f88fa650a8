//! The demo backends' run half in Rust, registered only on request: `BackendWithCompilerDemo`,
//! `BackendWithDelegateMappingDemo` and `ExecutorBackend`. They do what their Python twins in `pteron.backends.demo` do, with the public interface
//! of the runtime, as a backend of somebody else would.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod blob;
mod compiler_demo;
mod copy_tensor;
mod delegate_mapping;
mod executor_backend;
mod wiring;

pub use compiler_demo::CompilerDemoBackend;
pub use delegate_mapping::DelegateMappingBackend;
pub use executor_backend::ExecutorBackend;

use pteron_core::Result;
use pteron_runtime::Runtime;
use std::sync::Arc;

/// Registers all of them, in place of whatever had their names.
pub fn register(runtime: &Arc<Runtime>) -> Result<()> {
    runtime.register_backend(Arc::new(CompilerDemoBackend), true)?;
    runtime.register_backend(Arc::new(DelegateMappingBackend), true)?;
    runtime.register_backend(Arc::new(ExecutorBackend::new(runtime)), true)
}
