//! Packed format `f32_winograd_2x2_3x3_nr32_v1`: weights of [`super`] in the transform's domain.
//!
//! The weight is seen as [1, O, I, 3, 3], I the inputs of a group. The pack is the row-major f32 array [16, ceil(O / 32), I, 32]: element
//! (4 y + x, p, i, c) is element (y, x) of G·g·Gᵀ for the window g of output 32 p + c and input i, or zero where
//! 32 p + c ≥ O. It is the same for every instruction set. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use crate::conv::f32_conv_nr32_v1::{PANEL, five_dimensional};
use crate::conv::geometry::Geometry;
use crate::conv::window_panel::{NO_ROWS, RowSteps, Rows, WindowPanels};
use crate::packed::{PackedFormat, share};
use pteron_core::{AlignedBuffer, ConstantView, CpuProfile, DType, PackKey, PackStore, PackedBytes, Result};
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::sync::Arc;

/// Name of the format.
pub const FORMAT: &str = "f32_winograd_2x2_3x3_nr32_v1";
/// Elements of a transformed window.
pub const POINTS: usize = 16;
/// Elements of a window.
const TAPS: usize = 9;

/// The format as a table entry: the shape is [1, O, I, 3, 3].
pub const PACKED: PackedFormat = PackedFormat {
    name: FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| match *shape {
        [1, o, i, 3, 3] => [o.div_ceil(PANEL), i, PANEL].iter().try_fold(POINTS, |n, d| n.checked_mul(*d)),
        _ => None,
    },
};

/// The pack of `weight` from `packs`, made if it is not there yet; `None` for a weight that lies in a way
/// that the format has no key for.
pub fn packed(
    packs: &PackStore,
    cpu: &CpuProfile,
    weight: &ConstantView<'_>,
    geometry: &Geometry,
) -> Result<Option<Arc<PackedBytes>>> {
    // The outputs of all groups lie one behind the other.
    let whole = Geometry { groups: 1, out_channels: geometry.total_out_channels(), ..*geometry };
    let Some(view) = five_dimensional(weight, &whole)? else { return Ok(None) };
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack(cpu, &view)).map(Some)
}

fn pack(cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let windows = WindowPanels::new(cpu.isa, view)?;
    let mut pack = AlignedBuffer::zeroed_to_keep(PACKED.nbytes(DType::Float32, &view.shape)?)?;
    let (inputs, count, nbytes) = (view.shape[2], windows.count(), pack.len());
    if nbytes == 0 {
        return Ok(pack);
    }
    // Of every panel its matrix of each point.
    let mut panels: Vec<Vec<&mut [f32]>> = Vec::new();
    panels.resize_with(count, Vec::new);
    for (i, matrix) in pack.as_mut_elements::<f32>().chunks_exact_mut(inputs * PANEL).enumerate() {
        panels[i % count].push(matrix);
    }
    let level = SimdLevel::at_most(cpu.isa);
    share(cpu.load_threads, nbytes, panels.into_iter().enumerate(), &|(p, mut points)| {
        let mut rows = NO_ROWS;
        let most = windows.most_windows();
        for start in (0..inputs).step_by(most) {
            let count = most.min(inputs - start);
            let steps = windows.windows(0, p, start, count, &mut rows);
            level.dispatch(Transform { rows: &rows, steps, count, start, points: &mut points });
        }
    });
    Ok(pack)
}

/// G·g·Gᵀ of `count` windows of a panel that lie in `rows`, to rows `start` and on of the matrices of the points.
struct Transform<'a, 'b> {
    rows: &'a Rows,
    steps: RowSteps,
    count: usize,
    start: usize,
    points: &'a mut [&'b mut [f32]],
}

impl SimdTask for Transform<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Transform { rows, steps: RowSteps { tap, channel }, count, start, points } = self;
        let (end, step) = ((start + count) * PANEL, tap * PANEL);
        assert!((TAPS - 1) * tap + count.saturating_sub(1) * channel < rows.len());
        assert!(points.len() == POINTS && points.iter().all(|matrix| matrix.len() >= end));
        for i in 0..count {
            let from = rows[i * channel..].as_ptr().cast::<f32>();
            for c in (0..PANEL).step_by(S::LANES) {
                let at = (start + i) * PANEL + c;
                // SAFETY: the nine taps are rows of `rows`, and every matrix has the row `start + i`: both were
                // asserted.
                unsafe {
                    let from = from.add(c);
                    let left = column(s, from, step);
                    let middle = column(s, from.add(step), step);
                    let right = column(s, from.add(2 * step), step);
                    for (y, points) in points.chunks_exact_mut(4).enumerate() {
                        let point = line(s, [left[y], middle[y], right[y]]);
                        for (matrix, v) in points.iter_mut().zip(point) {
                            s.store(matrix.as_mut_ptr().add(at), v);
                        }
                    }
                }
            }
        }
    }
}

/// A column of the windows at `from`, whose taps are `step` apart, transformed.
///
/// # Safety
/// Its three taps are readable.
#[inline(always)]
unsafe fn column<S: Simd>(s: S, from: *const f32, step: usize) -> [S::F; 4] {
    // SAFETY: the three taps of a column are a row of the window apart, readable as the caller promises.
    unsafe { line(s, [s.load(from), s.load(from.add(3 * step)), s.load(from.add(6 * step))]) }
}

/// G·g for one line: g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2, the sums rounded twice. No fused products:
/// files hold what comes out, so it has to be the same on every processor.
#[inline(always)]
fn line<S: Simd>(s: S, [a, b, c]: [S::F; 3]) -> [S::F; 4] {
    let half = s.splat(0.5);
    let (outer, inner) = (s.add(s.mul(a, half), s.mul(c, half)), s.mul(b, half));
    [a, s.add(outer, inner), s.sub(outer, inner), c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::testing::view;
    use pteron_core::Isa;
    use pteron_kernels::cpu_detect::{available_isas, profile_for};

    #[test]
    fn windows_are_transformed_to_the_last_bits() {
        let (outputs, inputs) = (40, 33);
        let data: Vec<f32> = (0..outputs * inputs * TAPS).map(|i| (i as f32 * 0.7).sin()).collect();
        let shape = [1, outputs, inputs, 3, 3];
        let view = view(&data, 0, &shape, &[0, inputs * TAPS, TAPS, 3, 1]);
        const G: [[f64; 3]; 4] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
        let portable = pack(&profile_for(Isa::Portable).unwrap(), &view).unwrap();
        for isa in available_isas() {
            let pack = pack(&profile_for(isa).unwrap(), &view).unwrap();
            assert!(pack.as_slice() == portable.as_slice(), "{isa:?}");
            let points = pack.as_elements::<f32>();
            assert_eq!(points.len(), POINTS * 2 * inputs * PANEL);
            for (at, got) in points.iter().enumerate() {
                let (c, i) = (at % PANEL, at / PANEL % inputs);
                let (p, point) = (at / PANEL / inputs % 2, at / PANEL / inputs / 2);
                let (mut want, mut size, o) = (0.0, 0.0, p * PANEL + c);
                for tap in (0..TAPS).filter(|_| o < outputs) {
                    let weight = f64::from(data[(o * inputs + i) * TAPS + tap]);
                    let term = G[point / 4][tap / 3] * weight * G[point % 4][tap % 3];
                    (want, size) = (want + term, size + term.abs());
                }
                let error = (f64::from(*got) - want).abs();
                assert!(error <= 4.0 * f64::from(f32::EPSILON) / 2.0 * size, "{isa:?} {at}: {got} {want}");
            }
        }
    }
}
