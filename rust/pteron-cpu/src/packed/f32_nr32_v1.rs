//! `f32_nr32_v1`: the packed form of a right-hand matrix B with K rows (input features) and N columns
//! (output features), float32, little-endian.
//!
//! - The columns are cut into ⌈N / 32⌉ *panels* of 32, in order.
//! - A panel is K rows of 32 values: row k holds `B[k, 32p .. 32p + 32]`.
//! - Columns beyond N, in the last panel, are zero.
//! - Panels follow one another without gaps or header: ⌈N / 32⌉ · K · 128 bytes. K and N are stated by
//!   whoever holds the block (the shape of the tensor it replaces). The start is 64-byte aligned.
//!
//! AVX-512 reads a row as two registers, AVX2 as two tiles of two registers, plain Rust in pieces of
//! eight. GEMM and GEMV read the same block. Unsafe island (packing through raw pointers).
#![allow(unsafe_code, reason = "threads fill parts of one block of panels")]

use super::PackedFormat;
pub use super::block::NR;
use super::in_parts;
use super::pack_block;
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Error, Isa, PackKey, PackStore, PackedBytes, Result,
};
use std::sync::Arc;

/// The name of the format in keys, files and listings.
pub const FORMAT: &str = "f32_nr32_v1";

/// The format as a table entry: the shape is [K, N].
pub const PACKED: PackedFormat = PackedFormat {
    name: FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| match *shape {
        [k, n] => panel_count(n).checked_mul(NR)?.checked_mul(k),
        _ => None,
    },
};

/// Number of panels for `n` columns.
pub fn panel_count(n: usize) -> usize {
    n.div_ceil(NR)
}

/// Bytes of a packed K x N matrix; an error when that cannot be addressed.
pub fn packed_bytes(k: usize, n: usize) -> Result<usize> {
    panel_count(n)
        .checked_mul(NR * size_of::<f32>())
        .and_then(|row| row.checked_mul(k))
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| {
            Error::limit("a packed weight is too large to address").got(format!("{k} rows of {n} columns"))
        })
}

