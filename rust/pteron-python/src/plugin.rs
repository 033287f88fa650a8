//! Backends and kernels that another package compiled, in a capsule. Unsafe island (the capsule's pointer).

use crate::errors::OrRaise;
use crate::parameter;
use pteron_plugin::{PluginBackend, PluginKernel, abi};
use pyo3::ffi;
use pyo3::prelude::*;

/// The backend in `object`, if it is a capsule of the plugin interface; an error when its name is not `name`.
pub fn backend_in(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<PluginBackend>> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), abi::CAPSULE.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: a valid capsule of this name; whoever made it vouches for a table that stays until the process
    // ends (the contract of `pteron_backend.h`).
    let backend = unsafe {
        let table = ffi::PyCapsule_GetPointer(object.as_ptr(), abi::CAPSULE.as_ptr());
        PluginBackend::from_table(table.cast_const().cast())
    };
    let backend = backend.or_raise(object.py())?;
    match pteron_core::Backend::name(&backend) == name {
        true => Ok(Some(backend)),
        false => Err(parameter::other_name(object.py(), pteron_core::Backend::name(&backend), name)),
    }
}

/// The kernel in `object`, if it is a capsule of the plugin interface; an error when its operator is not `name`.
pub fn kernel_in(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<PluginKernel>> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), abi::KERNEL_CAPSULE.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: a valid capsule of this name; whoever made it vouches for a table that stays until the process
    // ends (the contract of `pteron_backend.h`).
    let kernel = unsafe {
        let table = ffi::PyCapsule_GetPointer(object.as_ptr(), abi::KERNEL_CAPSULE.as_ptr());
        PluginKernel::from_table(table.cast_const().cast())
    };
    let kernel = kernel.or_raise(object.py())?;
    match kernel.name() == name {
        true => Ok(Some(kernel)),
        false => Err(parameter::other_name(object.py(), kernel.name(), name)),
    }
}
