//! Packed format `f32_winograd_2x2_3x3_nr32_v1`: weights of [`super`] in the transform's domain.
//!
//! The weight is seen as [1, O, I, 3, 3]. The pack is the row-major f32 array [16, ceil(O / 32), I, 32]: element
//! (4 y + x, p, i, c) is element (y, x) of G·g·Gᵀ for the window g of output 32 p + c and input i, or zero where
//! 32 p + c ≥ O. It is the same for every instruction set. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride, and chunks share the output")]

use crate::conv::f32_conv_nr32_v1::{PANEL, five_dimensional};
use crate::conv::geometry::Geometry;
use crate::conv::window_panel::WindowPanels;
use crate::packed::PackedFormat;
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Error, PackKey, PackStore, PackedBytes, Result,
};
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
    let Some(view) = five_dimensional(weight, geometry)? else { return Ok(None) };
    packs.get_or_pack(PackKey::new(&view, FORMAT), || pack(cpu, &view)).map(Some)
}

fn pack(cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let windows = WindowPanels::new(cpu.isa, view)?;
    let mut pack = AlignedBuffer::zeroed_to_keep(PACKED.nbytes(DType::Float32, &view.shape)?)?;
    let mut panel = AlignedBuffer::zeroed(windows.panel_floats()? * size_of::<f32>())?;
    let (inputs, all) = (view.shape[2], pack.len() / size_of::<f32>() / POINTS);
    let level = SimdLevel::at_most(cpu.isa);
    for p in 0..windows.count() {
        windows.copy(0, p, panel.as_mut_elements());
        let to = &mut pack.as_mut_elements::<f32>()[p * inputs * PANEL..];
        level.dispatch(Transform { windows: panel.as_elements(), inputs, to, between: all })?;
    }
    Ok(pack)
}

/// G·g·Gᵀ of the windows of a panel, [9, inputs, 32], to 16 matrices of `inputs` rows of 32 that are `between`
/// floats apart.
struct Transform<'a> {
    windows: &'a [f32],
    inputs: usize,
    to: &'a mut [f32],
    between: usize,
}

impl SimdTask for Transform<'_> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let Transform { windows, inputs, to, between } = self;
        let length = inputs * PANEL;
        if windows.len() != TAPS * length || to.len() < (POINTS - 1) * between + length {
            return Err(Error::internal("the transformed weights are too small"));
        }
        for at in (0..length).step_by(S::LANES) {
            // SAFETY: every tap has `length` elements, whole vectors, and so has every point: both were checked.
            unsafe {
                let (from, to) = (windows.as_ptr().add(at), to.as_mut_ptr().add(at));
                let left = column(s, from, length);
                let middle = column(s, from.add(length), length);
                let right = column(s, from.add(2 * length), length);
                put(s, line(s, [left[0], middle[0], right[0]]), to, between);
                put(s, line(s, [left[1], middle[1], right[1]]), to.add(4 * between), between);
                put(s, line(s, [left[2], middle[2], right[2]]), to.add(8 * between), between);
                put(s, line(s, [left[3], middle[3], right[3]]), to.add(12 * between), between);
            }
        }
        Ok(())
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

/// # Safety
/// Four whole vectors, `between` apart, are writable.
#[inline(always)]
pub(super) unsafe fn put<S: Simd>(s: S, v: [S::F; 4], to: *mut f32, between: usize) {
    // SAFETY: the four vectors are those that the caller promises to be writable.
    unsafe {
        s.store(to, v[0]);
        s.store(to.add(between), v[1]);
        s.store(to.add(2 * between), v[2]);
        s.store(to.add(3 * between), v[3]);
    }
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
