//! What callers get back, and memory they offer for it. Unsafe island (construction, and bytes of a session
//! that an export keeps still).

use crate::session::memory::{Export, Memory};
use pteron_core::{DType, Error, OwnedTensor, Result, TensorMeta, TensorView};
use smallvec::SmallVec;
use std::sync::Arc;

/// The outputs of one call, in order.
pub type Outputs = SmallVec<[OutputValue; 2]>;

/// One output of a call.
#[allow(
    clippy::large_enum_variant,
    reason = "a tensor's metadata is inline so that a call with one output allocates its data only"
)]
#[derive(Debug)]
pub enum OutputValue {
    /// A tensor in fresh memory that the caller owns.
    Tensor(OwnedTensor),
    /// A tensor where the session computed it, until the session's next call.
    Lent(LentTensor),
    /// The tensor is in the buffer that the caller bound to this output; this is its shape.
    Bound(TensorMeta),
    /// An integer.
    Int(i64),
    /// A float.
    Double(f64),
    /// A bool.
    Bool(bool),
    /// A string.
    String(Arc<str>),
    /// `None`.
    None,
}

impl OutputValue {
    /// The tensor; an error when this is something else.
    pub fn tensor(&self) -> Result<&OwnedTensor> {
        match self {
            OutputValue::Tensor(t) => Ok(t),
            other => {
                Err(Error::input_type("output is not an owned tensor")
                    .got(format!("{:?}", other.kind_name())))
            }
        }
    }

    fn kind_name(&self) -> &'static str {
        match self {
            OutputValue::Tensor(_) => "tensor",
            OutputValue::Lent(_) => "lent tensor",
            OutputValue::Bound(_) => "bound tensor",
            OutputValue::Int(_) => "int",
            OutputValue::Double(_) => "float",
            OutputValue::Bool(_) => "bool",
            OutputValue::String(_) => "str",
            OutputValue::None => "None",
        }
    }
}

/// A tensor in memory of a session, dense in its `dim_order`. It may outlive the session.
#[derive(Debug)]
pub struct LentTensor {
    meta: TensorMeta,
    memory: Arc<Memory>,
}

impl LentTensor {
    /// `memory` holds a whole tensor of `meta`.
    pub(crate) fn new(meta: TensorMeta, memory: Arc<Memory>) -> Self {
        LentTensor { meta, memory }
    }

    /// dtype, shape, strides.
    pub fn meta(&self) -> &TensorMeta {
        &self.meta
    }

    /// Where it is.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// What it is and where, for bindings that count exports of their own.
    pub fn into_parts(self) -> (TensorMeta, Arc<Memory>) {
        (self.meta, self.memory)
    }

    /// Borrows the bytes; while the borrow lives, the session refuses its next call.
    ///
    /// Errors: `OutputsInUse` when the session's next call has begun, since the bytes are its own again.
    pub fn borrow(&self) -> Result<LentBytes<'_>> {
        match Export::of(&self.memory) {
            Some(export) => Ok(LentBytes { meta: &self.meta, export }),
            None => Err(Error::outputs_in_use("a lent output has gone back to its session")
                .expected("a look at it before the method is called again")
                .hint("look at lent outputs before the next call, or do not ask for lent ones")),
        }
    }
}

/// The bytes of a lent tensor, which stay as they are while this lives.
#[derive(Debug)]
pub struct LentBytes<'a> {
    meta: &'a TensorMeta,
    export: Export,
}

impl LentBytes<'_> {
    /// The tensor.
    pub fn view(&self) -> TensorView<'_> {
        // SAFETY: the session lent a whole tensor of `meta`, aligned as its slot was, in an arena that the
        // memory keeps alive; the export keeps the session from writing to it.
        unsafe { TensorView::from_raw(self.export.data(), self.meta) }
    }
}

/// Memory that a caller offers for one output: dense and row-major, of exactly the output's dtype and
/// shape.
#[derive(Debug, Clone, Copy)]
pub struct OutputBuffer<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [usize],
    pub(crate) data: *mut u8,
}

impl<'a> OutputBuffer<'a> {
    /// A buffer at `data`.
    ///
    /// # Safety
    /// `data` must be valid for writes of all elements of `shape`, and neither read nor written by
    /// anybody else, until the call that it is passed to returns. Overlap with inputs of the same call is
    /// allowed. It need not be aligned.
    pub unsafe fn new(dtype: DType, shape: &'a [usize], data: *mut u8) -> Self {
        OutputBuffer { dtype, shape, data }
    }
}
