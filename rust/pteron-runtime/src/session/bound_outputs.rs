//! Buffers of the caller for outputs: which fit, and which an output can be computed right in, without memory of the
//! session in between.

use crate::load::method_code::MethodCode;
use crate::{InputValue, IoKind, OutputBuffer};
use pteron_core::error::printable;
use pteron_core::sizes::checked_nbytes;
use pteron_core::{Dims, Error, Result, TensorSlot, ValueId};
use smallvec::SmallVec;

/// Refuses buffers that cannot fit their output, before the run.
pub(crate) fn check_buffers(code: &MethodCode, buffers: &[Option<OutputBuffer<'_>>]) -> Result<()> {
    if buffers.len() > code.outputs.len() {
        return Err(Error::input("more output buffers are bound than the method has outputs")
            .method(code.ir.name.as_str())
            .expected(format!("at most {}", code.outputs.len()))
            .got(buffers.len().to_string())
            .hint("bind one buffer, or none, for each output in order"));
    }
    check_disjoint(code, buffers)?;
    for (spec, buffer) in code.outputs.iter().zip(buffers) {
        let Some(buffer) = buffer else { continue };
        let at = |e: Error| e.method(code.ir.name.as_str()).argument(spec.name.as_str());
        let IoKind::Tensor(t) = &spec.kind else {
            return Err(at(Error::input_type("a buffer is bound to an output that is no tensor"))
                .expected(spec.kind.to_string())
                .hint("bind no buffer to this output: it is returned as a plain value"));
        };
        if buffer.dtype != t.dtype {
            return Err(at(Error::input_type("an output buffer has another dtype than the output"))
                .expected(t.dtype.name())
                .got(buffer.dtype.name())
                .hint("make the buffer with the dtype of the output; the runtime never converts dtypes by itself"));
        }
        let fits = buffer.shape.len() == t.extents.len()
            && buffer.shape.iter().zip(&t.extents).all(|(n, e)| {
                let (min, max) = e.range();
                (min..=max).contains(n)
            });
        if !fits {
            return Err(at(Error::input("an output buffer has another shape than the output"))
                .expected(t.to_string())
                .got(format!("{}{:?}", buffer.dtype, buffer.shape))
                .hint("make the buffer with the shape that the output has for these inputs"));
        }
    }
    Ok(())
}

/// Refuses buffers that share memory: the outputs would overwrite each other.
fn check_disjoint(code: &MethodCode, buffers: &[Option<OutputBuffer<'_>>]) -> Result<()> {
    let mut ranges: SmallVec<[(usize, usize, usize); 4]> = SmallVec::new();
    for (i, buffer) in buffers.iter().enumerate() {
        let Some(buffer) = buffer else { continue };
        let nbytes = checked_nbytes(&Dims::new(buffer.shape)?, buffer.dtype)?;
        if nbytes > 0 {
            let start = buffer.data as usize;
            ranges.push((start, start.saturating_add(nbytes), i));
        }
    }
    ranges.sort_unstable();
    let overlap = ranges.iter().zip(ranges.iter().skip(1)).find(|((_, end, _), (start, ..))| start < end);
    let Some(((.., a), (.., b))) = overlap else { return Ok(()) };
    let name = |i: usize| code.outputs.get(i).map_or("?".to_string(), |s| printable(&s.name));
    let (first, second) = ((*a).min(*b), (*a).max(*b));
    Err(Error::input("two output buffers share memory")
        .method(code.ir.name.as_str())
        .argument(name(second))
        .expected("memory of its own for each output")
        .got(format!(
            "overlapping memory for output {first} ('{}') and output {second} ('{}')",
            name(first),
            name(second)
        ))
        .hint("make a buffer for each output, or bind none where the method is to make it"))
}

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
