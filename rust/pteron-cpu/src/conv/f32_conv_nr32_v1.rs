//! Packed format `f32_conv_nr32_v1`: convolution weights as panels of 32 output channels.
//!
//! The weight is seen as [G, O, I, KH, KW] (groups, output channels of a group, input channels of a group,
//! kernel). The pack is the row-major f32 array [G, ceil(O / 32), KH, KW, I, 32]: element
//! (g, p, ky, kx, i, c) is weight (g, 32 p + c, i, ky, kx), or zero where 32 p + c ≥ O. It holds numbers only and
//! is the same for every instruction set.

use super::geometry::Geometry;
use crate::packed::PackedFormat;
use pteron_core::{AlignedBuffer, ConstantView, DType, Dims, Error, PackKey, PackStore, PackedBytes, Result};
use std::sync::Arc;

/// Name of the format.
pub const FORMAT: &str = "f32_conv_nr32_v1";
/// Output channels of a panel.
pub const PANEL: usize = 32;

/// The format as a table entry: the shape is [G, O, I, KH, KW].
pub const PACKED: PackedFormat = PackedFormat {
    name: FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| match *shape {
        [g, o, i, kh, kw] => {
            [o.div_ceil(PANEL), kh, kw, i, PANEL].iter().try_fold(g, |n, d| n.checked_mul(*d))
        }
        _ => None,
    },
    position: |shape, index| match (shape, index) {
        (&[_, outputs, inputs, kh, kw], &[g, o, i, ky, kx]) => {
            let panel = g * outputs.div_ceil(PANEL) + o / PANEL;
            (((panel * kh + ky) * kw + kx) * inputs + i) * PANEL + o % PANEL
        }
        _ => 0,
    },
};

/// `weight` ([G·O, I, KH, KW] or [G·O, I, KW]) as [G, O, I, KH, KW], so that the key of the pack tells groups apart.
fn five_dimensional<'a>(weight: &ConstantView<'a>, geometry: &Geometry) -> Result<ConstantView<'a>> {
    let s = weight.strides;
    let vertical = if geometry.spatial_rank == 1 { 0 } else { s[2] };
    let mut view = *weight;
    let [kh, kw] = geometry.kernel;
    view.shape = Dims::new(&[geometry.groups, geometry.out_channels, geometry.in_channels, kh, kw])?;
    view.strides =
        Dims::new(&[s[0] * geometry.out_channels, s[0], s[1], vertical, s[geometry.spatial_rank + 1]])?;
    Ok(view)
}

/// The pack of `weight` from `packs`, made if it is not there yet.
pub fn packed(packs: &PackStore, weight: &ConstantView<'_>, geometry: &Geometry) -> Result<Arc<PackedBytes>> {
    let view = five_dimensional(weight, geometry)?;
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack(&view))
}

fn pack(view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let data = view.elements::<f32>()?;
    let [groups, outputs, inputs, kh, kw] = [0, 1, 2, 3, 4].map(|d| view.shape[d]);
    let panels = outputs.div_ceil(PANEL);
    let numel = Dims::new(&[groups, panels, kh, kw, inputs, PANEL])?.numel()?;
    let mut pack = AlignedBuffer::zeroed(numel * size_of::<f32>())?;
    let mut rows = pack.as_mut_elements::<f32>().chunks_exact_mut(PANEL);
    for g in 0..groups {
        for p in 0..panels {
            let columns = PANEL.min(outputs - p * PANEL);
            for ky in 0..kh {
                for kx in 0..kw {
                    for i in 0..inputs {
                        let Some(row) = rows.next() else { return Err(Error::internal("pack is too small")) };
                        for (c, slot) in row.iter_mut().enumerate().take(columns) {
                            let at = view.position(&[g, p * PANEL + c, i, ky, kx]);
                            *slot = *data
                                .get(at)
                                .ok_or_else(|| Error::program("convolution weight leaves its storage"))?;
                        }
                    }
                }
            }
        }
    }
    Ok(pack)
}

/// The weight back from its pack, as a row-major [G, O, I, KH, KW].
pub fn unpack(pack: &[f32], geometry: &Geometry) -> Vec<f32> {
    let [kh, kw] = geometry.kernel;
    let (outputs, inputs) = (geometry.out_channels, geometry.in_channels);
    let panels = outputs.div_ceil(PANEL);
    let mut out = Vec::with_capacity(geometry.groups * outputs * geometry.depth());
    for g in 0..geometry.groups {
        for o in 0..outputs {
            for i in 0..inputs {
                for tap in 0..kh * kw {
                    let row = ((g * panels + o / PANEL) * kh * kw + tap) * inputs + i;
                    out.push(pack[row * PANEL + o % PANEL]);
                }
            }
        }
    }
    out
}
