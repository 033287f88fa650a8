//! DLPack, versioned (1.x) and legacy, both directions. Unsafe island. Layouts: dlpack.h 1.1.

use crate::dtype::{self, DLDataType};
use crate::python_call;
use crate::tensor_memory::TensorMemory;
use pteron_core::MAX_RANK;
use pteron_runtime::Memory;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Device type and index of host memory.
pub const CPU: (i32, i32) = (1, 0);
/// Device types whose memory the host can read: CPU, page-locked for CUDA, page-locked for ROCm.
const HOST_READABLE: [i32; 3] = [1, 3, 11];

const LEGACY: &CStr = c"dltensor";
const USED_LEGACY: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

const FLAG_READ_ONLY: u64 = 1;
const FLAG_IS_COPIED: u64 = 2;

/// A strided tensor of somebody else.
#[repr(C)]
pub struct DLTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    dl_tensor: DLTensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor with what ends its life, since DLPack 1.0.
#[repr(C)]
pub struct DLManagedTensorVersioned {
    major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    flags: u64,
    dl_tensor: DLTensor,
}

/// What one exported capsule owns. `M` is the managed struct that the consumer sees.
struct Export<M> {
    managed: Option<M>,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    memory: Arc<Memory>,
}

impl<M> Drop for Export<M> {
    fn drop(&mut self) {
        // SAFETY: the export that `described` counted, ended once.
        unsafe { self.memory.release() };
    }
}

/// # Safety
/// `managed` is what an export made, and is not used afterwards.
unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: called once, by the consumer or the capsule, with what `export` made.
    unsafe { drop(Box::from_raw((*managed).manager_ctx.cast::<Export<DLManagedTensor>>())) }
}

/// # Safety
/// `managed` is what an export made, and is not used afterwards.
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: called once, by the consumer or the capsule, with what `export` made for this kind of capsule.
    unsafe { drop(Box::from_raw((*managed).manager_ctx.cast::<Export<DLManagedTensorVersioned>>())) }
}

/// A capsule that nobody consumed gives the export back; a consumed one has another name.
///
/// # Safety
/// `capsule` is a capsule that an export made; the interpreter is attached.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: CPython passes the capsule being destroyed; the name says which struct it holds.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) != 0 {
            delete_legacy(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast());
        }
    }
}

/// A capsule over `tensor`'s memory.
pub fn export<'py>(
    py: Python<'py>,
    tensor: &TensorMemory,
    is_writable: bool,
    is_versioned: bool,
    is_copied: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if !is_writable && !is_versioned {
        return Err(PyBufferError::new_err(
            "read-only memory cannot be exported as a legacy DLPack capsule; ask for max_version=(1, 0), or copy",
        ));
    }
    let (pointer, name) = match is_versioned {
        true => (managed(tensor, is_writable, is_copied)?.cast(), VERSIONED),
        false => (managed_legacy(tensor)?, LEGACY),
    };
    // SAFETY: `pointer` stays valid until a deleter runs; the name is static. A null result is an error
    // that CPython has set (the export is then leaked, which is safe).
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(drop_capsule)))
    }
}

/// An export of `tensor`'s memory, which its deleter ends: the consumer's to call.
pub fn managed(
    tensor: &TensorMemory,
    is_writable: bool,
    is_copied: bool,
) -> PyResult<*mut DLManagedTensorVersioned> {
    let flags = u64::from(!is_writable) * FLAG_READ_ONLY + u64::from(is_copied) * FLAG_IS_COPIED;
    let make = |dl_tensor, manager_ctx| DLManagedTensorVersioned {
        major: 1,
        minor: 1,
        manager_ctx,
        deleter: Some(delete_versioned),
        flags,
        dl_tensor,
    };
    described(tensor, make).map(<*mut c_void>::cast)
}

fn managed_legacy(tensor: &TensorMemory) -> PyResult<*mut c_void> {
    described(tensor, |dl_tensor, manager_ctx| DLManagedTensor {
        dl_tensor,
        manager_ctx,
        deleter: Some(delete_legacy),
    })
}

