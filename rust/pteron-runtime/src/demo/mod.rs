//! The demo backends' run half in Rust, registered only on request: `BackendWithCompilerDemo` and
//! `ExecutorBackend`. They do what their Python twins in `pteron.backends.demo` do.

mod blob;
mod compiler_demo;
mod executor_backend;
mod wiring;

pub use compiler_demo::CompilerDemoBackend;
pub use executor_backend::ExecutorBackend;

use crate::Runtime;
use pteron_core::{Error, Result, TensorView, TensorViewMut};
use pteron_kernels::strided::copy::copy_whole;
use std::sync::Arc;

/// Registers both backends, in place of whatever had their names.
pub fn register(runtime: &Arc<Runtime>) -> Result<()> {
    runtime.register_backend(Arc::new(CompilerDemoBackend), true)?;
    runtime.register_backend(Arc::new(ExecutorBackend::new(runtime)), true)
}

/// Copies one tensor into another of the same dtype and shape, whatever their memory orders. An error
/// when dtype or shape differ.
fn copy_tensor(from: TensorView<'_>, mut to: TensorViewMut<'_>) -> Result<()> {
    if from.dtype() != to.dtype() || from.shape() != to.shape() {
        return Err(Error::delegate("a result does not fit its output")
            .expected(format!("{}{}", to.dtype(), to.shape()))
            .got(format!("{}{}", from.dtype(), from.shape())));
    }
    copy_whole(&from, &mut to)
}
