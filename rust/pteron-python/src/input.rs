//! From Python objects to the values of a call. Unsafe island (memory of buffers and tensors).

use crate::dlpack::{self, ImportError, Imported, ImportedView};
use crate::dtype;
use crate::errors::type_name;
use crate::numpy;
use crate::torch::Torch;
use pteron_core::dim_order::is_dense;
use pteron_core::{AlignedBuffer, DType, Error, MAX_RANK, Result};
use pteron_runtime::{InputValue, IoKind, IoSpec, OutputBuffer, TensorInput};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyOverflowError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use smallvec::SmallVec;
use std::ffi::{CStr, c_int};

/// Rank up to which extents are held inline.
const INLINE_RANK: usize = 6;

/// The arguments of one call.
pub type Arguments = SmallVec<[Argument; 4]>;

/// One argument of a call; keeps what it points to alive.
pub enum Argument {
    /// A tensor.
    Tensor(Strided),
    /// An integer.
    Int(i64),
    /// A float.
    Double(f64),
    /// A bool.
    Bool(bool),
    /// A string.
    String(String),
    /// None.
    None,
}

/// Strided memory of somebody else.
pub struct Strided {
    dtype: DType,
    shape: SmallVec<[usize; INLINE_RANK]>,
    strides: SmallVec<[isize; INLINE_RANK]>,
    is_dense: bool,
    data: *mut u8,
    is_torch: bool,
    _hold: Hold,
}

/// Which value is being read, for errors.
#[derive(Clone, Copy)]
struct InputName<'a> {
    name: &'a str,
    kind: Option<&'a IoKind>,
}

impl InputName<'_> {
    fn expected(&self) -> String {
        self.kind.map_or("a tensor".to_string(), IoKind::to_string)
    }
}

/// What keeps the memory alive and in place.
#[allow(dead_code, reason = "held for the sake of holding")]
enum Hold {
    Object(Py<PyAny>),
    Buffer(Box<BufferGuard>),
    DLPack(Imported),
    Copy(AlignedBuffer),
}

/// A buffer view that is released on drop.
struct BufferGuard(ffi::Py_buffer);

impl Drop for BufferGuard {
    fn drop(&mut self) {
        // While the interpreter shuts down the exporter is gone anyway.
        Python::try_attach(|_| {
            // SAFETY: the view was filled by PyObject_GetBuffer and is released once, attached.
            unsafe { ffi::PyBuffer_Release(&mut self.0) }
        });
    }
}

// SAFETY: the memory is only read through by the call that holds the argument; the Python references
// inside may be sent, and are dropped attached or deferred.
unsafe impl Send for Argument {}
// SAFETY: shared references only read: the memory, and Python references under the interpreter's lock.
unsafe impl Sync for Argument {}

impl Argument {
    /// Reads `object` as the input that `spec` describes.
    pub fn read(object: &Bound<'_, PyAny>, spec: &IoSpec) -> Result<Argument> {
        let place = InputName { name: &spec.name, kind: Some(&spec.kind) };
        match &spec.kind {
            IoKind::Tensor(t) => Strided::read(object, place).map(Argument::Tensor).map_err(|e| {
                e.hint(format!("numpy.asarray(value, dtype='{}') makes an array that can be read", t.dtype))
            }),
            IoKind::Int { .. } => match object.extract::<i64>() {
                Ok(v) if !object.is_instance_of::<PyBool>() => Ok(Argument::Int(v)),
                Err(e) if e.is_instance_of::<PyOverflowError>(object.py()) => Err(too_large(place, e)),
                _ => scalar(object, place),
            },
            IoKind::Double { .. } => match object.extract::<f64>() {
                Ok(v) if !object.is_instance_of::<PyBool>() => Ok(Argument::Double(v)),
                _ => scalar(object, place),
            },
            // NumPy's bool is no Python bool, but nothing else.
            IoKind::Bool { .. } => {
                object.extract().map(Argument::Bool).or_else(|_: PyErr| scalar(object, place))
            }
            IoKind::String { .. } | IoKind::None => scalar(object, place),
        }
    }

    /// Reads `object` as a tensor that no input describes: the new contents of the buffer `name`.
    pub fn read_state(object: &Bound<'_, PyAny>, name: &str) -> Result<Argument> {
        Strided::read(object, InputName { name, kind: None })
            .map(Argument::Tensor)
            .map_err(|e| e.hint("get_state() shows the arrays that fit"))
    }

