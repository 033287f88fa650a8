//! Rows of floats as tiles read them: signed bytes, what the sums of each block begin with, zero points and scales.

use crate::integer::choose_rows::quantised_row;
use crate::integer::spec::RowScheme;
use crate::packed::u4_nr32k8_v1::BLOCK;
use pteron_kernels::vector_math::{Simd, SimdTask};

/// Quantises rows of `length` numbers.
pub(super) struct PrepareRows<'a> {
    pub rows: &'a [f32],
    pub length: usize,
    pub scheme: RowScheme,
    /// Rows `stride` bytes apart, at least whole blocks.
    pub bytes: &'a mut [u8],
    pub stride: usize,
    /// A word for each block.
    pub starts: &'a mut [u32],
    /// See [`super::dots::NibbleDots::HALVES`].
    pub halves: bool,
    pub zeros: &'a mut [f32],
    pub scales: &'a mut [f32],
}

impl SimdTask for PrepareRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (length, blocks) = (self.length.max(1), self.length.div_ceil(BLOCK).max(1));
        let rows = self.rows.chunks_exact(length).zip(self.bytes.chunks_mut(self.stride.max(1)));
        let parameters = self.zeros.iter_mut().zip(self.scales);
        for (((row, bytes), starts), (zero, scale)) in
            rows.zip(self.starts.chunks_mut(blocks)).zip(parameters)
        {
            let (numbers, padding) = bytes.split_at_mut(length.min(bytes.len()));
            let (chosen, zero_point) = quantised_row(self.scheme, row, numbers);
            (*scale, *zero) = (chosen, zero_point as f32);
            padding.fill(0x80);
            for (start, block) in starts.iter_mut().zip(bytes.as_chunks_mut::<BLOCK>().0) {
                *start = signed_block(block, self.halves);
            }
        }
    }
}

/// Flips the highest bit of unsigned bytes; minus eight times the sum of the signed ones: a number, or two halves, of the first and of the
/// last two of quads.
#[inline(always)]
fn signed_block(block: &mut [u8; BLOCK], halves: bool) -> u32 {
    const EVEN: u32 = 0x00ff_00ff;
    // Two sums of 16 bytes, 128 higher each than the signed ones: 16 bits hold them.
    let mut sums = 0;
    for quad in block.as_chunks_mut::<4>().0 {
        let word = u32::from_le_bytes(*quad);
        sums += (word & EVEN) + (word >> 8 & EVEN);
        *quad = (word ^ 0x8080_8080).to_le_bytes();
    }
    let [first, last] = [sums & 0xffff, sums >> 16].map(|sum| -8 * (sum as i32 - 16 * 128));
    match halves {
        true => (first as u32 & 0xffff) | (last as u32) << 16,
        false => (first + last) as u32,
    }
}
