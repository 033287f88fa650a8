//! What a program says of itself. Unsafe island (exported functions).

use crate::abi::{
    BUFFERS, INPUTS, LIST_BACKENDS, LIST_METHODS, LIST_NAMED_DATA, LIST_OPERATORS, OUTPUTS, Opaque,
    PteronBytes, PteronSpec,
};
use crate::failure::{Outcome, misuse};
use crate::guard;
use crate::handles;
use crate::loaded_program::{LoadedProgram, item};
use crate::reading;
use crate::specs::Spec;
use pteron_core::Error;
use pteron_core::error::printable;
use std::ffi::{CString, c_char};

/// # Safety
/// `method` is null or a string.
unsafe fn names(program: &LoadedProgram, list: i32, method: *const c_char) -> Outcome<&[CString]> {
    // SAFETY: null, or a string, by the contract of this function.
    let texts = || program.texts(unsafe { reading::text(method, "method")? });
    match list {
        LIST_METHODS => Ok(&program.methods),
        LIST_NAMED_DATA => Ok(&program.named_data),
        LIST_BACKENDS => Ok(&texts()?.backends),
        LIST_OPERATORS => Ok(&texts()?.operators),
        other => Err(misuse("list", "there is no such list")
            .instead("one of the PTERON_LIST_ constants", other.to_string())),
    }
}

/// # Safety
/// `method` is null or a string.
unsafe fn specs(program: &LoadedProgram, method: *const c_char, which: i32) -> Outcome<&[Spec]> {
    // SAFETY: null, or a string, by the contract of this function.
    let texts = program.texts(unsafe { reading::text(method, "method")? })?;
    match which {
        INPUTS => Ok(&texts.inputs),
        OUTPUTS => Ok(&texts.outputs),
        BUFFERS => Ok(&texts.buffers),
        other => Err(misuse("which", "there are no such specs")
            .instead("PTERON_INPUTS, PTERON_OUTPUTS or PTERON_BUFFERS", other.to_string())),
    }
}

/// How many names a list has.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_name_count(
    program: *mut Opaque,
    list: i32,
    method: *const c_char,
    count: *mut usize,
) -> i32 {
    guard::call(|| {
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or room for a number by the header.
        let count = unsafe { reading::out(count, "count")? };
        // SAFETY: null, or a string by the header.
        count.set(unsafe { names(&program, list, method)? }.len());
        Ok(())
    })
}

/// A name of a list.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_name(
    program: *mut Opaque,
    list: i32,
    method: *const c_char,
    index: usize,
    name: *mut *const c_char,
) -> i32 {
    guard::call(|| {
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or room for a pointer by the header.
        let name = unsafe { reading::out(name, "name")? };
        // SAFETY: null, or a string by the header.
        let names = unsafe { names(&program, list, method)? };
        name.set(item(names, index, "names")?.as_ptr());
        Ok(())
    })
}

/// How many inputs, outputs or buffers a method has.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_spec_count(
    program: *mut Opaque,
    method: *const c_char,
    which: i32,
    count: *mut usize,
) -> i32 {
    guard::call(|| {
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or room for a number by the header.
        let count = unsafe { reading::out(count, "count")? };
        // SAFETY: null, or a string by the header.
        count.set(unsafe { specs(&program, method, which)? }.len());
        Ok(())
    })
}

/// One of them.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_spec(
    program: *mut Opaque,
    method: *const c_char,
    which: i32,
    index: usize,
    spec: *mut PteronSpec,
) -> i32 {
    guard::call(|| {
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or a string by the header.
        let specs = unsafe { specs(&program, method, which)? };
        let found = item(specs, index, "specs")?.as_c();
        // SAFETY: null, or a struct that states its size, by the header.
        unsafe { reading::fill(spec, &found, "spec") }
    })
}

/// A blob of the program.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_named_data(
    program: *mut Opaque,
    key: *const c_char,
    data: *mut PteronBytes,
) -> i32 {
    guard::call(|| {
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or room for a struct by the header.
        let data = unsafe { reading::out(data, "data")? };
        // SAFETY: null, or a string by the header.
        let key = unsafe { reading::text(key, "key")? };
        let found = program.program.named_data(key).ok_or_else(|| {
            Error::input("the program has no data of this name")
                .argument("key")
                .got(printable(key))
                .hint("pteron_program_name with PTERON_LIST_NAMED_DATA lists the names")
        })?;
        data.set(PteronBytes { data: found.as_ptr(), len: found.len() });
        Ok(())
    })
}

/// Bytes of planned memory of a session.
///
/// # Safety
/// Pointers are null or as `pteron.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_program_arena_bytes(
    program: *mut Opaque,
    method: *const c_char,
    nbytes: *mut usize,
) -> i32 {
    guard::call(|| {
        let program = handles::get::<LoadedProgram>(program)?;
        // SAFETY: null, or room for a number by the header.
        let nbytes = unsafe { reading::out(nbytes, "nbytes")? };
        // SAFETY: null, or a string by the header.
        let method = unsafe { reading::text(method, "method")? };
        nbytes.set(program.program.arena_bytes(method)?);
        Ok(())
    })
}
