//! `s8_rows_nr32_v1`, `s4_rows_nr32_v1` and `s4_pairs_nr32_v1`: packed forms of an int8 matrix B with K rows (input features) and N columns
//! (output features).
//!
//! - The columns are cut into ⌈N / 32⌉ *panels* of 32, in order. Columns beyond N, in the last panel, are zero.
//! - `s8_rows_nr32_v1`: a panel is K rows of 32 bytes: row k holds `B[k, 32p .. 32p + 32]`.
//! - `s4_rows_nr32_v1`, for matrices whose numbers all lie in -8 ..= 7: a panel is ⌈K / 2⌉ rows of 32 bytes; row i holds
//!   `B[2i, column]` in the low four bits and `B[2i + 1, column]` in the high ones, in two's complement; zero beyond K.
//! - `s4_pairs_nr32_v1`: the same bytes, made of a matrix of K / 2 rows whose bytes hold two numbers each, that of the even
//!   row of B plus 8 in the high four bits, that of the odd one plus 8 in the low ones.
//! - Panels follow one another without gaps or header. The start is 64-byte aligned.
//!
//! Scales and zero points are matrices of their own, [groups, N], in [`crate::packed::f32_nr32_v1`].

use crate::packed::f32_nr32_v1::{NR, panel_count};
use crate::packed::{PackedFormat, StridedMatrix, in_parts};
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Error, PackKey, PackStore, PackedBytes, Result,
};
use std::sync::Arc;

/// A byte for each number.
pub const BYTES: PackedFormat = PackedFormat {
    name: "s8_rows_nr32_v1",
    dtype: Some(DType::Int8),
    elements: |shape| matrix_bytes(Width::Byte, shape),
};

/// Four bits for each number.
pub const NIBBLES: PackedFormat = PackedFormat {
    name: "s4_rows_nr32_v1",
    dtype: Some(DType::Int8),
    elements: |shape| matrix_bytes(Width::Nibble, shape),
};

/// Four bits for each number, two of which share a byte of the plain matrix.
pub const PAIRS: PackedFormat = PackedFormat {
    name: "s4_pairs_nr32_v1",
    dtype: Some(DType::UInt8),
    elements: |shape| matrix_bytes(Width::Byte, shape),
};

/// How many bits a number has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Eight.
    Byte,
    /// Four.
    Nibble,
}

impl Width {
    /// The format of such numbers.
    pub fn format(self) -> &'static PackedFormat {
        match self {
            Width::Byte => &BYTES,
            Width::Nibble => &NIBBLES,
        }
    }

    /// Rows of 32 bytes in a panel of `k` rows.
    pub fn byte_rows(self, k: usize) -> usize {
        match self {
            Width::Byte => k,
            Width::Nibble => k.div_ceil(2),
        }
    }
}

fn matrix_bytes(width: Width, shape: &[usize]) -> Option<usize> {
    let &[k, n] = shape else { return None };
    panel_count(n).checked_mul(NR)?.checked_mul(width.byte_rows(k))
}

/// The shared packed copy of `view` (int8, K x N, any strides), and its form: four bits where all numbers have them and
/// `may_be_nibbles`. Nothing of the plain bytes is read when the program brings the copy along.
///
/// Errors: rank other than 2, dtype other than int8, a view that leaves its storage, no memory.
pub fn get_or_pack(
    packs: &PackStore,
    cpu: &CpuProfile,
    view: &ConstantView<'_>,
    may_be_nibbles: bool,
) -> Result<(Width, Arc<PackedBytes>)> {
    let key = |width: Width| PackKey::new(view, width.format().name);
    let fits = || Ok::<_, Error>(!packs.is_stored(&key(Width::Byte)) && are_nibbles(view)?);
    let width = match may_be_nibbles && (packs.is_stored(&key(Width::Nibble)) || fits()?) {
        true => Width::Nibble,
        false => Width::Byte,
    };
    let packed = packs.get_or_pack(key(width), || pack(cpu.load_threads, view, width))?;
    Ok((width, packed))
}

/// The shared packed copy of `view` (uint8, K / 2 rows of two numbers each and N columns, any strides): [`Width::Nibble`].
///
/// Errors: rank other than 2, dtype other than uint8, a view that leaves its storage, no memory.
pub fn get_or_pack_pairs(
    packs: &PackStore,
    cpu: &CpuProfile,
    view: &ConstantView<'_>,
) -> Result<Arc<PackedBytes>> {
    packs.get_or_pack(PackKey::new(view, PAIRS.name), || pack_pairs(cpu.load_threads, view))
}

/// Do all numbers have four bits?
pub(super) fn are_nibbles(view: &ConstantView<'_>) -> Result<bool> {
    let StridedMatrix { elements, shape: [k, n], strides: [stride_k, stride_n] } =
        StridedMatrix::<i8>::of(view)?;
    let has_four = |x: &i8| (-8..8).contains(x);
    // Dense matrices are one run of numbers, whichever way they lie.
    if (stride_k, stride_n) == (1, k) || (stride_k, stride_n) == (n, 1) {
        let numbers = elements.get(..k * n).unwrap_or_default();
        return Ok(numbers.chunks(4096).all(|part| part.iter().fold(true, |all, x| all & has_four(x))));
    }
    Ok((0..k).all(|row| (0..n).all(|column| has_four(&elements[row * stride_k + column * stride_n]))))
}

/// Rows that are packed together: what is written of them stays in the first-level cache.
const ROWS: usize = 128;

