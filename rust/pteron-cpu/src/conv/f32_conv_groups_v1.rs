//! Packed format `f32_conv_groups_v1`: convolution weights with the output channels of a group side by side, for
//! groups that would leave most of a panel of 32 empty.
//!
//! The weight is seen as [G, O, I, KH, KW], as in [`super::f32_conv_nr32_v1`]. The pack is the row-major f32
//! array [G, KH, KW, I, O]. It holds numbers only and is the same for every instruction set.

use super::f32_conv_nr32_v1::{five_dimensional, pack_panels};
use super::geometry::Geometry;
use crate::packed::PackedFormat;
use pteron_core::{ConstantView, DType, PackKey, PackStore, PackedBytes, Result};
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
    position: |shape, index| match (shape, index) {
        (&[_, outputs, inputs, kh, kw], &[g, o, i, ky, kx]) => {
            (((g * kh + ky) * kw + kx) * inputs + i) * outputs + o
        }
        _ => 0,
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
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack_panels(&view, geometry.out_channels)).map(Some)
}
