//! Calls of loaded methods with inputs that their specs ask for. Unsafe island (inputs by pointer).

use crate::choices::Choices;
use crate::kernel_args::contents::{Contents, elements};
use pteron_core::{DType, Result};
use pteron_runtime::{ExecuteOptions, InputValue, IoKind, Limits, Method, OutputValue, TensorInput};
use std::time::Duration;

/// What fuzzed programs may use.
pub const LIMITS: Limits = Limits {
    arena_bytes: Some(32 << 20),
    instructions: Some(2000),
    time: Some(Duration::from_secs(2)),
    nesting: Some(4),
    values: Some(1 << 16),
    rank: None,
};
/// Largest input.
const LARGEST_INPUT: usize = 1 << 20;

/// An input's memory.
enum Held {
    Tensor { dtype: DType, shape: Vec<usize>, bytes: Vec<u64> },
    Int(i64),
    Bool(bool),
    Double(f64),
    String(String),
    None,
}

/// Inputs for `method`; `None` where they would be too large. `is_small`: the smallest legal extents.
fn inputs(method: &Method, choices: &mut Choices<'_>, is_small: bool) -> Option<Vec<Held>> {
    let mut held = Vec::new();
    for spec in method.inputs() {
        held.push(match &spec.kind {
            IoKind::Tensor(t) => {
                let extent = |e: &pteron_runtime::Extent| if is_small { e.range().0 } else { e.range().1 };
                let shape: Vec<usize> = t.extents.iter().map(extent).collect();
                let numel = shape.iter().try_fold(1usize, |n, e| n.checked_mul(*e))?;
                let nbytes = numel.checked_mul(t.dtype.size()).filter(|n| *n <= LARGEST_INPUT)?;
                let contents = if choices.chance(20) { Contents::Bits } else { Contents::Small };
                let bytes = elements(choices, contents, t.dtype, numel);
                let mut words = vec![0u64; nbytes.div_ceil(8)];
                bytemuck::cast_slice_mut(&mut words)[..nbytes].copy_from_slice(&bytes);
                Held::Tensor { dtype: t.dtype, shape, bytes: words }
            }
            IoKind::Int { traced, range, .. } => Held::Int(range.map_or(*traced, |(min, _)| min)),
            IoKind::Bool { traced } => Held::Bool(*traced),
            IoKind::Double { traced } => Held::Double(*traced),
            IoKind::String { traced } => Held::String(traced.clone()),
            IoKind::None => Held::None,
        });
    }
    Some(held)
}

/// Calls `method`; the bytes of its outputs, or its error.
pub fn call(method: &Method, choices: &mut Choices<'_>, is_small: bool) -> Result<Vec<Vec<u8>>> {
    call_with(method, choices, is_small, ExecuteOptions::default())
}

/// As [`call`], with options.
pub fn call_with(
    method: &Method,
    choices: &mut Choices<'_>,
    is_small: bool,
    options: ExecuteOptions<'_>,
) -> Result<Vec<Vec<u8>>> {
    let Some(held) = inputs(method, choices, is_small) else { return Ok(vec![]) };
    let values: Vec<InputValue<'_>> = held
        .iter()
        .map(|h| match h {
            Held::Tensor { dtype, shape, bytes } => {
                // SAFETY: the words hold the tensor's bytes and live longer than the call.
                InputValue::Tensor(unsafe { TensorInput::new(*dtype, shape, None, bytes.as_ptr().cast()) })
            }
            Held::Int(v) => InputValue::Int(*v),
            Held::Bool(v) => InputValue::Bool(*v),
            Held::Double(v) => InputValue::Double(*v),
            Held::String(v) => InputValue::String(v),
            Held::None => InputValue::None,
        })
        .collect();
    let outputs = method.execute(&values, options)?;
    Ok(outputs.iter().map(bytes_of).collect())
}

fn bytes_of(output: &OutputValue) -> Vec<u8> {
    match output {
        OutputValue::Tensor(t) => t.data.as_slice().to_vec(),
        OutputValue::Lent(t) => t.borrow().map(|b| b.view().as_bytes().to_vec()).unwrap_or_default(),
        OutputValue::Int(v) => v.to_le_bytes().to_vec(),
        OutputValue::Double(v) => v.to_bits().to_le_bytes().to_vec(),
        OutputValue::Bool(v) => vec![u8::from(*v)],
        _ => vec![],
    }
}
