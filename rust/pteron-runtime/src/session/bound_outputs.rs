//! Outputs that are computed right in the caller's buffer, without memory of the session in between.

use crate::{InputValue, OutputBuffer};
use pteron_core::sizes::checked_nbytes;
use pteron_core::{Dims, TensorSlot, ValueId};

/// The buffer that the output `id` can be computed in: of exactly its largest shape and memory
/// order, aligned, and apart from every input.
pub(crate) fn direct<'a>(
    id: ValueId,
    slot: &TensorSlot,
    outputs: &[ValueId],
    buffers: &'a [Option<OutputBuffer<'_>>],
    inputs: &[InputValue<'_>],
) -> Option<&'a OutputBuffer<'a>> {
    let buffer = outputs.iter().zip(buffers).find_map(|(o, b)| (*o == id).then_some(b.as_ref()).flatten())?;
    let fits = *buffer.shape == **slot.bound()
        && slot.meta().is_contiguous()
        && (buffer.data as usize).is_multiple_of(buffer.dtype.align());
    if !fits {
        return None;
    }
    let nbytes = checked_nbytes(slot.bound(), buffer.dtype).ok()?;
    let start = buffer.data as usize;
    let own = (start, start.checked_add(nbytes)?);
    let is_apart = inputs.iter().all(|input| match input {
        InputValue::Tensor(t) => span(t).is_some_and(|(low, high)| high <= own.0 || own.1 <= low),
        _ => true,
    });
    is_apart.then_some(buffer)
}

/// First byte and the byte after the last one that an input reaches.
fn span(input: &crate::TensorInput<'_>) -> Option<(usize, usize)> {
    let shape = Dims::new(input.shape).ok()?;
    let start = input.data as usize;
    let Some(strides) = input.strides else {
        return Some((start, start.checked_add(checked_nbytes(&shape, input.dtype).ok()?)?));
    };
    if shape.contains(&0) {
        return Some((start, start));
    }
    let (mut low, mut high) = (start, start.checked_add(input.dtype.size())?);
    for (n, stride) in shape.iter().zip(strides) {
        let reach = isize::try_from(n.saturating_sub(1)).ok()?.checked_mul(*stride)?;
        let reach = reach.checked_mul(input.dtype.size() as isize)?;
        if reach < 0 {
            low = low.checked_add_signed(reach)?;
        } else {
            high = high.checked_add_signed(reach)?;
        }
    }
    Some((low, high))
}
