//! `u4_nr32k8_v1` and `u4_pairs_nr32k8_v1`: packed forms of 4-bit weights, K rows (input features) and N columns (output
//! features), for dot products of bytes.
//!
//! - The columns are cut into ⌈N / 32⌉ *panels* of 32, in order, the rows into ⌈K / 32⌉ *blocks* of 32.
//! - A block of a panel is four *lines* of 128 bytes: byte 4 c + j of line i holds, of column c, row 8 i + j of the block in the low
//!   four bits and row 8 i + 4 + j in the high ones, each plus 8: unsigned. Rows beyond K and columns beyond N hold 8, which is 0.
//! - Blocks, then panels, follow one another without gaps or header. The start is 64-byte aligned.
//! - `u4_nr32k8_v1` is made of an int8 matrix whose numbers all lie in -8 ..= 7; `u4_pairs_nr32k8_v1` holds the same bytes, made of a
//!   matrix of K / 2 rows whose bytes hold two numbers each, that of the even row plus 8 in the high four bits, that of the odd one plus
//!   8 in the low ones.

use super::PackedFormat;
pub use super::block::NR;
use super::{StridedMatrix, in_parts};
use pteron_core::{
    AlignedBuffer, ConstantView, CpuProfile, DType, Element, PackKey, PackStore, PackedBytes, Result,
};
use std::sync::Arc;

/// Rows of a block.
pub const BLOCK: usize = 32;
/// Rows of a line.
pub const ROWS: usize = 8;
/// Bytes of a line.
pub const LINE: usize = NR * ROWS / 2;
/// Bytes of a block of a panel.
pub const BLOCK_BYTES: usize = BLOCK / ROWS * LINE;
/// Two numbers that are 0.
const ZEROS: u8 = 0x88;

/// Of numbers of a byte.
pub const PACKED: PackedFormat =
    PackedFormat { name: "u4_nr32k8_v1", dtype: Some(DType::Int8), elements: |shape| matrix_bytes(shape, 1) };

/// Of numbers that share a byte with another one.
pub const PACKED_PAIRS: PackedFormat = PackedFormat {
    name: "u4_pairs_nr32k8_v1",
    dtype: Some(DType::UInt8),
    elements: |shape| matrix_bytes(shape, 2),
};

fn matrix_bytes(shape: &[usize], rows_of_a_byte: usize) -> Option<usize> {
    let &[rows, n] = shape else { return None };
    let blocks = rows.checked_mul(rows_of_a_byte)?.div_ceil(BLOCK);
    n.div_ceil(NR).checked_mul(blocks)?.checked_mul(BLOCK_BYTES)
}

/// The panels of a packed weight.
#[derive(Clone)]
pub struct Panels {
    bytes: Arc<PackedBytes>,
    /// Blocks of a panel.
    pub blocks: usize,
}

