//! Python bindings of pteron: conversions, no logic. The module is `pteron._native`; what users see of
//! it is re-exported by the package `pteron`.
//!
//! Unsafe code lives in `memory`, `tensor`, `dlpack`, `blob`, `input`, `call`, `execute_context` and the
//! two loans of `backend`.

use pyo3::prelude::*;

mod backend;
mod blob;
mod call;
mod dlpack;
mod dtype;
mod errors;
mod execute_context;
mod input;
mod interface;
mod memory;
mod method;
mod numpy;
mod output;
mod program;
mod runtime;
mod serialize;
mod spec;
mod tensor;
mod torch;
mod tree;

/// The native half of pteron.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<program::Program>()?;
    m.add_class::<method::Method>()?;
    m.add_class::<tensor::Tensor>()?;
    m.add_class::<runtime::Runtime>()?;
    m.add_class::<runtime::Limits>()?;
    m.add_class::<spec::ValueSpec>()?;
    m.add_class::<spec::DimRange>()?;
    m.add_class::<backend::BackendInitContext>()?;
    m.add_class::<execute_context::ExecuteContext>()?;
    m.add_function(wrap_pyfunction!(program::load, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::register_backend, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::register_demo_backends, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::operator_names, m)?)?;
    m.add_function(wrap_pyfunction!(serialize::serialize_program, m)?)?;
    m.add_function(wrap_pyfunction!(serialize::listing, m)?)?;
    Ok(())
}