/// Counts an export and puts its description on the heap; gives the address of the managed struct.
fn described<M>(
    tensor: &TensorMemory,
    make: impl FnOnce(DLTensor, *mut c_void) -> M,
) -> PyResult<*mut c_void> {
    let (memory, data, meta) = tensor.export(|memory, data, meta| (memory.clone(), data, meta.clone()))?;
    let Some(dtype) = dtype::to_dlpack(meta.dtype()) else {
        // SAFETY: the export above, which nobody uses.
        unsafe { memory.release() };
        return Err(PyBufferError::new_err(format!("DLPack has no type for {}", meta.dtype())));
    };
    let mut shape = [0i64; MAX_RANK];
    let mut strides = [0i64; MAX_RANK];
    for (to, &from) in shape.iter_mut().zip(meta.shape().iter()) {
        *to = from as i64;
    }
    for (to, &from) in strides.iter_mut().zip(meta.strides().iter()) {
        *to = from as i64;
    }
    Ok(leak(Export { managed: None, shape, strides, memory }, |context, shape, strides| {
        let dl_tensor = DLTensor {
            data: data.cast(),
            device_type: CPU.0,
            device_id: CPU.1,
            ndim: meta.rank() as i32,
            dtype,
            shape,
            strides,
            byte_offset: 0,
        };
        make(dl_tensor, context)
    }))
}

/// Puts the export on the heap, lets `make` describe it by its final addresses, and gives the address
/// of the managed struct.
fn leak<M>(export: Export<M>, make: impl FnOnce(*mut c_void, *mut i64, *mut i64) -> M) -> *mut c_void {
    let raw = Box::into_raw(Box::new(export));
    // SAFETY: `raw` was just allocated and is reached through raw pointers only from here on.
    unsafe {
        let managed = make(raw.cast(), (&raw mut (*raw).shape).cast(), (&raw mut (*raw).strides).cast());
        let managed: *mut M = (*raw).managed.insert(managed);
        managed.cast()
    }
}

/// A tensor that another library exported; its deleter runs on drop.
pub struct Imported {
    managed: Managed,
}

enum Managed {
    Legacy(*mut DLManagedTensor),
    Versioned(*mut DLManagedTensorVersioned),
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the capsule was consumed, so the deleter is ours to call, once.
        unsafe {
            match self.managed {
                Managed::Legacy(m) => {
                    if let Some(delete) = (*m).deleter {
                        delete(m);
                    }
                }
                Managed::Versioned(m) => {
                    if let Some(delete) = (*m).deleter {
                        delete(m);
                    }
                }
            }
        }
    }
}

/// Why an object could not be imported.
pub enum ImportError {
    /// It lies on a device that the host cannot read.
    Device(i32),
    /// Its element type is not one of ours (type code, bits, lanes).
    DType(DLDataType),
    /// Its rank or extents make no sense.
    Shape,
    /// The exporter raised.
    Python(PyErr),
}

impl From<PyErr> for ImportError {
    fn from(error: PyErr) -> Self {
        ImportError::Python(error)
    }
}

/// What a consumer needs of an imported tensor. `strides` are in elements.
pub struct ImportedView {
    /// Element type.
    pub dtype: pteron_core::DType,
    /// Rank.
    pub rank: usize,
    /// Extents.
    pub shape: [usize; MAX_RANK],
    /// Strides in elements; `None` for dense row-major.
    pub strides: Option<[isize; MAX_RANK]>,
    /// First element.
    pub data: *const u8,
}

