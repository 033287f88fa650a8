//! Python bindings of pteron: conversions, no logic. The module is `pteron._native`; what users see of
//! it is re-exported by the package `pteron`.
//!
//! Unsafe code lives in the islands `tensor`, `tensor_memory`, `dlpack`, `dlpack_exchange`, `numpy_api`, `blob`, `contents`, `input`, `call`,
//! `execute_context`, `pending_exception`, `plugin`, `python_call`, `loan`, `kernel`, the calls of `backend` and the borrowed bytes of `source`, and nowhere
//! else: the compiler refuses it.

#![deny(unsafe_code)]

use pyo3::prelude::*;

#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod backend;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod blob;
mod bundle;
mod bytes;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod call;
mod cancel_token;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod contents;
mod data_file;
mod delegate_state;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod dlpack;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod dlpack_exchange;
mod dtype;
mod errors;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod execute_context;
mod flat_call;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod input;
mod interface;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod kernel;
mod kernel_check;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod loan;
mod method;
mod numpy;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod numpy_api;
mod output;
mod pack;
mod parameter;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod pending_exception;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod plugin;
mod program;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod python_call;
mod python_objects;
mod run_observer;
mod runtime;
mod serialize;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod source;
mod spec;
mod step_timer;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod tensor;
#[allow(unsafe_code, reason = "memory that Python lends or borrows")]
mod tensor_memory;
mod torch;
mod tracer;

/// Small lists that load makes end in an error, not the process, when memory runs out.
#[global_allocator]
static ALLOCATOR: pteron_core::memory_reserve::ReservingAllocator =
    pteron_core::memory_reserve::ReservingAllocator(std::alloc::System);

/// The native half of pteron.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<program::Program>()?;
    m.add_class::<method::Method>()?;
    m.add_class::<tensor::Tensor>()?;
    m.add_class::<tracer::TracedStep>()?;
    m.add_class::<step_timer::StepTimer>()?;
    m.add_class::<runtime::Runtime>()?;
    m.add_class::<runtime::Limits>()?;
    m.add_class::<cancel_token::CancelToken>()?;
    m.add_class::<spec::ValueSpec>()?;
    m.add_class::<spec::DimRange>()?;
    m.add_class::<backend::BackendInitContext>()?;
    m.add_class::<execute_context::ExecuteContext>()?;
    m.add_function(wrap_pyfunction!(errors::error_kinds, m)?)?;
    m.add_function(wrap_pyfunction!(program::load, m)?)?;
    m.add_function(wrap_pyfunction!(spec::restored_value_spec, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::available_processors, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::threads_of_environment, m)?)?;
    m.add_function(wrap_pyfunction!(run_observer::observe_runs, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::register_backend, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::register_kernel, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::has_kernel, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::register_demo_backends, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::operator_names, m)?)?;
    m.add_function(wrap_pyfunction!(runtime::rule_names, m)?)?;
    m.add_function(wrap_pyfunction!(serialize::serialize_program, m)?)?;
    m.add_function(wrap_pyfunction!(serialize::layout_program, m)?)?;
    m.add_function(wrap_pyfunction!(serialize::strip, m)?)?;
    m.add_function(wrap_pyfunction!(data_file::layout_data_file, m)?)?;
    m.add_function(wrap_pyfunction!(data_file::data_listing, m)?)?;
    m.add_function(wrap_pyfunction!(bundle::serialize_bundle, m)?)?;
    m.add_function(wrap_pyfunction!(serialize::listing, m)?)?;
    m.add_function(wrap_pyfunction!(kernel_check::check_call, m)?)?;
    m.add_function(wrap_pyfunction!(kernel_check::check_program, m)?)?;
    m.add_function(wrap_pyfunction!(pack::pack_weights, m)?)?;
    Ok(())
}
