//! The outputs of a call, kept where C reads them.

use crate::abi::{
    KIND_BOOL, KIND_DOUBLE, KIND_INT, KIND_NONE, KIND_STRING, KIND_TENSOR, PteronArg, PteronBytes,
    PteronTensor,
};
use pteron_core::{AlignedBuffer, Error, MAX_RANK, OwnedTensor, Result, TensorMeta};
use pteron_runtime::{Export, OutputBuffer, OutputValue, Outputs};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What keeps the bytes of a tensor.
enum Keeper {
    /// The session, which makes no other call while this lives.
    Session { _export: Export },
    /// Memory of its own.
    Owned { _buffer: AlignedBuffer },
    /// The caller.
    Caller,
}

/// A tensor and where it is.
pub(crate) struct HeldTensor {
    // Atomic for the sake of `Sync`: it is written once.
    data: AtomicPtr<c_void>,
    dtype: i32,
    rank: usize,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    nbytes: usize,
    keeper: Keeper,
}

impl HeldTensor {
    fn new(meta: &TensorMeta, data: *mut u8, keeper: Keeper) -> HeldTensor {
        let (mut shape, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        for (to, from) in shape.iter_mut().zip(meta.shape().iter()) {
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        for (to, from) in strides.iter_mut().zip(meta.strides().iter()) {
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        HeldTensor {
            data: AtomicPtr::new(data.cast()),
            dtype: i32::from(meta.dtype().code()),
            rank: meta.rank(),
            shape,
            strides,
            nbytes: meta.nbytes(),
            keeper,
        }
    }

    /// A tensor with memory of its own.
    pub(crate) fn owned(tensor: OwnedTensor) -> HeldTensor {
        let data = tensor.data.as_ptr();
        HeldTensor::new(&tensor.meta, data, Keeper::Owned { _buffer: tensor.data })
    }

    /// As C reads it; valid while `self` lives and stays where it is.
    pub(crate) fn as_c(&self) -> PteronTensor {
        PteronTensor {
            data: self.data.load(Ordering::Relaxed),
            dtype: self.dtype,
            ndim: i32::try_from(self.rank).unwrap_or(i32::MAX),
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ptr(),
            nbytes: self.nbytes,
        }
    }

    /// Addresses of its bytes, where they are the library's.
    fn range(&self) -> Option<Range<usize>> {
        let first = self.data.load(Ordering::Relaxed).addr();
        match self.keeper {
            Keeper::Caller => None,
            Keeper::Session { .. } | Keeper::Owned { .. } => Some(first..first.saturating_add(self.nbytes)),
        }
    }
}

/// One output.
#[allow(clippy::large_enum_variant, reason = "an output that is a tensor needs no allocation of its own")]
enum Held {
    Tensor(HeldTensor),
    Int(i64),
    Double(f64),
    Bool(bool),
    String(Arc<str>),
    None,
}

/// No tensor.
const NO_TENSOR: PteronTensor = PteronTensor {
    data: std::ptr::null_mut(),
    dtype: 0,
    ndim: 0,
    shape: std::ptr::null(),
    strides: std::ptr::null(),
    nbytes: 0,
};

/// The outputs of a call.
pub(crate) struct Results(Vec<Held>);

impl Results {
    /// Keeps `outputs`; `buffers` are those that the caller bound, with their addresses.
    pub(crate) fn new(outputs: Outputs, addresses: &[*mut u8]) -> Result<Results> {
        let held = outputs.into_iter().enumerate().map(|(i, output)| {
            Ok(match output {
                OutputValue::Tensor(tensor) => Held::Tensor(HeldTensor::owned(tensor)),
                OutputValue::Lent(lent) => {
                    let (meta, memory) = lent.into_parts();
                    let export = Export::of(&memory)
                        .ok_or_else(|| Error::internal("an output went back before it was looked at"))?;
                    // C only reads there, says the header.
                    let data = export.data().cast_mut();
                    Held::Tensor(HeldTensor::new(&meta, data, Keeper::Session { _export: export }))
                }
                OutputValue::Bound(meta) => {
                    let data = addresses.get(i).copied().unwrap_or_default();
                    Held::Tensor(HeldTensor::new(&meta, data, Keeper::Caller))
                }
                OutputValue::Int(v) => Held::Int(v),
                OutputValue::Double(v) => Held::Double(v),
                OutputValue::Bool(v) => Held::Bool(v),
                OutputValue::String(v) => Held::String(v),
                OutputValue::None => Held::None,
            })
        });
        Ok(Results(held.collect::<Result<Vec<_>>>()?))
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The output at `index`, as C reads it; valid while `self` lives.
    pub(crate) fn get(&self, index: usize) -> Option<PteronArg> {
        let text = PteronBytes { data: std::ptr::null(), len: 0 };
        let mut arg = PteronArg { kind: KIND_NONE, tensor: NO_TENSOR, number: 0, real: 0.0, text };
        match self.0.get(index)? {
            Held::Tensor(tensor) => (arg.kind, arg.tensor) = (KIND_TENSOR, tensor.as_c()),
            Held::Int(v) => (arg.kind, arg.number) = (KIND_INT, *v),
            Held::Double(v) => (arg.kind, arg.real) = (KIND_DOUBLE, *v),
            Held::Bool(v) => (arg.kind, arg.number) = (KIND_BOOL, i64::from(*v)),
            Held::String(v) => {
                (arg.kind, arg.text) = (KIND_STRING, PteronBytes { data: v.as_ptr(), len: v.len() });
            }
            Held::None => {}
        }
        Some(arg)
    }

    /// Does any output that lies in the library's memory share bytes with these addresses?
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        let ranges = self.0.iter().filter_map(|held| match held {
            Held::Tensor(tensor) => tensor.range(),
            _ => None,
        });
        let mut ranges = ranges.filter(|own| !own.is_empty());
        !range.is_empty() && ranges.any(|own| own.start < range.end && range.start < own.end)
    }
}

/// The bound buffers of a call and where they are.
pub(crate) struct Buffers<'a> {
    pub buffers: Vec<Option<OutputBuffer<'a>>>,
    pub addresses: Vec<*mut u8>,
}
