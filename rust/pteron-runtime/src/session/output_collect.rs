//! Takes a run's results out of the session. Unsafe island: it copies into callers' buffers.

use crate::load::method_code::MethodCode;
use crate::session::slots::Session;
use crate::{OutputBuffer, OutputValue, Outputs, OwnedTensor};
use pteron_core::sizes::checked_nbytes;
use pteron_core::{AlignedBuffer, DimOrder, Dims, Error, Result, TensorMeta, TensorSlot, Value, ValueId};
use pteron_kernels::strided::copy::{Layout, copy_strided};
use pteron_kernels::strided::loops::signed;
use smallvec::SmallVec;

/// Appends all outputs, in order.
pub(crate) fn collect(
    code: &MethodCode,
    session: &mut Session,
    buffers: &[Option<OutputBuffer<'_>>],
    is_lending: bool,
    out: &mut Outputs,
) -> Result<()> {
    let mut saved = shown_where_buffers_lie(code, session, buffers)?;
    for (i, id) in code.ir.outputs.iter().enumerate() {
        let buffer = buffers.get(i).and_then(Option::as_ref);
        if let Some(at) = saved.iter().position(|(output, _)| *output == i) {
            let (_, tensor) = saved.swap_remove(at);
            out.push(match buffer {
                Some(buffer) => {
                    // SAFETY: a whole tensor.
                    let filled = unsafe { fill(&tensor.meta, tensor.data.as_ptr(), buffer) };
                    filled.map_err(|e| named(code, i, e))?;
                    OutputValue::Bound(tensor.meta)
                }
                None => OutputValue::Tensor(tensor),
            });
            continue;
        }
        // Fresh memory goes to the last output that shows the value; earlier ones get copies.
        let is_shown_again = code.ir.outputs.get(i.saturating_add(1)..).is_some_and(|rest| rest.contains(id));
        let lent = if is_lending && buffer.is_none() { session.lend(*id, i) } else { None };
        let result = match lent {
            Some(lent) => {
                out.push(OutputValue::Lent(lent));
                Ok(())
            }
            None => output(code, session, *id, buffer, is_shown_again, out),
        };
        result.map_err(|e| named(code, i, e))?;
    }
    Ok(())
}

/// Which output of which method an error is about.
#[cold]
fn named(code: &MethodCode, output: usize, e: Error) -> Error {
    let name = code.outputs.get(output).map_or("?", |s| s.name.as_str());
    e.method(code.ir.name.as_str()).argument(name)
}

/// Copies of the outputs that show memory which the buffer of an earlier output will be written to: an input that
/// the method gives back while the caller has bound another output over it.
fn shown_where_buffers_lie(
    code: &MethodCode,
    session: &Session,
    buffers: &[Option<OutputBuffer<'_>>],
) -> Result<SmallVec<[(usize, OwnedTensor); 1]>> {
    let mut saved = SmallVec::new();
    if code.ir.outputs.len() < 2 || buffers.iter().all(Option::is_none) {
        return Ok(saved);
    }
    for (i, id) in code.ir.outputs.iter().enumerate().skip(1) {
        let Some(slot) = session.values.get(id.index()).and_then(Value::as_tensor) else { continue };
        let start = slot.data() as usize;
        let end = start.saturating_add(slot.meta().nbytes());
        let is_overwritten = buffers.iter().zip(&code.ir.outputs).take(i).any(|(buffer, other)| {
            // In place: nothing is written.
            let is_in_place = |b: &&OutputBuffer<'_>| other == id && std::ptr::eq(b.data, slot.data());
            let Some(buffer) = buffer.as_ref().filter(|b| !is_in_place(b)) else { return false };
            let nbytes = Dims::new(buffer.shape).and_then(|shape| checked_nbytes(&shape, buffer.dtype));
            let first = buffer.data as usize;
            first < end && start < first.saturating_add(nbytes.unwrap_or(usize::MAX))
        });
        if is_overwritten && start < end {
            saved.push((i, copy_of(slot).map_err(|e| named(code, i, e))?));
        }
    }
    Ok(saved)
}

fn output(
    code: &MethodCode,
    session: &mut Session,
    id: ValueId,
    buffer: Option<&OutputBuffer<'_>>,
    is_shown_again: bool,
    out: &mut Outputs,
) -> Result<()> {
    let value = session.values.get(id.index()).ok_or_else(|| Error::internal("output out of range"))?;
    out.push(match value {
        Value::None => OutputValue::None,
        Value::Int(v) => OutputValue::Int(*v),
        Value::Bool(v) => OutputValue::Bool(*v),
        Value::Double(v) => OutputValue::Double(*v),
        Value::String(s) => OutputValue::String(s.clone()),
        Value::Tensor(slot) => match buffer {
            Some(buffer) => {
                // SAFETY: a slot has the memory that its extents ask for.
                unsafe { fill(slot.meta(), slot.data(), buffer)? };
                OutputValue::Bound(slot.meta().clone())
            }
            None => {
                let meta = slot.meta().clone();
                // Memory for the bound is kept unless most of it would lie idle.
                let is_tight = meta.nbytes() >= slot.capacity() / 2;
                let taken = (!is_shown_again && is_tight).then(|| session.take_fresh(code, id)).flatten();
                match taken {
                    Some(data) => OutputValue::Tensor(OwnedTensor { meta, data }),
                    None => OutputValue::Tensor(copy_of(session.slot(id)?)?),
                }
            }
        },
        _ => return Err(Error::internal("an output is a list")),
    });
    Ok(())
}

/// A tensor with a copy of the slot's bytes.
pub(crate) fn copy_of(slot: &TensorSlot) -> Result<OwnedTensor> {
    let data = AlignedBuffer::copy_of(slot.view().as_bytes())?;
    Ok(OwnedTensor { meta: slot.meta().clone(), data })
}

/// Copies a tensor's elements, at `data`, into the caller's row-major buffer.
///
/// # Safety
/// `data` has the elements of `meta`, in its order.
unsafe fn fill(meta: &TensorMeta, data: *const u8, buffer: &OutputBuffer<'_>) -> Result<()> {
    if *buffer.shape != **meta.shape() {
        return Err(Error::input("an output buffer has another shape than the output of this call")
            .expected(meta.shape().to_string())
            .got(format!("{:?}", buffer.shape))
            .hint("the shape follows from the inputs of this call; bind a buffer of it, or none"));
    }
    let row_major = DimOrder::contiguous(meta.rank()).strides(meta.shape());
    if meta.nbytes() == 0 || (std::ptr::eq(data, buffer.data) && row_major == *meta.strides()) {
        // Nothing to copy, or computed in place.
        return Ok(());
    }
    // SAFETY: the caller's promise. The buffer is valid for writes of the same shape by its contract. It may overlap an input that the slot still shows (an output that
    // is an input, unchanged), so the dense case uses a copy that allows overlap, and the other case goes
    // through memory of its own.
    unsafe {
        if row_major == *meta.strides() {
            std::ptr::copy(data, buffer.data, meta.nbytes());
        } else {
            let own = AlignedBuffer::copy_of(std::slice::from_raw_parts(data, meta.nbytes()))?;
            copy_strided(
                meta.shape(),
                meta.dtype(),
                Layout { data: own.as_ptr().cast_const(), strides: signed(meta.strides()) },
                Layout { data: buffer.data, strides: signed(&row_major) },
            );
        }
    }
    Ok(())
}
