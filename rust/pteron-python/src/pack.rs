//! Packed weights for the compile half: what load would pack, as named data to store with the program.

use crate::blob::Blob;
use crate::bytes::python_bytes;
use crate::call::{self, stopped};
use crate::runtime::Runtime;
use crate::source::borrowed;
use pteron_runtime::{Limits, Program};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// Prepares every method of the program `data` as load does, and returns what that packed: a list of (name,
/// bytes) to store as named data of the same program, the index first. The packs want to lie at multiples of
/// 64 bytes. Weights that the program brings along already are not in the list. `progress` is called after each
/// step with (bytes of weights that are done, bytes of weights in all); what it raises, and what a signal handler
/// raises (Ctrl-C), ends the work.
///
/// Raises what loading the program and its methods raises.
#[pyfunction]
#[pyo3(signature = (data, progress=None))]
pub fn pack_weights<'py>(
    data: &Bound<'py, PyBytes>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let py = data.py();
    let runtime = Runtime::or_shared(py, None)?;
    let source = borrowed(data);
    let watch = |done: u64, total: u64| {
        let told = Python::attach(|py| {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
        });
        told.map_err(stopped)
    };
    let weights =
        call::detached(py, || Program::load(&runtime, source, Limits::default())?.pack_all_watched(&watch))?;
    let out = PyList::empty(py);
    let (name, index) = weights.index();
    out.append((name, python_bytes(py, index)?))?;
    for (name, pack) in weights.packs() {
        out.append((name, Blob::of_pack(py, pack.clone())?))?;
    }
    Ok(out)
}
