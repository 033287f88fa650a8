//! A tensor with memory of its own. Unsafe island (its views).

use crate::{AlignedBuffer, Element, Error, Result, TensorMeta, TensorView, TensorViewMut};

/// A tensor with memory of its own, dense in its `dim_order`.
#[derive(Debug)]
pub struct OwnedTensor {
    /// dtype, shape, strides.
    pub meta: TensorMeta,
    /// At least `meta.nbytes()` bytes.
    pub data: AlignedBuffer,
}

impl OwnedTensor {
    /// The elements in memory order; an error for another dtype.
    pub fn elements<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.meta.dtype() {
            return Err(Error::input_type("output has another dtype")
                .expected(T::DTYPE.name())
                .got(self.meta.dtype().name()));
        }
        let all = self.data.as_elements::<T>();
        all.get(..self.meta.numel()).ok_or_else(|| Error::internal("output is smaller than its shape"))
    }

    /// The bytes in memory order.
    pub fn bytes(&self) -> &[u8] {
        self.data.as_slice().get(..self.meta.nbytes()).unwrap_or_default()
    }

    /// The tensor, for reading; an error when the memory is too small for it.
    pub fn view(&self) -> Result<TensorView<'_>> {
        if self.data.len() < self.meta.nbytes() {
            return Err(Error::internal("a tensor's memory is smaller than its shape"));
        }
        // SAFETY: just checked; a buffer is aligned for every dtype and borrowed with `self`.
        Ok(unsafe { TensorView::from_raw(self.data.as_ptr(), &self.meta) })
    }

    /// The tensor, for writing; an error when the memory is too small for it.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>> {
        if self.data.len() < self.meta.nbytes() {
            return Err(Error::internal("a tensor's memory is smaller than its shape"));
        }
        // SAFETY: just checked; a buffer is aligned for every dtype and exclusively borrowed with `self`.
        Ok(unsafe { TensorViewMut::from_raw(self.data.as_ptr(), &self.meta) })
    }
}
