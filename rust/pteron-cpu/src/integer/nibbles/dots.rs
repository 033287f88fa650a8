//! What products of 4-bit weights ask of an instruction set, and what each has. Unsafe island: the functions are reachable only
//! through [`super::kit::Kit`], which detects the instructions.
//!
//! Weights are unsigned (each plus 8), activations signed bytes. Eight times the activations of a block are taken from its sums, with
//! which they begin.
#![allow(unsafe_code, reason = "intrinsics of an instruction set, and loads by address")]

use crate::integer::dots::Dots;

/// Vectors of [`Dots::LANES`] columns.
///
/// Methods are unsafe since the processor has to have the instruction set.
pub(in crate::integer) trait NibbleDots: Dots {
    /// Has a column two sums of 16 bits, of the first and of the last two products of quads?
    const HALVES: bool;
    /// Sums of a block of `LANES` columns.
    type Block: Copy;
    /// Quads of unsigned weights, one for each column.
    type Nibbles: Copy;
    /// A quad of activations, for all columns.
    type Quad: Copy;

    /// Sums that begin with the two halves, or the one number, of `word`.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn start(word: u32) -> Self::Block;
    /// The quads in the low and in the high four bits.
    /// # Safety
    /// The processor has the instruction set; `4 * LANES` bytes are readable.
    unsafe fn nibbles(p: *const u8) -> [Self::Nibbles; 2];
    /// # Safety
    /// The processor has the instruction set; four bytes are readable.
    unsafe fn quad(p: *const i8) -> Self::Quad;
    /// Adds the products of quads.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn add_products(sums: Self::Block, weights: Self::Nibbles, quad: Self::Quad) -> Self::Block;
    /// The sum of each column.
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn columns(sums: Self::Block) -> Self::I;
    /// Numbers of bfloat16.
    /// # Safety
    /// The processor has the instruction set; `LANES` numbers are readable.
    unsafe fn load_brain(p: *const u16) -> Self::F;
}

mod portable {
    use super::NibbleDots;
    use crate::integer::dots::{Dots, Portable};

    const LANES: usize = Portable::LANES;

    impl NibbleDots for Portable {
        const HALVES: bool = false;
        type Block = [i32; LANES];
        type Nibbles = [[u8; 4]; LANES];
        type Quad = [i8; 4];

        #[inline(always)]
        unsafe fn start(word: u32) -> Self::Block {
            [word as i32; LANES]
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8) -> [Self::Nibbles; 2] {
            // SAFETY: the caller promises `4 * LANES` readable bytes; bytes have no alignment.
            let bytes = unsafe { p.cast::<Self::Nibbles>().read() };
            [bytes.map(|quad| quad.map(|b| b & 15)), bytes.map(|quad| quad.map(|b| b >> 4))]
        }
        #[inline(always)]
        unsafe fn quad(p: *const i8) -> Self::Quad {
            // SAFETY: the caller promises four readable bytes; bytes have no alignment.
            unsafe { p.cast::<Self::Quad>().read() }
        }
        #[inline(always)]
        unsafe fn add_products(
            mut sums: Self::Block,
            weights: Self::Nibbles,
            quad: Self::Quad,
        ) -> Self::Block {
            for (sum, weights) in sums.iter_mut().zip(weights) {
                for (w, x) in weights.into_iter().zip(quad) {
                    *sum = sum.wrapping_add(i32::from(w) * i32::from(x));
                }
            }
            sums
        }
        #[inline(always)]
        unsafe fn columns(sums: Self::Block) -> Self::I {
            sums
        }
        #[inline(always)]
        unsafe fn load_brain(p: *const u16) -> Self::F {
            // SAFETY: the caller promises `LANES` readable numbers.
            let words = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
            words.map(|word| f32::from_bits(u32::from(word) << 16))
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::NibbleDots;
    use crate::integer::dots::{Avx2, Avx512Vnni, AvxVnni};
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// The low and the high four bits of bytes.
    ///
    /// # Safety
    /// The processor has AVX2; 32 bytes are readable.
    #[inline(always)]
    unsafe fn halves_of_bytes(p: *const u8) -> [__m256i; 2] {
        // SAFETY: the caller promises AVX2 and the bytes.
        unsafe {
            let (bytes, four) = (_mm256_loadu_si256(p.cast()), _mm256_set1_epi8(15));
            [_mm256_and_si256(bytes, four), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), four)]
        }
    }

