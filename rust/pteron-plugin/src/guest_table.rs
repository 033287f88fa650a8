//! The plugin's side: a [`Backend`] of this process behind a table of functions.

use crate::abi::{ABI_MAJOR, PteronBackend};
use crate::{guest, guest_state};
use pteron_core::{Backend, Error, Result};
use std::ffi::CString;

/// A table for `backend`, to be handed to a host. It and the backend stay until the process ends.
///
/// Errors: a name with a null byte.
pub fn table(backend: Box<dyn Backend>) -> Result<*const PteronBackend> {
    let name = CString::new(backend.name()).map_err(|_| {
        Error::input("the name of a backend has a null byte").got(backend.name().escape_debug().to_string())
    })?;
    Ok(Box::leak(Box::new(PteronBackend {
        abi_major: ABI_MAJOR,
        struct_size: std::mem::size_of::<PteronBackend>() as u32,
        name: name.into_raw().cast_const(),
        plugin: Box::into_raw(Box::new(backend)).cast(),
        is_available: Some(guest::is_available),
        init: Some(guest::init),
        execute: Some(guest::execute),
        destroy: Some(guest::destroy),
        has_state: Some(guest_state::has_state),
        get_state: Some(guest_state::get_state),
        set_state: Some(guest_state::set_state),
        reset_state: Some(guest_state::reset_state),
    })))
}