/// The shared packed copy of `view` (K x N, any strides) from `packs`, made when it is the first use.
///
/// Errors: rank other than 2, dtype other than float32, a view that leaves its storage, no memory.
pub fn get_or_pack(packs: &PackStore, cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<Arc<PackedBytes>> {
    packs.get_or_pack(PackKey::new(view, FORMAT), || pack(cpu.isa, cpu.load_threads, view))
}

/// Packs `view`, a K x N matrix with any strides, so that a transposed weight needs no copy first.
/// `isa` and `threads` only decide how fast it goes.
///
/// Errors as [`get_or_pack`].
pub fn pack(isa: Isa, threads: usize, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let (&[k, n], &[stride_k, stride_n]) = (&*view.shape, &*view.strides) else {
        return Err(Error::internal("only a matrix can be packed").got(format!("shape {}", view.shape)));
    };
    let elements = view.elements::<f32>()?;
    let mut packed = AlignedBuffer::zeroed_to_keep(packed_bytes(k, n)?)?;
    if k == 0 || n == 0 {
        return Ok(packed);
    }
    let last = (k - 1)
        .checked_mul(stride_k)
        .zip((n - 1).checked_mul(stride_n))
        .and_then(|(a, b)| a.checked_add(b)?.checked_add(view.offset));
    if last.is_none_or(|last| last >= elements.len()) {
        return Err(Error::program("a constant's view leaves its storage")
            .expected(format!("at most {} elements", elements.len()))
            .got(format!("shape {}, strides {}, first element {}", view.shape, view.strides, view.offset)));
    }
    in_parts(threads, packed.as_mut_elements::<f32>(), k * NR, &|p, panel| {
        let columns = (n - p * NR).min(NR);
        let first = &elements[view.offset + p * NR * stride_n..];
        // SAFETY: the last element of the whole view is inside `elements` (checked above) and strides are
        // not negative, so all of this panel's are; `panel` has `k * NR` elements; `isa` comes from the
        // profile of this processor.
        unsafe { pack_block(isa, first.as_ptr(), (stride_k, stride_n), k, columns, panel.as_mut_ptr()) };
    });
    Ok(packed)
}

/// The exact matrix again: K x N values, row-major.
///
/// Errors when `packed` has another size than K and N ask for.
pub fn unpack(packed: &PackedBytes, k: usize, n: usize) -> Result<Vec<f32>> {
    let expected = packed_bytes(k, n)?;
    if packed.len() != expected {
        return Err(Error::program("a packed weight has the wrong size")
            .expected(format!("{expected} bytes of {FORMAT} for {k} rows of {n} columns"))
            .got(format!("{} bytes", packed.len())));
    }
    let mut out = vec![0.0; k * n];
    if out.is_empty() {
        return Ok(out);
    }
    for (p, panel) in packed.as_elements::<f32>().chunks_exact(k * NR).enumerate() {
        let columns = (n - p * NR).min(NR);
        for (row, values) in panel.chunks_exact(NR).enumerate() {
            let at = row * n + p * NR;
            out[at..at + columns].copy_from_slice(&values[..columns]);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::view;
    use super::*;
    use proptest::prelude::*;
    use pteron_kernels::cpu_detect::available_isas;

    proptest! {
        #[test]
        fn unpacking_gives_the_weights_back(k in 0usize..70, n in 0usize..100, kind in 0..4, offset in 0usize..3) {
            let strides = match kind { 0 => [n, 1], 1 => [1, k], 2 => [n + 5, 1], _ => [2, 2 * k + 1] };
            let len = offset + (k * strides[0] + n * strides[1]) + 1;
            // Every bit pattern must survive, NaN payloads too.
            let data: Vec<f32> = (0..len as u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
            let v = view(&data, offset, &[k, n], &strides);
            for isa in available_isas() {
                let packed = pack(isa, 1 + k % 3, &v).unwrap();
                prop_assert_eq!(packed.len(), n.div_ceil(32) * k * 128);
                let back: Vec<u32> = unpack(&packed.into(), k, n).unwrap().iter().map(|x| x.to_bits()).collect();
                let expected: Vec<u32> = v.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect();
                prop_assert_eq!(back, expected);
            }
        }
    }

    #[test]
    fn the_layout_is_as_documented() {
        let (k, n) = (3, 40);
        let data: Vec<f32> = (0..k * n).map(|i| i as f32).collect();
        let packed = pack(Isa::Portable, 1, &view(&data, 0, &[k, n], &[n, 1])).unwrap();
        let values = packed.as_elements::<f32>();
        assert_eq!(values[2 * 32 + 5], data[2 * n + 5]);
        let second = &values[k * 32..];
        assert_eq!(second[32 + 7], data[n + 32 + 7]);
        assert!((0..k).all(|row| second[row * 32 + 8..row * 32 + 32].iter().all(|x| *x == 0.0)));
    }

    #[test]
    fn a_view_outside_its_storage_is_an_error() {
        let data = vec![0.0; 12];
        assert!(pack(Isa::Portable, 1, &view(&data, 0, &[3, 4], &[4, 1])).is_ok());
        for bad in [view(&data, 1, &[3, 4], &[4, 1]), view(&data, 0, &[3, 4], &[usize::MAX, 1])] {
            let e = pack(Isa::Portable, 1, &bad).unwrap_err();
            assert!(e.to_string().contains("leaves its storage"), "{e}");
        }
        assert!(unpack(&AlignedBuffer::zeroed(64).unwrap().into(), 3, 4).is_err());
        assert!(packed_bytes(usize::MAX / 2, 33).is_err());
    }

    #[test]
    fn a_weight_and_its_transposed_view_share_one_copy() {
        let packs = PackStore::new();
        let data: Vec<f32> = (0..64 * 48).map(|i| i as f32).collect();
        let cpu = pteron_kernels::cpu_detect::profile_for(Isa::Portable).unwrap();
        let a = get_or_pack(&packs, &cpu, &view(&data, 0, &[48, 64], &[1, 48])).unwrap();
        let b = get_or_pack(&packs, &cpu, &view(&data, 0, &[48, 64], &[1, 48])).unwrap();
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(packs.totals().made, (1, 64 * 48 * 4));
    }
}