    /// `sums` and the products of unsigned `weights` with signed `quad`, two in a sum of 16 bits. Not by intrinsics: the compiler
    /// would add products of several quads first, and have no registers for them.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sum_of_pairs(mut sums: __m256i, weights: __m256i, quad: __m256i) -> __m256i {
        // SAFETY: the caller promises AVX2; registers alone are touched.
        unsafe {
            asm!(
                "vpmaddubsw {products}, {weights}, {quad}",
                "vpaddw {sums}, {sums}, {products}",
                products = out(ymm_reg) _, sums = inout(ymm_reg) sums,
                weights = in(ymm_reg) weights, quad = in(ymm_reg) quad,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sums
    }

    /// What AVX2 and AVX-VNNI share.
    macro_rules! common {
        () => {
            type Block = __m256i;
            type Nibbles = __m256i;
            type Quad = __m256i;

            /// # Safety
            /// As [`NibbleDots`] has it for this method.
            #[inline(always)]
            unsafe fn start(word: u32) -> __m256i {
                // SAFETY: the caller promises AVX2.
                unsafe { _mm256_set1_epi32(word as i32) }
            }
            /// # Safety
            /// As [`NibbleDots`] has it for this method.
            #[inline(always)]
            unsafe fn nibbles(p: *const u8) -> [__m256i; 2] {
                // SAFETY: the caller promises AVX2 and 32 readable bytes.
                unsafe { halves_of_bytes(p) }
            }
            /// # Safety
            /// As [`NibbleDots`] has it for this method.
            #[inline(always)]
            unsafe fn quad(p: *const i8) -> __m256i {
                // SAFETY: the caller promises AVX2 and four readable bytes.
                unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
            }
            /// # Safety
            /// As [`NibbleDots`] has it for this method.
            #[inline(always)]
            unsafe fn load_brain(p: *const u16) -> __m256 {
                // SAFETY: the caller promises AVX2 and 16 readable bytes. A number of bfloat16 is the upper half of one of f32.
                unsafe {
                    let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
                }
            }
        };
    }

    impl NibbleDots for Avx2 {
        // Of the 32 products of a block, 16 are in a sum: at most 15 · 128 · 16, from at most half of it the other way on.
        const HALVES: bool = true;
        common!();

        #[inline(always)]
        unsafe fn add_products(sums: __m256i, weights: __m256i, quad: __m256i) -> __m256i {
            // SAFETY: the caller promises AVX2.
            unsafe { sum_of_pairs(sums, weights, quad) }
        }
        #[inline(always)]
        unsafe fn columns(sums: __m256i) -> __m256i {
            // SAFETY: the caller promises AVX2.
            unsafe { _mm256_madd_epi16(sums, _mm256_set1_epi16(1)) }
        }
    }

    impl NibbleDots for AvxVnni {
        const HALVES: bool = false;
        common!();

        #[inline(always)]
        unsafe fn add_products(sums: __m256i, weights: __m256i, quad: __m256i) -> __m256i {
            // SAFETY: the caller promises AVX-VNNI.
            unsafe { _mm256_dpbusd_avx_epi32(sums, weights, quad) }
        }
        #[inline(always)]
        unsafe fn columns(sums: __m256i) -> __m256i {
            sums
        }
    }

    impl NibbleDots for Avx512Vnni {
        const HALVES: bool = false;
        type Block = __m512i;
        type Nibbles = __m512i;
        type Quad = __m512i;

        #[inline(always)]
        unsafe fn start(word: u32) -> __m512i {
            // SAFETY: the caller promises AVX-512.
            unsafe { _mm512_set1_epi32(word as i32) }
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8) -> [__m512i; 2] {
            // SAFETY: the caller promises AVX-512 and 64 readable bytes.
            unsafe {
                let (bytes, four) = (_mm512_loadu_si512(p.cast()), _mm512_set1_epi8(15));
                [_mm512_and_si512(bytes, four), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), four)]
            }
        }
        #[inline(always)]
        unsafe fn quad(p: *const i8) -> __m512i {
            // SAFETY: the caller promises AVX-512 and four readable bytes.
            unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
        }
        #[inline(always)]
        unsafe fn add_products(sums: __m512i, weights: __m512i, quad: __m512i) -> __m512i {
            // SAFETY: the caller promises AVX-512 VNNI.
            unsafe { _mm512_dpbusd_epi32(sums, weights, quad) }
        }
        #[inline(always)]
        unsafe fn columns(sums: __m512i) -> __m512i {
            sums
        }
        #[inline(always)]
        unsafe fn load_brain(p: *const u16) -> __m512 {
            // SAFETY: the caller promises AVX-512 and 32 readable bytes. A number of bfloat16 is the upper half of one of f32.
            unsafe {
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::NibbleDots;
    use crate::integer::dots::{Neon, NeonDot};
    use std::arch::aarch64::*;
    use std::arch::asm;

    /// The low and the high four bits of bytes.
    ///
    /// # Safety
    /// The processor has NEON; 32 bytes are readable.
    #[inline(always)]
    unsafe fn halves_of_bytes(p: *const u8) -> [[int8x16_t; 2]; 2] {
        // SAFETY: the caller promises NEON and the bytes.
        unsafe {
            let (a, b, four) = (vld1q_u8(p), vld1q_u8(p.add(16)), vdupq_n_u8(15));
            let low = [vandq_u8(a, four), vandq_u8(b, four)];
            let high = [vshrq_n_u8::<4>(a), vshrq_n_u8::<4>(b)];
            [low.map(|v| vreinterpretq_s8_u8(v)), high.map(|v| vreinterpretq_s8_u8(v))]
        }
    }

    /// Eight numbers of bfloat16, which are the upper halves of those of f32.
    ///
    /// # Safety
    /// The processor has NEON; 16 bytes are readable.
    #[inline(always)]
    unsafe fn brain(p: *const u16) -> [float32x4_t; 2] {
        // SAFETY: the caller promises NEON and the bytes.
        unsafe {
            let (zero, words) = (vdupq_n_u16(0), vld1q_u16(p));
            [vreinterpretq_f32_u16(vzip1q_u16(zero, words)), vreinterpretq_f32_u16(vzip2q_u16(zero, words))]
        }
    }

    impl NibbleDots for Neon {
        // Two sums of a column, as with AVX2.
        const HALVES: bool = true;
        type Block = [int16x8_t; 2];
        type Nibbles = [int8x16_t; 2];
        type Quad = int8x8_t;

        #[inline(always)]
        unsafe fn start(word: u32) -> Self::Block {
            // SAFETY: the caller promises NEON.
            unsafe { [vreinterpretq_s16_u32(vdupq_n_u32(word)); 2] }
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8) -> [Self::Nibbles; 2] {
            // SAFETY: the caller promises NEON and 32 readable bytes.
            unsafe { halves_of_bytes(p) }
        }
        #[inline(always)]
        unsafe fn quad(p: *const i8) -> int8x8_t {
            // SAFETY: the caller promises NEON and four readable bytes.
            unsafe { vreinterpret_s8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned())) }
        }
        #[inline(always)]
        unsafe fn add_products(sums: Self::Block, weights: Self::Nibbles, quad: int8x8_t) -> Self::Block {
            /// Sums of four columns, and products of two pairs of each.
            ///
            /// # Safety
            /// The processor has NEON.
            #[inline(always)]
            unsafe fn four(sums: int16x8_t, weights: int8x16_t, quad: int8x8_t) -> int16x8_t {
                // SAFETY: the caller promises NEON.
                unsafe {
                    let a = vmull_s8(vget_low_s8(weights), quad);
                    let b = vmull_s8(vget_high_s8(weights), quad);
                    vaddq_s16(sums, vpaddq_s16(a, b))
                }
            }
            // SAFETY: the caller promises NEON.
            unsafe { [four(sums[0], weights[0], quad), four(sums[1], weights[1], quad)] }
        }
        #[inline(always)]
        unsafe fn columns(sums: Self::Block) -> Self::I {
            // SAFETY: the caller promises NEON.
            unsafe { sums.map(|v| vpaddlq_s16(v)) }
        }
        #[inline(always)]
        unsafe fn load_brain(p: *const u16) -> Self::F {
            // SAFETY: the caller promises NEON and the numbers.
            unsafe { brain(p) }
        }
    }