/// Imports what `object.__dlpack__` gives, without a copy.
pub fn import(object: &Bound<'_, PyAny>) -> Result<(Imported, ImportedView), ImportError> {
    let py = object.py();
    let (device, _): (i32, i32) =
        python_call::method(object, "__dlpack_device__", ())?.extract().map_err(ImportError::Python)?;
    if !HOST_READABLE.contains(&device) {
        return Err(ImportError::Device(device));
    }
    let kwargs = pyo3::types::PyDict::new(py);
    kwargs.set_item(pyo3::intern!(py, "max_version"), (1u32, 1u32))?;
    let method = object.getattr(pyo3::intern!(py, "__dlpack__"))?;
    let none = PyTuple::empty(py);
    let capsule = match python_call::call_with(&method, &none, Some(&kwargs)) {
        // Exporters older than DLPack 1.0 do not know the keyword.
        Err(e) if e.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => python_call::call(&method, &none)?,
        other => other?,
    };
    let imported = consume(&capsule)?;
    let view = read(&imported)?;
    Ok((imported, view))
}

fn consume(capsule: &Bound<'_, PyAny>) -> Result<Imported, ImportError> {
    let raw = capsule.as_ptr();
    // SAFETY: PyCapsule_IsValid accepts any object; a capsule of a DLPack name holds the struct that the
    // name promises; renaming it makes the deleter ours.
    unsafe {
        if ffi::PyCapsule_IsValid(raw, VERSIONED.as_ptr()) != 0 {
            let managed: *mut DLManagedTensorVersioned =
                ffi::PyCapsule_GetPointer(raw, VERSIONED.as_ptr()).cast();
            ffi::PyCapsule_SetName(raw, USED_VERSIONED.as_ptr());
            let imported = Imported { managed: Managed::Versioned(managed) };
            if (*managed).major != 1 {
                return Err(
                    PyBufferError::new_err("a DLPack capsule has a major version other than 1").into()
                );
            }
            Ok(imported)
        } else if ffi::PyCapsule_IsValid(raw, LEGACY.as_ptr()) != 0 {
            let managed: *mut DLManagedTensor = ffi::PyCapsule_GetPointer(raw, LEGACY.as_ptr()).cast();
            ffi::PyCapsule_SetName(raw, USED_LEGACY.as_ptr());
            Ok(Imported { managed: Managed::Legacy(managed) })
        } else {
            Err(PyBufferError::new_err("__dlpack__ gave something that is not a DLPack capsule").into())
        }
    }
}

fn read(imported: &Imported) -> Result<ImportedView, ImportError> {
    // SAFETY: the managed struct is valid until the deleter runs, in `Imported::drop`; DLPack promises
    // `ndim` extents, and as many strides when there are any.
    unsafe {
        let t = match imported.managed {
            Managed::Legacy(m) => &(*m).dl_tensor,
            Managed::Versioned(m) => &(*m).dl_tensor,
        };
        view(t)
    }
}

/// What `tensor` says of itself.
///
/// # Safety
/// It has `ndim` extents, and as many strides when there are any: DLPack's promise of a filled struct.
pub unsafe fn view(t: &DLTensor) -> Result<ImportedView, ImportError> {
    if !HOST_READABLE.contains(&t.device_type) {
        return Err(ImportError::Device(t.device_type));
    }
    let dtype = dtype::from_dlpack(t.dtype).ok_or(ImportError::DType(t.dtype))?;
    let rank = usize::try_from(t.ndim).ok().filter(|&r| r <= MAX_RANK).ok_or(ImportError::Shape)?;
    let mut shape = [0usize; MAX_RANK];
    let mut strides = [0isize; MAX_RANK];
    for i in 0..rank {
        // SAFETY: `i` is below `ndim`; the caller promises a tensor as DLPack has it: `ndim` extents, and
        // strides or null.
        unsafe {
            shape[i] = usize::try_from(*t.shape.add(i)).map_err(|_| ImportError::Shape)?;
            if !t.strides.is_null() {
                strides[i] = *t.strides.add(i) as isize;
            }
        }
    }
    Ok(ImportedView {
        dtype,
        rank,
        shape,
        strides: (!t.strides.is_null()).then_some(strides),
        data: t.data.cast::<u8>().wrapping_add(t.byte_offset as usize),
    })
}
