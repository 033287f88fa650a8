//! Calls of Python code that others wrote, from threads that the end of the interpreter may meet there. Unsafe island.
//!
//! Before Python 3.14 a thread other than the main one that takes the interpreter's lock back while the interpreter
//! shuts down is ended by `pthread_exit`, which unwinds its stack: through the delegate's Python frames into ours,
//! where a `catch_unwind` would end the process. The calls of this module stop such unwinding where it enters Rust,
//! by sleeping for ever, which is what Python 3.14 does with these threads itself. PyO3 does the same where it takes
//! the lock.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::hint::black_box;

/// Functions of the interpreter as ones that may unwind. Called through pointers that the compiler cannot see through:
/// PyO3 declares them as ones that never do, and a call that is known to be one of those has no way to stop unwinding.
type Call = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
type GetAttribute = unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Dropped only by unwinding that is no panic of ours: keeps its thread for ever.
struct Hang;

impl Drop for Hang {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Runs `work`, which calls nothing that panics; does not return when its thread is to end.
#[inline]
fn unless_ending<T>(work: impl FnOnce() -> T) -> T {
    let hang = Hang;
    let result = work();
    std::mem::forget(hang);
    result
}

/// `callable(*arguments)`.
pub fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    call_with(callable, arguments, None)
}

/// `callable(*arguments, **keywords)`.
pub fn call_with<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the types differ in whether the callee may unwind only, and one that may not is called the same way.
    let function: Call = unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(
                *mut ffi::PyObject,
                *mut ffi::PyObject,
                *mut ffi::PyObject,
            ) -> *mut ffi::PyObject,
            Call,
        >(ffi::PyObject_Call)
    };
    let keywords = keywords.map_or(std::ptr::null_mut(), |k| k.as_ptr());
    // SAFETY: live objects, a tuple for arguments, a dict or null for keywords, and this thread is attached.
    let result =
        unless_ending(|| unsafe { black_box(function)(callable.as_ptr(), arguments.as_ptr(), keywords) });
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// `object.name`, which may be a property.
pub fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `PyObject_GetAttr` has this signature but for the unwinding, which the type allows; both are C functions.
    let function: GetAttribute = unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject,
            GetAttribute,
        >(ffi::PyObject_GetAttr)
    };
    let name = PyString::intern(object.py(), name);
    // SAFETY: live objects, the second one a string, and this thread is attached.
    let result = unless_ending(|| unsafe { black_box(function)(object.as_ptr(), name.as_ptr()) });
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), result) }
}

/// `object.name(*arguments)`.
pub fn method<'py, A>(object: &Bound<'py, PyAny>, name: &str, arguments: A) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>>,
    A::Error: Into<PyErr>,
{
    let arguments = arguments.into_pyobject(object.py()).map_err(Into::into)?;
    call(&attribute(object, name)?, &arguments)
}
