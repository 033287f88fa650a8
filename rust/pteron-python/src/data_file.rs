//! The writer of data files for Python.

use crate::call;
use crate::contents::Contents;
use crate::serialize::{LayoutFields, PyLayout, field, python_layout};
use pteron_format::DataFile;
use pteron_format::write::{DataEntryDraft, DataFileDraft};
use pyo3::prelude::*;
use std::borrow::Cow;

/// Lays a data file out: `entries` have `key`, `data`, `alignment`, and `layout`, which is None or has
/// `scalar_type`, `sizes` and `dim_order`. Returns what `layout_program` returns.
#[pyfunction]
#[pyo3(signature = (entries, *, segment_alignment=128))]
pub fn layout_data_file<'py>(
    py: Python<'py>,
    entries: Vec<Bound<'py, PyAny>>,
    segment_alignment: u32,
) -> PyResult<PyLayout<'py>> {
    let contents = entries
        .iter()
        .map(|entry| Contents::of(&field::<Bound<'_, PyAny>>(entry, "data")?))
        .collect::<PyResult<Vec<_>>>()?;
    let mut draft = DataFileDraft::default();
    for (entry, data) in entries.iter().zip(&contents) {
        let layout: Option<Bound<'_, PyAny>> = field(entry, "layout")?;
        draft.entries.push(DataEntryDraft {
            key: field(entry, "key")?,
            data: Cow::Borrowed(data.bytes()),
            alignment: field(entry, "alignment")?,
            layout: layout.map(|l| LayoutFields::of(&l)).transpose()?.map(LayoutFields::draft),
        });
    }
    let layout = call::detached(py, || draft.lay_out(segment_alignment))?;
    python_layout(py, &layout, contents.iter())
}

/// The text form of the data file `data`: one line per entry. Raises ExternalDataError when it is damaged.
#[pyfunction]
pub fn data_listing(data: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = data.py();
    let contents = Contents::of(data)?;
    let bytes = contents.bytes();
    call::detached(py, || DataFile::parse(bytes)?.listing())
}
