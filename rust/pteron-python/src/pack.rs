//! Packed weights for the compile half: what load would pack, as named data to store with the program.

use crate::blob::Blob;
use crate::bytes::python_bytes;
use crate::call;
use crate::runtime::Runtime;
use crate::source::borrowed;
use pteron_runtime::{Limits, Program};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// Prepares every method of the program `data` as load does, and returns what that packed: a list of (name,
/// bytes) to store as named data of the same program, the index first. The packs want to lie at multiples of
/// 64 bytes. Weights that the program brings along already are not in the list.
///
/// Raises what loading the program and its methods raises.
#[pyfunction]
pub fn pack_weights<'py>(data: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyList>> {
    let py = data.py();
    let runtime = Runtime::or_shared(py, None)?;
    let source = borrowed(data);
    let weights = call::detached(py, || Program::load(&runtime, source, Limits::default())?.pack_all())?;
    let out = PyList::empty(py);
    let (name, index) = weights.index();
    out.append((name, python_bytes(py, index)?))?;
    for (name, pack) in weights.packs() {
        out.append((name, Blob::of_pack(py, pack.clone())?))?;
    }
    Ok(out)
}
