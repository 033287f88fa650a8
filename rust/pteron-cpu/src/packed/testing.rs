//! Constants for tests of packing.

use pteron_core::{ConstantKey, ConstantView, DType, Dims};

/// A float32 constant in `data`: first element, extents, strides in elements.
pub(crate) fn view<'a>(
    data: &'a [f32],
    offset: usize,
    shape: &[usize],
    strides: &[usize],
) -> ConstantView<'a> {
    ConstantView {
        key: ConstantKey { origin: 0, offset: 0, nbytes: size_of_val(data) as u64 },
        data: bytemuck::cast_slice(data),
        dtype: DType::Float32,
        offset,
        shape: Dims::new(shape).unwrap(),
        strides: Dims::new(strides).unwrap(),
    }
}
