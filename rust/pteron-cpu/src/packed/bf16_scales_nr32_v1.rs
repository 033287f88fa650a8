//! `bf16_scales_nr32_v1`: scales of groups of weights, float32 [groups, N], in half the bytes: for matrices whose numbers are all those
//! of bfloat16.
//!
//! Panels of 32 columns as in [`f32_nr32_v1`](super::f32_nr32_v1), of bfloat16 numbers, little-endian. Columns beyond N hold 0.

use super::PackedFormat;
pub use super::block::NR;
use super::{StridedMatrix, in_parts};
use half::bf16;
use pteron_core::{AlignedBuffer, ConstantView, CpuProfile, DType, PackKey, PackStore, PackedBytes, Result};
use std::sync::Arc;

/// The format; its elements are those of float32 in the same bytes, half as many as scales.
pub const PACKED: PackedFormat = PackedFormat {
    name: "bf16_scales_nr32_v1",
    dtype: Some(DType::Float32),
    elements: |shape| match *shape {
        [groups, n] => n.div_ceil(NR).checked_mul(NR / 2)?.checked_mul(groups),
        _ => None,
    },
};

/// The shared packed copy of `view`, any strides; `None` where a number is none of bfloat16.
///
/// Errors: rank other than 2, dtype other than float32, a view that leaves its storage, no memory.
pub fn get_or_pack(
    packs: &PackStore,
    cpu: &CpuProfile,
    view: &ConstantView<'_>,
) -> Result<Option<Arc<PackedBytes>>> {
    let key = PackKey::new(view, PACKED.name);
    if !packs.is_stored(&key) && !are_exact(view)? {
        return Ok(None);
    }
    packs.get_or_pack(key, || pack(cpu.load_threads, view)).map(Some)
}

fn are_exact(view: &ConstantView<'_>) -> Result<bool> {
    let matrix = StridedMatrix::<f32>::of(view)?;
    let [groups, n] = matrix.shape;
    let is_exact = |x: f32| bf16::from_f32(x).to_f32().to_bits() == x.to_bits();
    Ok((0..groups).all(|group| (0..n).all(|column| is_exact(matrix.at(group, column)))))
}

fn pack(threads: usize, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let matrix = StridedMatrix::<f32>::of(view)?;
    let [groups, n] = matrix.shape;
    let mut packed = AlignedBuffer::zeroed_to_keep(PACKED.nbytes(DType::Float32, &view.shape)?)?;
    if !packed.is_empty() {
        in_parts(threads, packed.as_mut_elements::<bf16>(), groups * NR, &|p, panel| {
            for (group, scales) in panel.chunks_mut(NR).enumerate() {
                for (scale, column) in scales.iter_mut().zip(p * NR..n) {
                    *scale = bf16::from_f32(matrix.at(group, column));
                }
            }
        });
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::super::testing::view;
    use super::*;
    use pteron_core::Isa;

    #[test]
    fn numbers_of_bfloat16_lie_in_panels() {
        for [groups, n] in [[1, 1], [3, 33], [5, 64], [0, 3], [3, 0]] {
            let scales: Vec<f32> = (0..groups * n).map(|i| (i % 200) as f32 / 64.0).collect();
            let view = view(&scales, 0, &[groups, n], &[n, 1]);
            let packs = PackStore::new();
            let cpu = pteron_kernels::cpu_detect::profile_for(Isa::Portable).unwrap();
            let packed = get_or_pack(&packs, &cpu, &view).unwrap().unwrap();
            let packed = packed.as_elements::<bf16>();
            assert_eq!(packed.len(), groups * n.div_ceil(NR) * NR);
            for (i, found) in packed.iter().enumerate() {
                let (panel, group, lane) = (i / (groups * NR), i / NR % groups, i % NR);
                let column = panel * NR + lane;
                let want = if column < n { scales[group * n + column] } else { 0.0 };
                assert_eq!(found.to_f32(), want, "{groups} x {n}: {i}");
            }
        }
    }

    #[test]
    fn other_numbers_are_not_taken() {
        let packs = PackStore::new();
        let cpu = pteron_kernels::cpu_detect::profile_for(Isa::Portable).unwrap();
        for odd in [0.1, 1.0 + 1.0 / 256.0, f32::MIN_POSITIVE * 0.7] {
            let found = get_or_pack(&packs, &cpu, &view(&[0.5, odd], 0, &[1, 2], &[2, 1])).unwrap();
            assert!(found.is_none(), "{odd}");
        }
        assert_eq!(packs.totals().made.0, 0);
    }
}
