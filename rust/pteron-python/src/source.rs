//! Where the bytes of a file come from: a path, bytes, another buffer, or a binary file. Unsafe island.

use crate::parameter;
use crate::python_call;
use pteron_runtime::{DataSource, ProgramSource, StableBytes};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyMapping, PyString, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;

/// A Python `bytes` object that a program borrows.
struct BorrowedBytes(PyBackedBytes);

// SAFETY: `bytes` objects are immutable and stay in place while referenced.
unsafe impl StableBytes for BorrowedBytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The source of a program in a `bytes` object, which it borrows.
pub fn borrowed(bytes: &Bound<'_, PyBytes>) -> ProgramSource {
    ProgramSource::Bytes(Arc::new(BorrowedBytes(PyBackedBytes::from(bytes.clone()))))
}

/// The bytes or path that the parameter `name` gives, and the path once more for errors; `what` is the kind
/// of file.
pub fn file_source(
    source: &Bound<'_, PyAny>,
    mmap: bool,
    name: &str,
    what: &str,
) -> PyResult<(ProgramSource, Option<PathBuf>)> {
    if let Ok(bytes) = source.cast_exact::<PyBytes>() {
        return Ok((borrowed(bytes), None));
    }
    // SAFETY: any object may be asked whether it has the buffer protocol.
    if unsafe { ffi::PyObject_CheckBuffer(source.as_ptr()) } != 0 {
        let copy = source.py().get_type::<PyBytes>().call1((source,))?.cast_into::<PyBytes>()?;
        return Ok((borrowed(&copy), None));
    }
    if source.hasattr("read")? {
        let content = python_call::method(source, "read", ())?;
        let content = content.cast::<PyBytes>().map_err(|_| {
            parameter::wrong_type(
                &content,
                name,
                "bytes from read() of the file",
                "open the file in binary mode ('rb')",
            )
        })?;
        return Ok((borrowed(content), None));
    }
    if source.is_instance_of::<PyString>() || source.hasattr("__fspath__")? {
        let path: PathBuf = source.extract()?;
        return Ok((ProgramSource::File { path: path.clone(), is_mapped: mmap }, Some(path)));
    }
    Err(parameter::wrong_type(
        source,
        name,
        "a path, bytes, another buffer, or a binary file",
        &format!("pass the path of the {what} file"),
    ))
}

/// Data files: one, a list or tuple of several, or a dict from name to one.
pub fn data_sources(data: Option<&Bound<'_, PyAny>>, mmap: bool) -> PyResult<Vec<DataSource>> {
    let Some(data) = data.filter(|d| !d.is_none()) else { return Ok(Vec::new()) };
    let mut given: Vec<(String, Bound<'_, PyAny>)> = Vec::new();
    if let Ok(mapping) = data.cast::<PyMapping>() {
        for (name, file) in mapping.items()?.extract::<Vec<(String, Bound<'_, PyAny>)>>()? {
            given.push((name, file));
        }
    } else if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
        for (index, file) in data.try_iter()?.enumerate() {
            given.push((format!("data[{index}]"), file?));
        }
    } else {
        given.push(("data".to_string(), data.clone()));
    }
    let mut sources = Vec::with_capacity(given.len());
    for (name, file) in given {
        let (source, path) = file_source(&file, mmap, &name, ".ptd")?;
        let name = path.map_or(name, |p| p.to_string_lossy().into_owned());
        sources.push(DataSource { source, name });
    }
    Ok(sources)
}
