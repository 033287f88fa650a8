//! What a method takes and gives, in the form that C reads.

use crate::abi::{KIND_BOOL, KIND_DOUBLE, KIND_INT, KIND_NONE, KIND_STRING, KIND_TENSOR, PteronSpec};
use crate::text::c_string;
use pteron_core::Result;
use pteron_runtime::{IoKind, IoSpec};
use std::ffi::CString;

/// One input, output or buffer.
pub(crate) struct Spec {
    name: CString,
    text: CString,
    string: Option<CString>,
    shape: Vec<i64>,
    least: Vec<i64>,
    spec: IoSpec,
}

fn extent(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Spec {
    pub(crate) fn new(spec: &IoSpec) -> Result<Spec> {
        let (mut shape, mut least) = (Vec::new(), Vec::new());
        let mut string = None;
        match &spec.kind {
            IoKind::Tensor(tensor) => {
                shape = tensor.extents.iter().map(|e| extent(e.range().1)).collect();
                least = tensor.extents.iter().map(|e| extent(e.range().0)).collect();
            }
            IoKind::String { traced } => string = Some(c_string(traced)?),
            _ => {}
        }
        let (name, text) = (c_string(&spec.name)?, c_string(&spec.description())?);
        Ok(Spec { name, text, string, shape, least, spec: spec.clone() })
    }

    /// The specs of a method.
    pub(crate) fn all(specs: &[IoSpec]) -> Result<Vec<Spec>> {
        specs.iter().map(Spec::new).collect()
    }

    /// The struct, which points into `self`.
    pub(crate) fn as_c(&self) -> PteronSpec {
        let mut c = PteronSpec {
            struct_size: 0,
            kind: KIND_NONE,
            name: self.name.as_ptr(),
            text: self.text.as_ptr(),
            dtype: 0,
            ndim: 0,
            shape: self.shape.as_ptr(),
            least: self.least.as_ptr(),
            is_computed: i32::from(self.spec.is_computed),
            has_range: 0,
            number_min: 0,
            number_max: 0,
            number: 0,
            real: 0.0,
            string: std::ptr::null(),
        };
        match &self.spec.kind {
            IoKind::Tensor(tensor) => {
                c.kind = KIND_TENSOR;
                c.dtype = i32::from(tensor.dtype.code());
                c.ndim = i32::try_from(self.shape.len()).unwrap_or(i32::MAX);
            }
            IoKind::Int { traced, range, .. } => {
                (c.kind, c.number) = (KIND_INT, *traced);
                if let Some((min, max)) = range {
                    (c.has_range, c.number_min, c.number_max) = (1, *min, *max);
                }
            }
            IoKind::Bool { traced } => (c.kind, c.number) = (KIND_BOOL, i64::from(*traced)),
            IoKind::Double { traced } => (c.kind, c.real) = (KIND_DOUBLE, *traced),
            IoKind::String { .. } => {
                c.kind = KIND_STRING;
                c.string = self.string.as_ref().map_or(std::ptr::null(), |s| s.as_ptr());
            }
            IoKind::None => {}
        }
        c
    }
}