    /// As the runtime takes it. The memory is valid while `self` lives.
    pub fn as_input(&self) -> InputValue<'_> {
        match self {
            // SAFETY: `_hold` keeps the memory alive, and nobody may write it during the call: that is the
            // contract that the documentation of `Method.__call__` gives to callers.
            Argument::Tensor(s) => InputValue::Tensor(unsafe {
                TensorInput::new(s.dtype, &s.shape, if s.is_dense { None } else { Some(&s.strides) }, s.data)
            }),
            Argument::Int(v) => InputValue::Int(*v),
            Argument::Double(v) => InputValue::Double(*v),
            Argument::Bool(v) => InputValue::Bool(*v),
            Argument::String(v) => InputValue::String(v),
            Argument::None => InputValue::None,
        }
    }

    /// Did a torch tensor come in?
    pub fn is_torch(&self) -> bool {
        matches!(self, Argument::Tensor(Strided { is_torch: true, .. }))
    }
}

/// A plain Python value, as it is; whether it fits is the runtime's check.
fn scalar(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Result<Argument> {
    if object.is_none() {
        return Ok(Argument::None);
    }
    if object.is_instance_of::<PyBool>() {
        return object.extract().map(Argument::Bool).map_err(|e| wrong_type(object, place).cause(e));
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract().map(Argument::Int).map_err(|e| too_large(place, e));
    }
    if object.is_instance_of::<PyFloat>() {
        return object.extract().map(Argument::Double).map_err(|e| wrong_type(object, place).cause(e));
    }
    if object.is_instance_of::<PyString>() {
        return object.extract().map(Argument::String).map_err(|e| wrong_type(object, place).cause(e));
    }
    Err(wrong_type(object, place))
}

#[cold]
fn too_large(place: InputName<'_>, error: PyErr) -> Error {
    Error::input("an integer does not fit 64 bits")
        .argument(place.name)
        .expected(place.expected())
        .got("an int beyond 64 bits")
        .cause(error)
}

#[cold]
fn wrong_type(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Error {
    let error = Error::input_type("an input has the wrong Python type")
        .argument(place.name)
        .expected(place.expected())
        .got(type_name(object));
    match place.kind {
        Some(IoKind::Tensor(t)) => error.hint(format!(
            "pass a NumPy array, a torch tensor, or anything with DLPack or the buffer protocol; \
             numpy.asarray(value, dtype='{}') makes one",
            t.dtype
        )),
        Some(_) => error.hint("pass a plain Python value of the kind that the method was exported with"),
        None => error,
    }
}

#[cold]
fn unreadable(object: &Bound<'_, PyAny>, place: InputName<'_>, why: impl Into<String>) -> Error {
    Error::input_type("an input tensor cannot be read")
        .argument(place.name)
        .expected(place.expected())
        .got(format!("{} {}", type_name(object), why.into()))
}

impl Strided {
    fn read(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Result<Strided> {
        if numpy::is_exact_array(object) {
            return Self::from_buffer(object, place, true);
        }
        if object.is_none()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyBool>()
        {
            // A number for a tensor: the runtime would say less about how to mend it.
            return Err(wrong_type(object, place));
        }
        if let Some(torch) = Torch::loaded(object.py())
            && torch.is_tensor(object)
        {
            return Self::from_torch(object, place, torch, false);
        }
        // SAFETY: any object may be asked whether it has the buffer protocol.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
            return Self::from_buffer(object, place, false);
        }
        match object.hasattr(pyo3::intern!(object.py(), "__dlpack__")) {
            Ok(true) => Self::from_dlpack(object, place),
            _ => Err(wrong_type(object, place)),
        }
    }

    /// Memory through the buffer protocol. The view of an exact ndarray is given back at once: its
    /// memory stays in place while the array is referenced, with or without a view.
    fn from_buffer(object: &Bound<'_, PyAny>, place: InputName<'_>, is_array: bool) -> Result<Strided> {
        let mut view = std::mem::MaybeUninit::<ffi::Py_buffer>::uninit();
        // SAFETY: `view` is written by a successful call, and only then read.
        let status = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_FULL_RO as c_int)
        };
        if status != 0 {
            let error = PyErr::fetch(object.py());
            return Self::from_named_array(object, place)
                .unwrap_or_else(|| Err(unreadable(object, place, "without a readable buffer").cause(error)));
        }
        // SAFETY: the call succeeded.
        let guard = BufferGuard(unsafe { view.assume_init() });
        let Some(mut strided) = describe(&guard.0, object) else {
            // SAFETY: a non-null format is a C string of the exporter that lives as long as the view.
            let format = (!guard.0.format.is_null()).then(|| unsafe { CStr::from_ptr(guard.0.format) });
            let format = format.map_or("B".into(), |f| f.to_string_lossy().into_owned());
            return Err(unreadable(object, place, format!("with elements of buffer format '{format}'"))
                .hint(
                    "convert it with numpy.asarray(value, dtype=...) to a plain dtype in native byte order",
                ));
        };
        if !is_array || !strided.is_addressable(&guard.0) {
            strided.take_buffer(guard).map_err(|e| e.argument(place.name))?;
        }
        Ok(strided)
    }

    /// Arrays of dtypes that the buffer protocol cannot name (bfloat16, float8): read as plain bytes
    /// of the same size, named by their dtype.
    fn from_named_array(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Option<Result<Strided>> {
        let (dtype, bytes) = named_bytes(object)?;
        Some(Self::from_buffer(&bytes, place, false).map(|mut strided| {
            strided.dtype = dtype;
            strided
        }))
    }

    fn from_torch(
        object: &Bound<'_, PyAny>,
        place: InputName<'_>,
        torch: &Torch,
        is_output: bool,
    ) -> Result<Strided> {
        let py = object.py();
        let failed = |e: PyErr| unreadable(object, place, "that has no memory of its own").cause(e);
        let flag = |name| object.call_method0(name).and_then(|b| b.is_truthy()).map_err(failed);
        let is_lazy = |dtype: DType| -> Result<bool> {
            Ok(flag(pyo3::intern!(py, "is_neg"))?
                || dtype.is_complex() && flag(pyo3::intern!(py, "is_conj"))?)
        };
        if let Some(view) = torch.view(object)
            && (!view.data.is_null() || view.shape.iter().take(view.rank).any(|n| *n == 0))
            && !is_lazy(view.dtype)?
        {
            return Ok(Self::from_view(view, true, Hold::Object(object.clone().unbind())));
        }
        let device = object.getattr(pyo3::intern!(py, "device")).map_err(failed)?;
        let kind = device.getattr(pyo3::intern!(py, "type")).map_err(failed)?;
        if !kind.eq(pyo3::intern!(py, "cpu")).unwrap_or(false) {
            let is_known = kind.eq(pyo3::intern!(py, "cuda")).unwrap_or(false);
            // Callers match on "is on device" and what follows it, as ExecuTorch words it.
            let why = match is_known {
                true => format!("that is on device {device}, which no backend here serves"),
                false => {
                    format!(
                        "that is on device {device}, and only CPU and CUDA tensors have a place in a program"
                    )
                }
            };
            return Err(unreadable(object, place, why).hint("move it: tensor.cpu()"));
        }
        let layout = object.getattr(pyo3::intern!(py, "layout")).map_err(failed)?;
        if !torch.is_strided(&layout) {
            return Err(unreadable(object, place, format!("of layout {layout}")).hint("tensor.to_dense()"));
        }
        let dtype = object.getattr(pyo3::intern!(py, "dtype")).map_err(failed)?;
        let dtype =
            torch.dtype(&dtype).ok_or_else(|| unreadable(object, place, format!("of dtype {dtype}")))?;
        if is_lazy(dtype)? {
            if is_output {
                return Err(
                    unwritable(object, place).hint("a lazy negation or conjugate has no memory of its own")
                );
            }
            let resolved = object.call_method0("resolve_conj").and_then(|t| t.call_method0("resolve_neg"));
            return Self::from_torch(&resolved.map_err(failed)?, place, torch, false);
        }
        let data: usize =
            object.call_method0(pyo3::intern!(py, "data_ptr")).and_then(|p| p.extract()).map_err(failed)?;
        let shape = object.getattr(pyo3::intern!(py, "shape")).map_err(failed)?;
        let strides = object.call_method0(pyo3::intern!(py, "stride")).map_err(failed)?;
        let shape: SmallVec<[usize; INLINE_RANK]> = extents(&shape).map_err(failed)?;
        let strides: SmallVec<[isize; INLINE_RANK]> = extents(&strides).map_err(failed)?;
        if shape.len() > MAX_RANK || shape.len() != strides.len() {
            return Err(too_many_dimensions(shape.len(), place));
        }
        if data == 0 && !shape.contains(&0) {
            return Err(unreadable(object, place, "without memory (a fake, meta or wrapper tensor)"));
        }
        Ok(Strided {
            dtype,
            is_dense: is_dense((0..shape.len()).rev(), &shape, &strides),
            shape,
            strides,
            data: std::ptr::with_exposed_provenance_mut(data),
            is_torch: true,
            _hold: Hold::Object(object.clone().unbind()),
        })
    }

    fn from_dlpack(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Result<Strided> {
        let (imported, view) = dlpack::import(object).map_err(|error| match error {
            ImportError::Device(code) => {
                unreadable(object, place, format!("on a device (DLPack type {code})"))
                    .hint("move it to the CPU first")
            }
            ImportError::DType(d) => unreadable(
                object,
                place,
                format!("of DLPack type code {}, {} bits, {} lanes", d.code, d.bits, d.lanes),
            ),
            ImportError::Shape => unreadable(object, place, "whose rank or extents are out of range"),
            ImportError::Python(e) => unreadable(object, place, "whose DLPack export failed").cause(e),
        })?;
        Ok(Self::from_view(view, false, Hold::DLPack(imported)))
    }

    /// What DLPack describes, kept alive by `hold`.
    fn from_view(view: ImportedView, is_torch: bool, hold: Hold) -> Strided {
        let shape = SmallVec::from_slice(view.shape.get(..view.rank).unwrap_or_default());
        let strides: SmallVec<[isize; INLINE_RANK]> =
            view.strides.iter().flat_map(|s| s.iter().take(view.rank).copied()).collect();
        Strided {
            dtype: view.dtype,
            is_dense: view.strides.is_none() || is_dense((0..shape.len()).rev(), &shape, &strides),
            shape,
            strides,
            data: view.data.cast_mut(),
            is_torch,
            _hold: hold,
        }
    }

    /// Can elements be reached with strides counted in elements?
    fn is_addressable(&self, view: &ffi::Py_buffer) -> bool {
        if !view.suboffsets.is_null() {
            return false;
        }
        if view.strides.is_null() {
            return true;
        }
        let itemsize = view.itemsize.max(1);
        // SAFETY: non-null strides of a filled view have `ndim` entries.
        (0..self.shape.len()).all(|i| unsafe { *view.strides.add(i) } % itemsize == 0)
    }

    /// Keeps the view for the call, or copies what strides in elements cannot describe.
    fn take_buffer(&mut self, guard: BufferGuard) -> Result<()> {
        if self.is_addressable(&guard.0) {
            self._hold = Hold::Buffer(Box::new(guard));
            return Ok(());
        }
        let len = usize::try_from(guard.0.len).unwrap_or(0);
        let copy = AlignedBuffer::zeroed(len)?;
        // SAFETY: `copy` has the `len` bytes that the view states; the order is C.
        let status = unsafe {
            ffi::PyBuffer_ToContiguous(copy.as_ptr().cast(), &guard.0, guard.0.len, b'C' as std::ffi::c_char)
        };
        if status != 0 {
            let error = Python::attach(PyErr::fetch);
            return Err(Error::input_type("an input with scattered memory could not be copied").cause(error));
        }
        self.data = copy.as_ptr();
        self.is_dense = true;
        self._hold = Hold::Copy(copy);
        Ok(())
    }
}

/// An array whose dtype the buffer protocol cannot name: its dtype, and itself as plain numbers of that size.
fn named_bytes<'py>(object: &Bound<'py, PyAny>) -> Option<(DType, Bound<'py, PyAny>)> {
    let name: String = object.getattr("dtype").ok()?.getattr("name").ok()?.extract().ok()?;
    let dtype = dtype::from_name(&name).filter(|d| dtype::needs_ml_dtypes(*d))?;
    let plain = if dtype.size() == 2 { "uint16" } else { "uint8" };
    Some((dtype, object.call_method1("view", (plain,)).ok()?))
}

/// The memory of `object`, if it may be written.
fn writable_view(object: &Bound<'_, PyAny>) -> PyResult<BufferGuard> {
    let mut view = std::mem::MaybeUninit::<ffi::Py_buffer>::uninit();
    // SAFETY: `view` is written by a successful call, and only then read.
    let status =
        unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_FULL as c_int) };
    if status != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    // SAFETY: the call succeeded.
    Ok(BufferGuard(unsafe { view.assume_init() }))
}

