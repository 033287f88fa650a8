//! NumPy's C interface, as far as arrays over memory of ours need it: through Python, making one takes four
//! times as long as adding six numbers. Unsafe island (a table of C functions that NumPy publishes in a
//! capsule; the positions are part of NumPy's binary interface: NumPy reference, "Array API").

use pteron_core::TensorMeta;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;
use std::ffi::{c_int, c_uint, c_void};

/// Positions in the table.
const GET_C_VERSION: usize = 0;
const NEW_FROM_DESCR: usize = 94;
const SET_BASE_OBJECT: usize = 282;
/// `NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED`; NumPy finds out itself whether strides are contiguous.
const WRITABLE: c_int = 0x0400 | 0x0100;
/// Major versions of the binary interface in which the positions above are known: those of NumPy 1 and 2.
const KNOWN_VERSIONS: [c_uint; 2] = [1, 2];

type NewFromDescr = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    *mut ffi::PyObject,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
type SetBaseObject = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

/// The functions of the NumPy that is loaded.
#[derive(Clone, Copy)]
struct Functions {
    new_from_descr: NewFromDescr,
    set_base_object: SetBaseObject,
}

/// The table, or `None` for a NumPy whose binary interface is not known here.
fn functions(py: Python<'_>) -> Option<Functions> {
    static FOUND: PyOnceLock<Option<Functions>> = PyOnceLock::new();
    *FOUND.get_or_init(py, || find(py))
}

fn find(py: Python<'_>) -> Option<Functions> {
    let module = py.import("numpy._core.multiarray").or_else(|_| py.import("numpy.core.multiarray")).ok()?;
    let capsule = module.getattr("_ARRAY_API").ok()?;
    // SAFETY: any object may be asked; null and an exception for what is no capsule without a name.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
    if table.is_null() {
        drop(PyErr::take(py));
        return None;
    }
    let table = table.cast::<*const c_void>();
    // SAFETY: position 0 of every version of the table is the function that gives its version.
    let version = unsafe {
        let get: unsafe extern "C" fn() -> c_uint = std::mem::transmute(*table.add(GET_C_VERSION));
        get() >> 24
    };
    if !KNOWN_VERSIONS.contains(&version) {
        return None;
    }
    // SAFETY: in these versions the positions hold functions of these types.
    unsafe {
        Some(Functions {
            new_from_descr: std::mem::transmute::<*const c_void, NewFromDescr>(*table.add(NEW_FROM_DESCR)),
            set_base_object: std::mem::transmute::<*const c_void, SetBaseObject>(*table.add(SET_BASE_OBJECT)),
        })
    }
}

/// A writable array at `data`, kept alive by `owner`; `None` where NumPy's interface is not known.
///
/// # Safety
/// `data` must be valid for reads and writes of a tensor of `meta`, aligned for its dtype, for as long as `owner`
/// lives; `dtype` must be the dtype object of `meta`'s element type, `ndarray` NumPy's array type.
pub unsafe fn array_at<'py>(
    ndarray: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    meta: &TensorMeta,
    data: *mut u8,
    owner: &Bound<'py, PyAny>,
) -> Option<PyResult<Bound<'py, PyAny>>> {
    let py = ndarray.py();
    let functions = functions(py)?;
    let shape: SmallVec<[isize; 8]> = meta.shape().iter().map(|n| *n as isize).collect();
    let itemsize = meta.dtype().size() as isize;
    let strides: SmallVec<[isize; 8]> =
        meta.strides().iter().map(|s| (*s as isize).wrapping_mul(itemsize)).collect();
    // Which strides an empty array has is NumPy's to say.
    let strides_or_null = if meta.numel() == 0 { std::ptr::null() } else { strides.as_ptr() };
    // SAFETY: the types and the memory are as the caller promises; the reference to the dtype that the function
    // takes is a fresh one; shape and strides have `rank` entries and are copied.
    let array = unsafe {
        let array = (functions.new_from_descr)(
            ndarray.as_ptr().cast(),
            dtype.clone().into_ptr(),
            meta.rank() as c_int,
            shape.as_ptr(),
            strides_or_null,
            data.cast(),
            WRITABLE,
            std::ptr::null_mut(),
        );
        match Bound::from_owned_ptr_or_err(py, array) {
            Ok(array) => array,
            Err(error) => return Some(Err(error)),
        }
    };
    // SAFETY: a fresh array, and a fresh reference to its owner, which the function takes even if it fails.
    let status = unsafe { (functions.set_base_object)(array.as_ptr(), owner.clone().into_ptr()) };
    Some(if status == 0 { Ok(array) } else { Err(PyErr::fetch(py)) })
}