fn pack(threads: usize, view: &ConstantView<'_>, width: Width) -> Result<AlignedBuffer> {
    let StridedMatrix { elements, shape: [k, n], strides: [stride_k, stride_n] } =
        StridedMatrix::<i8>::of(view)?;
    let nbytes = width.format().nbytes(DType::Int8, &view.shape)?;
    let mut packed = AlignedBuffer::zeroed_to_keep(nbytes)?;
    if nbytes == 0 {
        return Ok(packed);
    }
    in_parts(threads, packed.as_mut_slice(), width.byte_rows(k) * NR, &|p, panel| {
        for first in (0..k).step_by(ROWS) {
            for (lane, column) in (p * NR..n.min(p * NR + NR)).enumerate() {
                for row in first..k.min(first + ROWS) {
                    let x = elements[row * stride_k + column * stride_n] as u8;
                    match width {
                        Width::Byte => panel[row * NR + lane] = x,
                        Width::Nibble => panel[row / 2 * NR + lane] |= (x & 15) << (4 * (row % 2)),
                    }
                }
            }
        }
    });
    Ok(packed)
}

fn pack_pairs(threads: usize, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let StridedMatrix { elements, shape: [pairs, n], strides: [stride_pair, stride_n] } =
        StridedMatrix::<u8>::of(view)?;
    let nbytes = PAIRS.nbytes(DType::UInt8, &view.shape)?;
    let mut packed = AlignedBuffer::zeroed_to_keep(nbytes)?;
    if nbytes == 0 {
        return Ok(packed);
    }
    in_parts(threads, packed.as_mut_slice(), pairs * NR, &|p, panel| {
        for first in (0..pairs).step_by(ROWS) {
            for (lane, column) in (p * NR..n.min(p * NR + NR)).enumerate() {
                for pair in first..pairs.min(first + ROWS) {
                    let both = elements[pair * stride_pair + column * stride_n];
                    // The halves change places; flipping its highest bit takes 8 from a number of four bits.
                    panel[pair * NR + lane] = both.rotate_left(4) ^ 0x88;
                }
            }
        }
    });
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{ConstantKey, Dims};

    fn view<'a>(data: &'a [i8], shape: &[usize], strides: &[usize]) -> ConstantView<'a> {
        ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: data.len() as u64 },
            data: bytemuck::cast_slice(data),
            dtype: DType::Int8,
            offset: 0,
            shape: Dims::new(shape).unwrap(),
            strides: Dims::new(strides).unwrap(),
        }
    }

    fn numbers(count: usize, limit: i32) -> Vec<i8> {
        (0..count as i32).map(|i| ((i * 37 + i / 11) % (2 * limit) - limit) as i8).collect()
    }

    /// What the formats say, number by number.
    fn at(width: Width, packed: &[u8], k: usize, row: usize, column: usize) -> i8 {
        let (panel, lane) = (column / 32 * width.byte_rows(k) * 32, column % 32);
        match width {
            Width::Byte => packed[panel + row * 32 + lane] as i8,
            Width::Nibble => {
                let both = packed[panel + row / 2 * 32 + lane] as i8;
                if row.is_multiple_of(2) { (both << 4) >> 4 } else { both >> 4 }
            }
        }
    }

    #[test]
    fn every_number_is_where_the_format_says() {
        for (width, limit) in [(Width::Byte, 128), (Width::Nibble, 8)] {
            for [k, n] in [[1, 1], [7, 33], [300, 64], [257, 31], [0, 5], [5, 0]] {
                let data = numbers(k * n, limit);
                for strides in [[n, 1], [1, k]] {
                    let view = view(&data, &[k, n], &strides);
                    for threads in [1, 3] {
                        let packed = pack(threads, &view, width).unwrap();
                        let packed = packed.as_slice();
                        assert_eq!(packed.len(), n.div_ceil(32) * 32 * width.byte_rows(k));
                        for row in 0..k {
                            for column in 0..n.next_multiple_of(32) {
                                let want =
                                    if column < n { data[row * strides[0] + column * strides[1]] } else { 0 };
                                assert_eq!(at(width, packed, k, row, column), want, "{width:?} {k}x{n}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_have_the_bytes_of_their_numbers() {
        for [k, n] in [[2, 1], [300, 64], [258, 31], [0, 5], [4, 0]] {
            let data = numbers(k * n, 8);
            let half = |x: i8| (x + 8) as u8;
            let pairs: Vec<i8> =
                data.chunks(2).map(|p| (half(p[0]) << 4 | half(*p.last().unwrap())) as i8).collect();
            let plain = pack(1, &view(&data, &[k, n], &[1, k]), Width::Nibble).unwrap();
            let view = ConstantView { dtype: DType::UInt8, ..view(&pairs, &[k / 2, n], &[1, k / 2]) };
            for threads in [1, 3] {
                assert_eq!(pack_pairs(threads, &view).unwrap().as_slice(), plain.as_slice(), "{k}x{n}");
            }
        }
    }

    #[test]
    fn four_bits_are_taken_where_all_numbers_have_them() {
        let cpu = pteron_kernels::cpu_detect::profile_for(pteron_core::Isa::Portable).unwrap();
        let mut data = numbers(64, 8);
        let width = |data: &[i8], may: bool| {
            get_or_pack(&PackStore::new(), &cpu, &view(data, &[8, 8], &[1, 8]), may).unwrap().0
        };
        assert_eq!((width(&data, true), width(&data, false)), (Width::Nibble, Width::Byte));
        data[63] = 8;
        assert_eq!(width(&data, true), Width::Byte);
    }

    #[test]
    fn a_view_outside_its_storage_is_an_error() {
        let data = numbers(12, 8);
        for strides in [[4, 2], [usize::MAX, 1]] {
            let e = pack(1, &view(&data, &[3, 4], &strides), Width::Byte).unwrap_err();
            assert!(e.to_string().contains("leaves its storage"), "{e}");
        }
        assert!(pack(1, &view(&data, &[12], &[1]), Width::Byte).is_err());
    }
}
