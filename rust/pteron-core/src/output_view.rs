//! An output of a delegate call. Unsafe island (its slot, lent).

use crate::{DType, Dims, Result, TensorMeta, TensorSlot, TensorViewMut};

/// One output of a delegate call: a tensor to write, which may be given a smaller shape within its bound.
pub struct OutputView<'a> {
    slot: &'a mut TensorSlot,
}

impl<'a> OutputView<'a> {
    /// The output in `slot`, which must have memory (the contract of `pteron_core::tensor`).
    pub fn new(slot: &'a mut TensorSlot) -> Self {
        OutputView { slot }
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.slot.meta().dtype()
    }
    /// Current extents.
    pub fn shape(&self) -> &Dims {
        self.slot.meta().shape()
    }
    /// All metadata.
    pub fn meta(&self) -> &TensorMeta {
        self.slot.meta()
    }
    /// Gives the output its extents for this call.
    pub fn resize(&mut self, shape: &[usize]) -> Result<()> {
        self.slot.resize(shape)
    }
    /// The tensor to write.
    pub fn view_mut(&mut self) -> TensorViewMut<'_> {
        self.slot.view_mut()
    }
    /// Largest extents: as many elements as these may be asked for.
    pub fn bound(&self) -> &Dims {
        self.slot.bound()
    }
    /// Bytes of the memory.
    pub fn capacity(&self) -> usize {
        self.slot.capacity()
    }
    /// Start of the memory.
    pub fn data(&mut self) -> *mut u8 {
        self.slot.data()
    }

    /// The slot itself, for bindings that lend it to another language.
    ///
    /// # Safety
    /// It must stay the session's: not exchanged for another, nor pointed at other memory.
    pub unsafe fn slot(&mut self) -> &mut TensorSlot {
        self.slot
    }
}
