//! DLPack's table of C functions that a tensor type may offer (dlpack.h 1.2, `__dlpack_c_exchange_api__`): a
//! tensor is read or made in one call, where the Python protocol takes eight. Unsafe island.

use crate::dlpack::{self, DLManagedTensorVersioned, DLTensor, ImportedView};
use crate::tensor::Tensor;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

const NAME: &CStr = c"dlpack_exchange_api";
/// The major version whose table this is.
const MAJOR: u32 = 1;

#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    older: *const c_void,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    object_from_managed:
        Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut ffi::PyObject) -> c_int>,
    tensor_from_object: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DLTensor) -> c_int>,
    current_stream: *const c_void,
}

/// The table of one tensor type.
#[derive(Clone, Copy)]
pub struct Exchange(&'static Table);

// SAFETY: DLPack asks that the table is there, unchanged, until the process ends.
unsafe impl Send for Exchange {}
// SAFETY: the table's functions may be called from any thread that holds the interpreter, says DLPack.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// The table that `tensor_type` offers, if it is one of the known version.
    pub fn of(tensor_type: &Bound<'_, PyAny>) -> Option<Exchange> {
        let capsule = tensor_type.getattr("__dlpack_c_exchange_api__").ok()?;
        // SAFETY: PyCapsule_IsValid accepts any object; a capsule of this name holds a table, whose first field
        // is the version in every version, and which lives as long as the process.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
                return None;
            }
            let table = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<Table>();
            ((*table).major == MAJOR).then(|| Exchange(&*table))
        }
    }

    /// What `object`, exactly of the table's type, is in memory. `None` where it cannot be told this way: the
    /// slower way then says why.
    pub fn view(self, object: &Bound<'_, PyAny>) -> Option<ImportedView> {
        let read = self.0.tensor_from_object?;
        let mut tensor = MaybeUninit::<DLTensor>::uninit();
        // SAFETY: an object of the table's type, by the caller's word; the function fills the struct or fails with
        // an exception. What it points to is valid until control goes back to Python, and copied before.
        unsafe {
            if read(object.as_ptr(), tensor.as_mut_ptr()) != 0 {
                drop(PyErr::take(object.py()));
                return None;
            }
            dlpack::view(tensor.assume_init_ref()).ok()
        }
    }

    /// A tensor of the table's type over `tensor`'s memory, which it keeps.
    pub fn object_of<'py>(self, py: Python<'py>, tensor: &Tensor) -> Option<PyResult<Bound<'py, PyAny>>> {
        let make = self.0.object_from_managed?;
        let managed = match dlpack::managed(tensor, true, false) {
            Ok(managed) => managed,
            Err(error) => return Some(Err(error)),
        };
        let mut object = std::ptr::null_mut();
        // SAFETY: the function takes the export over, whatever comes of it, and gives a new reference or fails with
        // an exception.
        unsafe {
            match make(managed, &mut object) {
                0 => Some(Bound::from_owned_ptr_or_err(py, object)),
                _ => Some(Err(PyErr::fetch(py))),
            }
        }
    }
}
