//! Packed format `f32_conv_groups_v1`: convolution weights with the output channels of a group side by side, for
//! groups that would leave most of a panel of 32 empty.
//!
//! The weight is seen as [G, O, I, KH, KW], as in [`super::f32_conv_nr32_v1`]. The pack is the row-major f32
//! array [G, KH, KW, I, O]. It holds numbers only and is the same for every instruction set.

use super::f32_conv_nr32_v1::five_dimensional;
use super::geometry::Geometry;
use crate::packed::PackedFormat;
use pteron_core::{AlignedBuffer, ConstantView, DType, Error, PackKey, PackStore, PackedBytes, Result};
use std::sync::Arc;

/// Name of the format.
pub const FORMAT: &str = "f32_conv_groups_v1";

/// The format as a table entry: the shape is [G, O, I, KH, KW].
pub const PACKED: PackedFormat = PackedFormat {
    name: FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| match *shape {
        [g, o, i, kh, kw] => [o, i, kh, kw].iter().try_fold(g, |n, d| n.checked_mul(*d)),
        _ => None,
    },
};

/// The pack of `weight` from `packs`, made if it is not there yet; `None` for a weight that lies in a way
/// that the format has no key for.
pub fn packed(
    packs: &PackStore,
    weight: &ConstantView<'_>,
    geometry: &Geometry,
) -> Result<Option<Arc<PackedBytes>>> {
    let Some(view) = five_dimensional(weight, geometry)? else { return Ok(None) };
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack(&view)).map(Some)
}

fn pack(view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let data = view.elements::<f32>()?;
    let [groups, outputs, inputs, kh, kw] = [0, 1, 2, 3, 4].map(|d| view.shape[d]);
    let mut pack = AlignedBuffer::zeroed_to_keep(PACKED.nbytes(DType::Float32, &view.shape)?)?;
    let mut slots = pack.as_mut_elements::<f32>().iter_mut();
    for g in 0..groups {
        for ky in 0..kh {
            for kx in 0..kw {
                for i in 0..inputs {
                    let first = view.position(&[g, 0, i, ky, kx]);
                    for (o, slot) in slots.by_ref().take(outputs).enumerate() {
                        *slot = *data
                            .get(first + o * view.strides[1])
                            .ok_or_else(|| Error::program("convolution weight leaves its storage"))?;
                    }
                }
            }
        }
    }
    Ok(pack)
}
