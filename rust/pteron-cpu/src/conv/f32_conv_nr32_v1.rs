//! Packed format `f32_conv_nr32_v1`: convolution weights as panels of 32 output channels.
//!
//! The weight is seen as [G, O, I, KH, KW] (groups, output channels of a group, input channels of a group,
//! kernel; the depth of a three-dimensional kernel counts into KH). The pack is the row-major f32 array
//! [G, ceil(O / 32), KH, KW, I, 32]: element (g, p, ky, kx, i, c) is weight (g, 32 p + c, i, ky, kx), or zero
//! where 32 p + c ≥ O. It holds numbers only and is the same for every instruction set.

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

/// `weight` ([G·O, I, kernel], or [G·I, O, kernel] for a transposed convolution) as [G, O, I, KH, KW], so that
/// the key of the pack tells groups and direction apart. `None` when depth and height of the kernel do
/// not lie as one dimension.
pub(super) fn five_dimensional<'a>(
    weight: &ConstantView<'a>,
    geometry: &Geometry,
) -> Result<Option<ConstantView<'a>>> {
    let s = weight.strides;
    let [depth, height, width] = geometry.kernel;
    let (rank, mut vertical) = (geometry.spatial_rank, 0);
    if rank >= 2 {
        vertical = s[rank];
    }
    if rank == 3 && depth > 1 {
        if height > 1 && s[2] != height * s[3] {
            return Ok(None);
        }
        vertical = if height > 1 { s[3] } else { s[2] };
    }
    let mut view = *weight;
    view.shape =
        Dims::new(&[geometry.groups, geometry.out_channels, geometry.in_channels, depth * height, width])?;
    let (output, input, group) = match geometry.is_transposed {
        true => (s[1], s[0], s[0] * geometry.in_channels),
        false => (s[0], s[1], s[0] * geometry.out_channels),
    };
    view.strides = Dims::new(&[group, output, input, vertical, s[rank + 1]])?;
    Ok(Some(view))
}

/// The pack of `weight` from `packs`, made if it is not there yet; `None` for a weight that lies in a way
/// that the format has no key for.
pub fn packed(
    packs: &PackStore,
    weight: &ConstantView<'_>,
    geometry: &Geometry,
) -> Result<Option<Arc<PackedBytes>>> {
    let Some(view) = five_dimensional(weight, geometry)? else { return Ok(None) };
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack_panels(&view, PANEL)).map(Some)
}

/// The weight as panels of `width` output channels, the last one filled up with zeros.
pub(super) fn pack_panels(view: &ConstantView<'_>, width: usize) -> Result<AlignedBuffer> {
    let data = view.elements::<f32>()?;
    let [groups, outputs, inputs, kh, kw] = [0, 1, 2, 3, 4].map(|d| view.shape[d]);
    let panels = outputs.div_ceil(width);
    let numel = Dims::new(&[groups, panels, kh, kw, inputs, width])?.numel()?;
    let mut pack = AlignedBuffer::zeroed_to_keep(numel * size_of::<f32>())?;
    let mut rows = pack.as_mut_elements::<f32>().chunks_exact_mut(width);
    for g in 0..groups {
        for p in 0..panels {
            let columns = width.min(outputs - p * width);
            for ky in 0..kh {
                for kx in 0..kw {
                    for i in 0..inputs {
                        let Some(row) = rows.next() else { return Err(Error::internal("pack is too small")) };
                        let first = view.position(&[g, p * width, i, ky, kx]);
                        for (c, slot) in row.iter_mut().enumerate().take(columns) {
                            *slot = *data
                                .get(first + c * view.strides[1])
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
    let taps = geometry.taps();
    let (outputs, inputs) = (geometry.out_channels, geometry.in_channels);
    let panels = outputs.div_ceil(PANEL);
    let mut out = Vec::with_capacity(geometry.groups * outputs * geometry.depth());
    for g in 0..geometry.groups {
        for o in 0..outputs {
            for i in 0..inputs {
                for tap in 0..taps {
                    let row = ((g * panels + o / PANEL) * taps + tap) * inputs + i;
                    out.push(pack[row * PANEL + o % PANEL]);
                }
            }
        }
    }
    out
}
