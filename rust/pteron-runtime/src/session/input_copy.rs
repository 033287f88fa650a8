//! Tensors of callers brought into a session: in place where they may and can be, else as a copy. Unsafe island.

use crate::TensorInput;
use crate::load::input_rule::TensorRule;
use pteron_core::{
    AlignedBuffer, DimOrder, Dims, Error, MAX_RANK, OutputView, OwnedTensor, Result, TensorMeta, TensorSlot,
};
use pteron_kernels::strided::copy::{Layout, copy_strided};
use pteron_kernels::strided::loops::signed;
use std::ops::Range;

impl TensorInput<'_> {
    /// A row-major copy of the elements.
    pub fn to_owned_tensor(&self) -> Result<OwnedTensor> {
        let meta = TensorMeta::contiguous(self.dtype, self.shape)?;
        let data = AlignedBuffer::zeroed(meta.nbytes())?;
        // SAFETY: fresh memory of `meta.nbytes()` bytes; the input's own contract.
        unsafe { copy_strided_into(data.as_ptr(), &meta, self) };
        Ok(OwnedTensor { meta, data })
    }
}

impl TensorInput<'_> {
    /// Copies the elements into `output`, which takes the shape; the memory of the two may be the same.
    ///
    /// Errors: `Kernel` for another element type, or a shape beyond the bound of the output; `LimitExceeded` where there
    /// is no memory for a copy.
    pub fn copy_into_output(&self, output: &mut OutputView<'_>) -> Result<()> {
        let expected = format!("{}{}", output.dtype(), output.bound());
        let wrong = |what: &str| {
            Error::kernel(format!("a result has another {what} than the program states"))
                .expected(expected.as_str())
                .got(format!("{}{:?}", self.dtype, self.shape))
        };
        if self.dtype != output.dtype() {
            return Err(wrong("element type"));
        }
        let bound = output.bound();
        if self.shape.len() != bound.len() || self.shape.iter().zip(bound.iter()).any(|(n, most)| n > most) {
            return Err(wrong("shape"));
        }
        output.resize(self.shape).map_err(|_| wrong("shape"))?;
        let meta = output.meta().clone();
        let (from, to) = (self.byte_range(), output.data() as usize);
        if from.start < to.saturating_add(meta.nbytes()) && to < from.end {
            let copy = self.to_owned_tensor()?;
            let strides = signed(copy.meta.strides());
            let strides = strides.get(..copy.meta.rank());
            // SAFETY: the copy has the elements, and lives until the end of this block.
            let copied = unsafe { TensorInput::new(self.dtype, self.shape, strides, copy.data.as_ptr()) };
            // SAFETY: after `resize` the output has room for the shape; the copy is apart from it.
            unsafe { copy_strided_into(output.data(), &meta, &copied) };
            return Ok(());
        }
        // SAFETY: after `resize` the output has room for the shape, apart from the input, as was just seen.
        unsafe { copy_strided_into(output.data(), &meta, self) };
        Ok(())
    }

    /// The addresses that the elements reach over.
    fn byte_range(&self) -> Range<usize> {
        let size = signed_size(self.dtype.size());
        let start = self.data as usize;
        if self.shape.contains(&0) {
            return start..start;
        }
        let (mut low, mut high) = (0isize, size);
        for (extent, stride) in self.shape.iter().zip(input_strides(self)) {
            let reach = signed_size(extent.saturating_sub(1)).saturating_mul(stride).saturating_mul(size);
            low = low.saturating_add(reach.min(0));
            high = high.saturating_add(reach.max(0));
        }
        start.saturating_add_signed(low)..start.saturating_add_signed(high)
    }
}

fn signed_size(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// Strides of an input, row-major where it states none.
fn input_strides(input: &TensorInput<'_>) -> [isize; MAX_RANK] {
    match input.strides {
        Some(strides) => {
            let mut out = [0isize; MAX_RANK];
            for (o, s) in out.iter_mut().zip(strides) {
                *o = *s;
            }
            out
        }
        None => Dims::new(input.shape)
            .map(|shape| signed(&DimOrder::contiguous(shape.len()).strides(&shape)))
            .unwrap_or([0; MAX_RANK]),
    }
}

/// Do the elements of an input lie side by side, in the order `order`?
fn is_dense(input: &TensorInput<'_>, order: &DimOrder) -> bool {
    match input.strides {
        Some(strides) => order.is_dense(input.shape, strides),
        None => order.is_contiguous() || order.is_dense(input.shape, &input_strides(input)),
    }
}

/// Gives the slot the input's shape and bytes: in place where it may and can be, else as a copy.
pub(crate) fn bring_in(
    slot: &mut TensorSlot,
    rule: &TensorRule,
    input: &TensorInput<'_>,
    copy: &mut Option<AlignedBuffer>,
) -> Result<()> {
    if rule.is_planned {
        slot.resize(input.shape)?;
        // SAFETY: planned memory of this session, large enough after `resize`; callers' memory never
        // overlaps it; the input's own contract.
        unsafe { copy_into(slot.data(), slot, input) };
        return Ok(());
    }
    let shape = Dims::new(input.shape)?;
    let nbytes = pteron_core::sizes::checked_nbytes(&shape, rule.dtype)?;
    let is_aligned = (input.data as usize).is_multiple_of(rule.dtype.align());
    if !rule.is_copied && is_aligned && is_dense(input, &rule.dim_order) {
        // SAFETY: the input is dense, aligned, and valid for the run by its own contract. Load makes sure
        // that nothing writes to it (`is_copied` otherwise).
        unsafe { slot.set_data(input.data.cast_mut(), nbytes) };
        return slot.resize(input.shape);
    }
    // A copy that instructions may write needs room for whatever shape they give it.
    let room = pteron_core::sizes::checked_nbytes(slot.bound(), rule.dtype)?.max(nbytes);
    if copy.as_ref().is_none_or(|c| c.len() < room) {
        *copy = Some(AlignedBuffer::zeroed(room)?);
    }
    let Some(buffer) = copy else { return Ok(()) };
    // SAFETY: the buffer is kept by the session.
    unsafe { slot.set_data(buffer.as_ptr(), room) };
    slot.resize(input.shape)?;
    // SAFETY: `room` covers the shape; the input's own contract.
    unsafe { copy_into(slot.data(), slot, input) };
    Ok(())
}

/// # Safety
/// `to` must be valid for writes of the slot's current bytes and not overlap the input, whose shape is
/// the slot's.
pub(crate) unsafe fn copy_into(to: *mut u8, slot: &TensorSlot, input: &TensorInput<'_>) {
    // SAFETY: the caller promises room for the slot's bytes, apart from the input, whose shape is the slot's.
    unsafe { copy_strided_into(to, slot.meta(), input) }
}

/// # Safety
/// As `copy_into`, with `meta` for the slot's.
unsafe fn copy_strided_into(to: *mut u8, meta: &TensorMeta, input: &TensorInput<'_>) {
    // Most inputs, and a fifth of the time of a small call without this.
    if is_dense(input, meta.dim_order()) {
        if meta.nbytes() > 0 {
            // SAFETY: both sides lie in one order and are `nbytes` long; the caller promises that they are apart.
            unsafe { std::ptr::copy_nonoverlapping(input.data, to, meta.nbytes()) };
        }
        return;
    }
    // SAFETY: the input's contract for its elements, the caller's for the target.
    unsafe {
        copy_strided(
            input.shape,
            meta.dtype(),
            Layout { data: input.data, strides: input_strides(input) },
            Layout { data: to, strides: signed(meta.strides()) },
        )
    }
}
