//! What a session keeps between calls. Unsafe island (exported functions).

use crate::abi::{GiveBuffer, OK, Opaque, PteronBytes, PteronTensor};
use crate::arguments;
use crate::failure::misuse;
use crate::guard;
use crate::handles;
use crate::reading;
use crate::results::HeldTensor;
use crate::session::Session;
use pteron_core::Error;
use pteron_runtime::InputValue;
use std::ffi::{c_char, c_void};

/// Does a call leave something for the next?
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_is_stateful(method: *mut Opaque, is_stateful: *mut i32) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        // SAFETY: null, or room for a number by the header.
        unsafe { reading::out(is_stateful, "is_stateful")? }.set(i32::from(session.method.is_stateful()));
        Ok(())
    })
}

/// Gives every mutable buffer.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_get_state(
    method: *mut Opaque,
    give: Option<GiveBuffer>,
    host: *mut c_void,
) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        let give =
            give.ok_or_else(|| misuse("give", "the argument is NULL").hint("give takes each buffer"))?;
        // `give` finds the method busy, whatever it asks of it.
        let _session = session.enter()?;
        for (name, tensor) in session.method.get_state()? {
            let tensor = HeldTensor::owned(tensor);
            let text = PteronBytes { data: name.as_ptr(), len: name.len() };
            // SAFETY: the caller's function and data by the header; name and tensor live until it returns.
            if unsafe { give(host, text, &tensor.as_c()) } != OK {
                return Err(Error::cancelled("give has ended the copy of the state").argument(name).into());
            }
        }
        Ok(())
    })
}

/// Sets mutable buffers by name.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_set_state(
    method: *mut Opaque,
    names: *const *const c_char,
    tensors: *const PteronTensor,
    count: usize,
) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        let mut results = session.enter()?;
        let ending = results.take();
        // SAFETY: null, or that many pointers by the header.
        let names = unsafe { reading::slice(names, count, "names")? };
        // SAFETY: null, or that many tensors by the header.
        let tensors = unsafe { reading::slice(tensors, count, "tensors")? };
        // SAFETY: what they point to is as the header says, and stays so during the call.
        let values = unsafe { arguments::state(tensors, ending.as_ref())? };
        drop(ending);
        let mut state: Vec<(&str, InputValue<'_>)> = Vec::with_capacity(values.len());
        for (i, (name, value)) in names.iter().zip(&values).enumerate() {
            // SAFETY: null, or a string by the header.
            let name = unsafe { reading::text(*name, &format!("names[{i}]"))? };
            state.push((name, arguments::value_of(value)));
        }
        session.method.set_state(&state)?;
        Ok(())
    })
}

/// Puts every buffer back.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_method_reset_state(method: *mut Opaque) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        // Outputs may lie in buffers.
        *session.enter()? = None;
        session.method.reset_state()?;
        Ok(())
    })
}

/// Writes every buffer to a file.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_save_state(method: *mut Opaque, path: *const c_char) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        // SAFETY: null, or a string by the header.
        let path = unsafe { reading::path(path, "path")? };
        let _session = session.enter()?;
        session.method.save_state(&path)?;
        Ok(())
    })
}

/// Sets every buffer from a file.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_method_load_state(method: *mut Opaque, path: *const c_char) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        // SAFETY: null, or a string by the header.
        let path = unsafe { reading::path(path, "path")? };
        // Outputs may lie in buffers.
        *session.enter()? = None;
        session.method.load_state(&path)?;
        Ok(())
    })
}

/// Starts the random stream of a seed.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_method_seed(method: *mut Opaque, seed: u64) -> i32 {
    guard::call(|| {
        let session = handles::get::<Session>(method)?;
        let _session = session.enter()?;
        session.method.seed(seed)?;
        Ok(())
    })
}
