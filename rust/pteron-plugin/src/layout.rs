//! Extents and strides of tensors as the other side reads them.

use crate::abi::PteronTensor;
use pteron_core::{ArgView, MAX_RANK, TensorMeta};

/// Extents and strides as the other side reads them.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

impl Layout {
    pub(crate) fn of(meta: &TensorMeta) -> Layout {
        let mut layout = Layout { shape: [0; MAX_RANK], strides: [0; MAX_RANK] };
        for (to, from) in layout.shape.iter_mut().zip(meta.shape().iter()) {
            *to = *from as i64;
        }
        for (to, from) in layout.strides.iter_mut().zip(meta.strides().iter()) {
            *to = *from as i64;
        }
        layout
    }

    /// The layout of an argument; none for what is no tensor.
    pub(crate) fn of_argument(argument: &ArgView<'_>) -> Layout {
        match argument {
            ArgView::Tensor(view) => Layout::of(view.meta()),
            _ => Layout { shape: [0; MAX_RANK], strides: [0; MAX_RANK] },
        }
    }

    pub(crate) fn tensor(&self, meta: &TensorMeta, data: *mut u8) -> PteronTensor {
        PteronTensor {
            data: data.cast(),
            dtype: i32::from(meta.dtype().code()),
            ndim: meta.rank() as i32,
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ptr(),
            nbytes: meta.nbytes(),
        }
    }
}
