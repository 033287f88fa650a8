//! What a `pteron.Tensor` stands for. Unsafe island (the slot of a delegate's output, which is lent for one call).

use crate::errors::OrRaise;
use pteron_core::{AlignedBuffer, TensorMeta, TensorSlot};
use pteron_runtime::{Export, LentTensor, Memory};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// Memory with dtype and shape, that a tensor owns or was lent.
pub struct TensorMemory {
    /// The bytes, with a count of who looks at them.
    pub memory: Arc<Memory>,
    /// May the elements be changed?
    pub is_writable: bool,
    layout: Mutex<Layout>,
    /// The export that a view of another tensor's memory counts as.
    _export: Option<Export>,
}

struct Layout {
    meta: TensorMeta,
    /// The output of a delegate call that this tensor stands for, until the call ends.
    slot: Option<SlotPtr>,
}

struct SlotPtr(NonNull<TensorSlot>);

// SAFETY: the pointer is used only under the `layout` lock, and taken out before the call that lent it
// ends (`TensorMemory::revoke`).
unsafe impl Send for SlotPtr {}

impl TensorMemory {
    /// A tensor that owns its memory.
    pub fn owned(meta: TensorMeta, data: AlignedBuffer) -> Self {
        TensorMemory {
            memory: Arc::new(Memory::owned(data)),
            is_writable: true,
            layout: Mutex::new(Layout { meta, slot: None }),
            _export: None,
        }
    }

    /// An output that a session lends until its next call: to be read, since it may be state.
    pub fn lent_by_session(lent: LentTensor) -> Self {
        let (meta, memory) = lent.into_parts();
        TensorMemory {
            memory,
            is_writable: false,
            layout: Mutex::new(Layout { meta, slot: None }),
            _export: None,
        }
    }

    /// An input of a delegate call.
    ///
    /// # Safety
    /// `data` must stay valid and unchanged until [`TensorMemory::revoke`], and as long as an export lives.
    pub unsafe fn lent_input(meta: TensorMeta, data: *const u8) -> Self {
        TensorMemory {
            // SAFETY: the caller promises that the bytes stay until `revoke`, and as long as an export lives.
            memory: Arc::new(unsafe { Memory::lent(data.cast_mut()) }),
            is_writable: false,
            layout: Mutex::new(Layout { meta, slot: None }),
            _export: None,
        }
    }

    /// An output of a delegate call.
    ///
    /// # Safety
    /// `slot` must stay valid, and be used by nobody else, until [`TensorMemory::revoke`] was called.
    pub unsafe fn lent_output(slot: &mut TensorSlot) -> Self {
        TensorMemory {
            // SAFETY: the caller promises that the slot's bytes stay, and are nobody else's, until `revoke`.
            memory: Arc::new(unsafe { Memory::lent(slot.data()) }),
            is_writable: true,
            layout: Mutex::new(Layout {
                meta: slot.meta().clone(),
                slot: Some(SlotPtr(NonNull::from_mut(slot))),
            }),
            _export: None,
        }
    }

    /// The same memory as a row-major tensor of `meta`, which must have as many bytes.
    pub fn in_memory_order(&self, meta: TensorMeta) -> PyResult<Self> {
        let export = Export::of(&self.memory).ok_or_else(|| self.expired())?;
        Ok(TensorMemory {
            memory: self.memory.clone(),
            is_writable: self.is_writable,
            layout: Mutex::new(Layout { meta, slot: None }),
            _export: Some(export),
        })
    }

    /// Ends the loan: no export can be made from now on.
    pub fn revoke(&self) {
        self.layout().slot = None;
        self.memory.revoke();
    }

    /// Are there exports alive?
    pub fn has_exports(&self) -> bool {
        self.memory.exports() != 0
    }

    /// Reads dtype, shape and strides as they are now.
    pub fn with_meta<T>(&self, read: impl FnOnce(&TensorMeta) -> T) -> T {
        read(&self.layout().meta)
    }

    fn layout(&self) -> MutexGuard<'_, Layout> {
        // A panic cannot leave a layout half written: every change is one assignment.
        self.layout.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts an export and reads memory and metadata; an error after the loan has ended. The export is
    /// the reader's to release, through the memory it is given.
    pub fn export<T>(&self, read: impl FnOnce(&Arc<Memory>, *mut u8, &TensorMeta) -> T) -> PyResult<T> {
        let layout = self.layout();
        match self.memory.export() {
            Some(data) => Ok(read(&self.memory, data, &layout.meta)),
            None => Err(self.expired()),
        }
    }

    /// The error for a look at memory that went back to its owner.
    #[cold]
    fn expired(&self) -> PyErr {
        PyBufferError::new_err(if self.memory.is_of_session() { TAKEN_BACK } else { EXPIRED })
    }

    /// Gives an output of a running delegate call other extents; refused while exports are alive, and for other tensors.
    pub fn resize(&self, py: Python<'_>, shape: &[usize]) -> PyResult<()> {
        let mut layout = self.layout();
        let Some(slot) = &layout.slot else {
            return Err(match self.memory.is_dead() {
                true => self.expired(),
                false => PyBufferError::new_err("only an output of a running delegate call can be resized"),
            });
        };
        if self.memory.exports() != 0 {
            return Err(PyBufferError::new_err(
                "resize the output before looking at it: exports of its memory are alive",
            ));
        }
        // SAFETY: the slot is there, so the loan has not ended (`lent_output`), and the lock is held.
        let slot = unsafe { &mut *slot.0.as_ptr() };
        slot.resize(shape).or_raise(py)?;
        layout.meta = slot.meta().clone();
        Ok(())
    }
}

const EXPIRED: &str = "this pteron.Tensor was an argument of a delegate call that has ended; copy what is needed \
                       while execute runs, for example with numpy.array(tensor)";
const TAKEN_BACK: &str = "this pteron.Tensor was lent by a method (copy=False) that has been called again; look at it \
                          before the next call, or leave copy=False out";
