//! Runtimes: kernels, backends, threads. Unsafe island (exported functions).

use crate::abi::{Opaque, PteronBackend, PteronKernel, PteronRuntimeOptions};
use crate::failure::Outcome;
use crate::guard;
use crate::handles;
use crate::limits::set;
use crate::reading;
use pteron_core::Availability;
use pteron_plugin::{PluginBackend, PluginKernel};
use pteron_runtime::{Runtime, RuntimeOptions};
use std::ffi::c_char;
use std::sync::Arc;

/// The runtime of a handle; that of the process for null.
pub(crate) fn or_shared(runtime: *mut Opaque) -> Outcome<Arc<Runtime>> {
    match runtime.is_null() {
        true => Ok(Runtime::shared()?),
        false => handles::get(runtime),
    }
}

/// Makes a runtime.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_runtime_new(
    options: *const PteronRuntimeOptions,
    runtime: *mut *mut Opaque,
) -> i32 {
    guard::call(|| {
        // SAFETY: null, or room for a handle by the header.
        let runtime = unsafe { reading::handle_out(runtime, "runtime")? };
        // SAFETY: null, or options by the header.
        let options = unsafe { reading::optional(options, "options")? };
        let options = RuntimeOptions { threads: set(options.num_threads), ..Default::default() };
        runtime.set(handles::insert(Runtime::new(options)?));
        Ok(())
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_runtime_free(runtime: *mut Opaque) -> i32 {
    guard::call(|| handles::remove::<Runtime>(runtime))
}

/// Makes a backend known.
///
/// # Safety
/// Pointers are null or as `pteron.h` says; the table keeps the contract of `pteron_backend.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_runtime_register_backend(
    runtime: *mut Opaque,
    backend: *const PteronBackend,
    replace: i32,
) -> i32 {
    guard::call(|| {
        let runtime = or_shared(runtime)?;
        // SAFETY: null, or a table of `pteron_backend.h` whose name and code stay until the process ends, by the header.
        let backend = unsafe { PluginBackend::from_table(backend)? };
        runtime.register_backend(Arc::new(backend), replace != 0)?;
        Ok(())
    })
}

/// Makes the kernel of a custom operator known.
///
/// # Safety
/// Pointers are null or as `pteron.h` says; the table keeps the contract of `pteron_backend.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_runtime_register_kernel(
    runtime: *mut Opaque,
    kernel: *const PteronKernel,
    replace: i32,
) -> i32 {
    guard::call(|| {
        let runtime = or_shared(runtime)?;
        // SAFETY: null, or a table of `pteron_backend.h` that stays until the process ends, by the header.
        let kernel = unsafe { PluginKernel::from_table(kernel)? };
        let name = kernel.name().to_string();
        runtime.register_function(&name, Arc::new(kernel), replace != 0)?;
        Ok(())
    })
}

/// Can a backend be used?
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_runtime_has_backend(
    runtime: *mut Opaque,
    backend: *const c_char,
    is_available: *mut i32,
) -> i32 {
    guard::call(|| {
        let runtime = or_shared(runtime)?;
        // SAFETY: null, or room for a number by the header.
        let is_available = unsafe { reading::out(is_available, "is_available")? };
        // SAFETY: null, or a string by the header.
        let name = unsafe { reading::text(backend, "backend")? };
        is_available.set(i32::from(runtime.backend_availability(name) == Some(Availability::Available)));
        Ok(())
    })
}
