//! Calls of loaded methods with inputs that their specs ask for. Unsafe island (inputs by pointer).

use crate::kernel_args::contents::{Contents, elements};
use crate::pseudo_random::PseudoRandom;
use pteron_core::{AlignedBuffer, DType, Result};
use pteron_runtime::{
    ExecuteOptions, Extent, InputValue, IoKind, Limits, Method, Outputs, TensorInput, TensorIo,
};
use std::time::Duration;

/// What fuzzed programs may use.
pub const LIMITS: Limits = Limits {
    arena_bytes: Some(16 << 20),
    instructions: Some(20_000),
    time: Some(Duration::from_secs(2)),
    nesting: Some(4),
    values: Some(1 << 16),
    rank: None,
};
/// Largest input in bytes.
const LARGEST_INPUT: usize = 1 << 20;

/// Which of the legal extents of changing dimensions a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extents {
    /// Three, or as near to it as the spec allows.
    Few,
    /// The upper bound.
    Most,
}

/// An input's memory.
enum Held {
    Tensor { dtype: DType, shape: Vec<usize>, data: AlignedBuffer },
    Int(i64),
    Bool(bool),
    Double(f64),
    String(String),
    None,
}

/// Small numbers for a tensor: whole ones where they may be indices. `None` where it would be too large.
fn tensor(spec: &TensorIo, extents: Extents, seed: u64) -> Option<Held> {
    let extent = |e: &Extent| match (e.range(), extents) {
        ((min, max), Extents::Few) => min.max(3).min(max),
        ((_, max), Extents::Most) => max,
    };
    let shape: Vec<usize> = spec.extents.iter().map(extent).collect();
    let nbytes = pteron_core::sizes::checked_nbytes(&shape, spec.dtype).ok()?;
    if nbytes > LARGEST_INPUT {
        return None;
    }
    let is_number = spec.dtype.is_float() || spec.dtype.is_complex();
    let contents = if is_number { Contents::Fractions } else { Contents::Indices };
    let mut data = AlignedBuffer::zeroed(nbytes).ok()?;
    data.as_mut_slice().copy_from_slice(&elements(seed, contents, spec.dtype, shape.iter().product()));
    Some(Held::Tensor { dtype: spec.dtype, shape, data })
}

/// Inputs for `method`; `None` where they would be too large.
fn inputs(method: &Method, extents: Extents, seed: u64) -> Option<Vec<Held>> {
    let mut random = PseudoRandom::of_number(seed);
    let inputs = method.inputs();
    let held = inputs.iter().map(|spec| match &spec.kind {
        IoKind::Tensor(t) => tensor(t, extents, random.word()),
        IoKind::Int { traced, range, .. } => Some(Held::Int(match range {
            Some((min, max)) if min <= max => (*traced).clamp(*min, *max),
            _ => *traced,
        })),
        IoKind::Bool { traced } => Some(Held::Bool(*traced)),
        IoKind::Double { traced } => Some(Held::Double(*traced)),
        IoKind::String { traced } => Some(Held::String(traced.clone())),
        IoKind::None => Some(Held::None),
    });
    held.collect()
}

/// Calls `method` with the inputs of a seed; `None` where they would be too large to make.
///
/// Errors: those of the call.
pub fn call(
    method: &Method,
    extents: Extents,
    seed: u64,
    options: ExecuteOptions<'_>,
) -> Result<Option<Outputs>> {
    let Some(held) = inputs(method, extents, seed) else { return Ok(None) };
    let values: Vec<InputValue<'_>> = held
        .iter()
        .map(|h| match h {
            Held::Tensor { dtype, shape, data } => {
                // SAFETY: the buffer holds a dense row-major tensor of this shape, and lives longer than the call.
                InputValue::Tensor(unsafe { TensorInput::new(*dtype, shape, None, data.as_ptr()) })
            }
            Held::Int(v) => InputValue::Int(*v),
            Held::Bool(v) => InputValue::Bool(*v),
            Held::Double(v) => InputValue::Double(*v),
            Held::String(v) => InputValue::String(v),
            Held::None => InputValue::None,
        })
        .collect();
    method.execute(&values, options).map(Some)
}