impl Panels {
    /// The shared packed copy of `view`: int8, K x N, numbers from -8 to 7 (of others the lowest four bits count); any strides.
    ///
    /// Errors: rank other than 2, another dtype, a view that leaves its storage, no memory.
    pub fn get_or_pack(packs: &PackStore, cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<Panels> {
        let key = PackKey::new(view, PACKED.name);
        let bytes =
            packs.get_or_pack(key, || pack::<i8>(cpu.load_threads, view, |x| (x as u8).wrapping_add(8)))?;
        Ok(Panels { bytes, blocks: view.shape.first().map_or(0, |k| k.div_ceil(BLOCK)) })
    }

    /// As [`Panels::get_or_pack`] of uint8, K / 2 x N, of two numbers each.
    pub fn get_or_pack_pairs(packs: &PackStore, cpu: &CpuProfile, view: &ConstantView<'_>) -> Result<Panels> {
        let key = PackKey::new(view, PACKED_PAIRS.name);
        let bytes = packs.get_or_pack(key, || pack_pairs(cpu.load_threads, view))?;
        let blocks = view.shape.first().map_or(0, |pairs| pairs.saturating_mul(2).div_ceil(BLOCK));
        Ok(Panels { bytes, blocks })
    }

    /// Bytes from a panel to the next.
    pub fn stride(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// The first panel.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

/// Panels of zeros, each of whose columns `fill` is handed with its place in the panel.
fn panels(
    threads: usize,
    nbytes: usize,
    blocks: usize,
    columns: usize,
    fill: &(dyn Fn(usize, &mut [u8]) + Sync),
) -> Result<AlignedBuffer> {
    let mut packed = AlignedBuffer::zeroed_to_keep(nbytes)?;
    if nbytes > 0 {
        in_parts(threads, packed.as_mut_slice(), blocks * BLOCK_BYTES, &|p, panel| {
            panel.fill(ZEROS);
            for (lane, column) in (p * NR..columns.min(p * NR + NR)).enumerate() {
                fill(column, &mut panel[lane * 4..]);
            }
        });
    }
    Ok(packed)
}

fn pack<T: Element>(
    threads: usize,
    view: &ConstantView<'_>,
    unsigned: impl Fn(T) -> u8 + Sync,
) -> Result<AlignedBuffer> {
    let matrix = StridedMatrix::<T>::of(view)?;
    let [k, n] = matrix.shape;
    let nbytes = PACKED.nbytes(DType::Int8, &view.shape)?;
    panels(threads, nbytes, k.div_ceil(BLOCK), n, &|column, panel| {
        for (line, first) in panel.chunks_mut(LINE).zip((0..k).step_by(ROWS)) {
            for row in first..k.min(first + ROWS) {
                let (j, shift) = ((row - first) % 4, (row - first) / 4 * 4);
                let number = unsigned(matrix.at(row, column)) & 15;
                line[j] = line[j] & !(15 << shift) | number << shift;
            }
        }
    })
}

fn pack_pairs(threads: usize, view: &ConstantView<'_>) -> Result<AlignedBuffer> {
    let matrix = StridedMatrix::<u8>::of(view)?;
    let [pairs, n] = matrix.shape;
    let nbytes = PACKED_PAIRS.nbytes(DType::UInt8, &view.shape)?;
    panels(threads, nbytes, (pairs * 2).div_ceil(BLOCK), n, &|column, panel| {
        for (line, first) in panel.chunks_mut(LINE).zip((0..pairs).step_by(ROWS / 2)) {
            let mut bytes = [ZEROS; ROWS / 2];
            for (byte, pair) in bytes.iter_mut().zip(first..pairs) {
                *byte = matrix.at(pair, column);
            }
            // Rows 0, 2, 4, 6 and 1, 3, 5, 7; then each with the one four below it.
            let all = u32::from_le_bytes(bytes);
            let together = |rows: u32| (rows | rows >> 12).to_le_bytes();
            let ([first, third, ..], [second, fourth, ..]) =
                (together(all >> 4 & 0x0f0f_0f0f), together(all & 0x0f0f_0f0f));
            line[..4].copy_from_slice(&[first, second, third, fourth]);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{ConstantKey, Dims};

    fn view<'a>(data: &'a [u8], dtype: DType, shape: [usize; 2], strides: [usize; 2]) -> ConstantView<'a> {
        ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: data.len() as u64 },
            data,
            dtype,
            offset: 0,
            shape: Dims::new(&shape).unwrap(),
            strides: Dims::new(&strides).unwrap(),
        }
    }

    /// What the format says, number by number.
    fn at(packed: &[u8], k: usize, row: usize, column: usize) -> i32 {
        let panel = column / 32 * k.div_ceil(32) * 512;
        let (line, inside) = (row / 8, row % 8);
        let byte = packed[panel + line * 128 + column % 32 * 4 + inside % 4];
        i32::from(byte >> (inside / 4 * 4) & 15) - 8
    }

    #[test]
    fn every_number_is_where_the_format_says() {
        for [k, n] in [[1, 1], [8, 32], [7, 33], [300, 64], [258, 31], [64, 5], [0, 5], [5, 0]] {
            let numbers: Vec<i8> = (0..k * n).map(|i| ((i * 37 + i / 11) % 16) as i8 - 8).collect();
            for strides in [[n, 1], [1, k]] {
                for threads in [1, 3] {
                    let view = view(bytemuck::cast_slice(&numbers), DType::Int8, [k, n], strides);
                    let packed = pack::<i8>(threads, &view, |x| (x as u8).wrapping_add(8)).unwrap();
                    let packed = packed.as_slice();
                    assert_eq!(packed.len(), n.div_ceil(32) * k.div_ceil(32) * 512);
                    for row in 0..k.next_multiple_of(32) {
                        for column in 0..n.next_multiple_of(32) {
                            let is_there = row < k && column < n;
                            let want =
                                if is_there { numbers[row * strides[0] + column * strides[1]] } else { 0 };
                            if k > 0 {
                                assert_eq!(
                                    at(packed, k, row, column),
                                    i32::from(want),
                                    "{k}x{n} {row} {column}"
                                );
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
            let numbers: Vec<i8> = (0..k * n).map(|i| ((i * 29 + i / 7) % 16) as i8 - 8).collect();
            let half = |x: i8| (x + 8) as u8;
            let pairs: Vec<u8> = numbers.chunks(2).map(|p| half(p[0]) << 4 | half(p[1])).collect();
            let plain = view(bytemuck::cast_slice(&numbers), DType::Int8, [k, n], [1, k]);
            let plain = pack::<i8>(1, &plain, |x| (x as u8).wrapping_add(8)).unwrap();
            let view = view(&pairs, DType::UInt8, [k / 2, n], [1, k / 2]);
            for threads in [1, 3] {
                assert_eq!(pack_pairs(threads, &view).unwrap().as_slice(), plain.as_slice(), "{k}x{n}");
            }
        }
    }

    #[test]
    fn a_view_outside_its_storage_is_an_error() {
        let data = [0u8; 12];
        for strides in [[4, 2], [usize::MAX, 1]] {
            let e = pack_pairs(1, &view(&data, DType::UInt8, [3, 4], strides)).unwrap_err();
            assert!(e.to_string().contains("leaves its storage"), "{e}");
        }
    }
}
