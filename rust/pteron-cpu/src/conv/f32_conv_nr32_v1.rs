//! Packed format `f32_conv_nr32_v1`: convolution weights as panels of 32 output channels.
//!
//! The weight is seen as [G, O, I, KH, KW] (groups, output channels of a group, input channels of a group,
//! kernel; the depth of a three-dimensional kernel counts into KH). The pack is the row-major f32 array
//! [G, ceil(O / 32), KH, KW, I, 32]: element (g, p, ky, kx, i, c) is weight (g, 32 p + c, i, ky, kx), or zero
//! where 32 p + c ≥ O. It holds numbers only and is the same for every instruction set.

use super::geometry::Geometry;
pub use super::window_panel::PANEL;
use super::window_panel::WindowPanels;
use crate::packed::{PackedFormat, in_parts};
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Dims, PackKey, PackStore, PackedBytes, Result,
};
use std::sync::Arc;

/// Name of the format.
pub const FORMAT: &str = "f32_conv_nr32_v1";

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
    cpu: &CpuProfile,
    weight: &ConstantView<'_>,
    geometry: &Geometry,
) -> Result<Option<Arc<PackedBytes>>> {
    let Some(view) = five_dimensional(weight, geometry)? else { return Ok(None) };
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack(cpu, &view)).map(Some)
}

fn pack(cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let windows = WindowPanels::new(cpu.isa, view)?;
    let (floats, panels) = (windows.panel_floats()?, windows.count());
    let mut pack = AlignedBuffer::zeroed_to_keep(PACKED.nbytes(DType::Float32, &view.shape)?)?;
    if !pack.is_empty() {
        in_parts(cpu.load_threads, pack.as_mut_elements::<f32>(), floats, &|i, panel| {
            windows.copy(i / panels, i % panels, panel);
        });
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