/// dtype, shape and strides of a filled view; `None` when the elements are nothing a tensor can hold.
fn describe(view: &ffi::Py_buffer, object: &Bound<'_, PyAny>) -> Option<Strided> {
    let itemsize = usize::try_from(view.itemsize).ok()?;
    let format = if view.format.is_null() {
        b"B"
    } else {
        // SAFETY: a format is a C string of the exporter that lives as long as the view.
        unsafe { CStr::from_ptr(view.format) }.to_bytes()
    };
    let dtype = dtype::from_buffer_format(format, itemsize)?;
    let rank = usize::try_from(view.ndim).ok().filter(|r| *r <= MAX_RANK)?;
    let mut shape: SmallVec<[usize; INLINE_RANK]> = SmallVec::new();
    let mut strides: SmallVec<[isize; INLINE_RANK]> = SmallVec::new();
    // A field of records can lie between elements, where strides counted in elements do not reach.
    let mut is_in_elements = true;
    for i in 0..rank {
        // SAFETY: PyBUF_FULL_RO asks for shape and strides; where given they have `ndim` entries.
        unsafe {
            shape.push(usize::try_from(*view.shape.add(i)).ok()?);
            if !view.strides.is_null() {
                let stride = *view.strides.add(i);
                is_in_elements &= *view.shape.add(i) <= 1 || stride % view.itemsize == 0;
                strides.push(stride / view.itemsize);
            }
        }
    }
    let is_dense = view.suboffsets.is_null()
        && (view.strides.is_null() || is_in_elements && is_dense((0..shape.len()).rev(), &shape, &strides));
    Some(Strided {
        dtype,
        shape,
        strides,
        is_dense,
        data: view.buf.cast(),
        is_torch: false,
        _hold: Hold::Object(object.clone().unbind()),
    })
}