    impl NibbleDots for NeonDot {
        const HALVES: bool = false;
        type Block = [int32x4_t; 2];
        type Nibbles = [int8x16_t; 2];
        type Quad = int8x16_t;

        #[inline(always)]
        unsafe fn start(word: u32) -> Self::Block {
            // SAFETY: the caller promises NEON.
            unsafe { [vreinterpretq_s32_u32(vdupq_n_u32(word)); 2] }
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8) -> [Self::Nibbles; 2] {
            // SAFETY: the caller promises NEON and 32 readable bytes.
            unsafe { halves_of_bytes(p) }
        }
        #[inline(always)]
        unsafe fn quad(p: *const i8) -> int8x16_t {
            // SAFETY: the caller promises NEON and four readable bytes.
            unsafe { vreinterpretq_s8_u32(vdupq_n_u32(p.cast::<u32>().read_unaligned())) }
        }
        #[inline(always)]
        unsafe fn add_products(sums: Self::Block, weights: Self::Nibbles, quad: int8x16_t) -> Self::Block {
            /// # Safety
            /// The processor has the instruction, and the caller is compiled with it.
            #[inline(always)]
            unsafe fn four(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
                // SAFETY: the caller promises the instruction, which touches registers alone.
                unsafe {
                    asm!(
                        "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
                        inout(vreg) sum, in(vreg) w, in(vreg) x,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
                sum
            }
            // SAFETY: the caller promises the instruction.
            unsafe { [four(sums[0], weights[0], quad), four(sums[1], weights[1], quad)] }
        }
        #[inline(always)]
        unsafe fn columns(sums: Self::Block) -> Self::I {
            sums
        }
        #[inline(always)]
        unsafe fn load_brain(p: *const u16) -> Self::F {
            // SAFETY: the caller promises NEON and the numbers.
            unsafe { brain(p) }
        }
    }
}
