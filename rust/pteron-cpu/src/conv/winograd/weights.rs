//! Weights of [`super`] in the transform's domain: G·g·Gᵀ of every 3 × 3 window g, as 16 matrices of input ×
//! output channels in panels of 32 outputs.

use crate::conv::f32_conv_nr32_v1::{PANEL, five_dimensional};
use crate::conv::geometry::Geometry;
use pteron_core::{AlignedBuffer, ConstantView, DType, Error, PackStore, Result, TensorSpec};
use std::sync::Arc;

/// Elements of a transformed window.
pub const POINTS: usize = 16;
/// Name under which the result is shared.
const RECIPE: &str = "winograd F(2x2, 3x3), panels of 32";

/// The transformed `weight`: row-major [16, ceil(O / 32), I, 32], zeros where outputs are missing. Computed in
/// f64 and rounded once. `None` for a weight whose layout has no name.
pub fn transformed(
    packs: &PackStore,
    weight: &ConstantView<'_>,
    geometry: &Geometry,
) -> Result<Option<Arc<AlignedBuffer>>> {
    let Some(view) = five_dimensional(weight, geometry)? else { return Ok(None) };
    let panels = geometry.out_channels.div_ceil(PANEL);
    let spec = TensorSpec::contiguous(DType::Float32, &[POINTS, panels, geometry.in_channels, PANEL])?;
    let made = packs.derive(RECIPE, &[view], &spec, &mut |sources| match sources {
        [view] => transform(view, &spec).map(Some),
        _ => Err(Error::internal("the transform has one source")),
    })?;
    Ok(made.map(|(_, data)| data))
}

fn transform(view: &ConstantView<'_>, spec: &TensorSpec) -> Result<AlignedBuffer> {
    let data = view.elements::<f32>()?;
    let mut buffer = AlignedBuffer::zeroed_to_keep(spec.nbytes()?)?;
    let (panels, inputs, outputs) = (spec.shape[1], spec.shape[2], view.shape[1]);
    let points = panels * inputs * PANEL;
    let target = buffer.as_mut_elements::<f32>();
    // Outputs innermost: neighbours in the target.
    for i in 0..inputs {
        for o in 0..outputs {
            let first = view.position(&[0, o, i, 0, 0]);
            let mut window = [[0f64; 3]; 3];
            for (y, row) in window.iter_mut().enumerate() {
                for (x, slot) in row.iter_mut().enumerate() {
                    let at = first + y * view.strides[3] + x * view.strides[4];
                    let v = data.get(at).ok_or_else(|| Error::program("weight leaves its storage"))?;
                    *slot = f64::from(*v);
                }
            }
            let at = (o / PANEL * inputs + i) * PANEL + o % PANEL;
            for (point, v) in transform_window(&window).into_iter().enumerate() {
                let slot = target.get_mut(point * points + at);
                *slot.ok_or_else(|| Error::internal("transformed weights are too small"))? = v as f32;
            }
        }
    }
    Ok(buffer)
}

/// G·g·Gᵀ, row-major.
fn transform_window(g: &[[f64; 3]; 3]) -> [f64; POINTS] {
    let line = |[a, b, c]: [f64; 3]| [a, (a + b + c) / 2.0, (a - b + c) / 2.0, c];
    let columns = [0, 1, 2].map(|x| line([g[0][x], g[1][x], g[2][x]]));
    let mut out = [0.0; POINTS];
    for (y, row) in out.chunks_exact_mut(4).enumerate() {
        row.copy_from_slice(&line([columns[0][y], columns[1][y], columns[2][y]]));
    }
    out
}