/// The numbers of a tuple.
fn extents<'py, T: FromPyObjectOwned<'py>>(tuple: &Bound<'py, PyAny>) -> PyResult<SmallVec<[T; INLINE_RANK]>>
where
    [T; INLINE_RANK]: smallvec::Array<Item = T>,
{
    tuple.try_iter()?.map(|item| item?.extract::<T>().map_err(Into::into)).collect()
}

#[cold]
fn too_many_dimensions(rank: usize, place: InputName<'_>) -> Error {
    Error::input("an input has too many dimensions")
        .argument(place.name)
        .expected(format!("rank at most {MAX_RANK}"))
        .got(format!("rank {rank}"))
}

#[cold]
fn unwritable(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Error {
    Error::input_type("an output buffer cannot be written")
        .argument(place.name)
        .expected("a writable NumPy array, torch tensor or buffer")
        .got(type_name(object))
        .hint("numpy.empty(shape, dtype) makes a buffer that can be written")
}

/// Memory that a caller offers for an output.
pub struct OutputMemory(Strided);

impl OutputMemory {
    /// Reads `object` as writable, dense, row-major memory: a NumPy array, a torch tensor, or another
    /// writable buffer.
    pub fn read(object: &Bound<'_, PyAny>, spec: &IoSpec) -> Result<OutputMemory> {
        let place = InputName { name: &spec.name, kind: Some(&spec.kind) };
        let torch = Torch::loaded(object.py()).filter(|t| t.is_tensor(object));
        let strided = match torch {
            Some(torch) => Strided::from_torch(object, place, torch, true)?,
            None => Self::of_buffer(object, place)?,
        };
        if !strided.is_dense {
            return Err(Error::input("an output buffer must be dense and row-major")
                .argument(place.name)
                .expected("dense row-major memory")
                .got("strided memory")
                .hint("pass a contiguous array, and copy from it where the result should go"));
        }
        Ok(OutputMemory(strided))
    }

    /// Memory through the buffer protocol; arrays whose dtype that cannot name, as bytes (see
    /// [`Strided::from_named_array`]).
    fn of_buffer(object: &Bound<'_, PyAny>, place: InputName<'_>) -> Result<Strided> {
        let (guard, dtype) = match writable_view(object) {
            Ok(guard) => (guard, None),
            Err(error) => {
                let named = named_bytes(object);
                let bytes = named.and_then(|(dtype, bytes)| Some((writable_view(&bytes).ok()?, Some(dtype))));
                bytes.ok_or_else(|| unwritable(object, place).cause(error))?
            }
        };
        let mut strided = describe(&guard.0, object).ok_or_else(|| {
            Error::input_type("an output buffer has elements that a tensor cannot hold")
                .argument(place.name)
                .expected(place.expected())
                .got(type_name(object))
                .hint("numpy.empty(shape, dtype) makes a buffer that can be written")
        })?;
        strided.dtype = dtype.unwrap_or(strided.dtype);
        strided._hold = Hold::Buffer(Box::new(guard));
        Ok(strided)
    }

    /// As the runtime takes it.
    pub fn as_buffer(&self) -> OutputBuffer<'_> {
        // SAFETY: the hold keeps the memory alive; that nobody else uses it during the call is the
        // contract that the documentation of `execute` gives to callers.
        unsafe { OutputBuffer::new(self.0.dtype, &self.0.shape, self.0.data) }
    }
}
