//! [`Dots`] with NEON, of two registers: plain NEON, which multiplies in 16 bits; the dot products of signed bytes
//! (FEAT_DotProd), for which activations are taken 128 lower; and those of unsigned with signed bytes (FEAT_I8MM).
//!
//! The intrinsics of the latter two are not stable: they are written as instructions.

use super::vectors::{Dots, Narrowing, TapDots, padded};
use std::arch::aarch64::*;
use std::arch::asm;

const LANES: usize = 8;

/// Products in 16 bits, which hold that of an unsigned and a signed byte; pairs of them in 32.
#[derive(Clone, Copy)]
pub(in crate::integer) struct Neon;

/// Dot products of signed bytes.
#[derive(Clone, Copy)]
pub(in crate::integer) struct NeonDot;

/// Dot products of unsigned with signed bytes.
#[derive(Clone, Copy)]
pub(in crate::integer) struct NeonMixedDot;

/// The methods that all have.
macro_rules! common {
    () => {
        const LANES: usize = LANES;
        type I = [int32x4_t; 2];
        type F = [float32x4_t; 2];

        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn splat_i(v: i32) -> Self::I {
            // SAFETY: the caller promises NEON.
            unsafe { [vdupq_n_s32(v); 2] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load_i(p: *const i32) -> Self::I {
            // SAFETY: the caller promises NEON and `LANES` readable elements.
            unsafe { [vld1q_s32(p), vld1q_s32(p.add(4))] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_i(p: *mut i32, v: Self::I) {
            // SAFETY: the caller promises NEON and `LANES` writable elements.
            unsafe {
                vst1q_s32(p, v[0]);
                vst1q_s32(p.add(4), v[1]);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
            // SAFETY: the caller promises NEON.
            unsafe { [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
            // SAFETY: the caller promises NEON.
            unsafe { [vmulq_s32(a[0], b[0]), vmulq_s32(a[1], b[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn to_float(a: Self::I) -> Self::F {
            // SAFETY: the caller promises NEON.
            unsafe { [vcvtq_f32_s32(a[0]), vcvtq_f32_s32(a[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn nearest(a: Self::F) -> Self::I {
            // SAFETY: the caller promises NEON.
            unsafe { [vcvtnq_s32_f32(a[0]), vcvtnq_s32_f32(a[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn round(a: Self::F) -> Self::F {
            // SAFETY: the caller promises NEON.
            unsafe { [vrndnq_f32(a[0]), vrndnq_f32(a[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn splat(v: f32) -> Self::F {
            // SAFETY: the caller promises NEON.
            unsafe { [vdupq_n_f32(v); 2] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self::F {
            // SAFETY: the caller promises NEON and `LANES` readable elements.
            unsafe { [vld1q_f32(p), vld1q_f32(p.add(4))] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: the caller promises NEON.
            unsafe { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: the caller promises NEON.
            unsafe { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn clamp(x: Self::F, low: Self::F, high: Self::F) -> Self::F {
            // SAFETY: the caller promises NEON.
            unsafe { [clamped(x[0], low[0], high[0]), clamped(x[1], low[1], high[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: Self::F, n: usize) {
            // SAFETY: the caller promises NEON and `n` writable elements; a copy of the lanes has `LANES`.
            unsafe {
                if n >= LANES {
                    vst1q_f32(p, v[0]);
                    return vst1q_f32(p.add(4), v[1]);
                }
                let mut lanes = [0f32; LANES];
                vst1q_f32(lanes.as_mut_ptr(), v[0]);
                vst1q_f32(lanes.as_mut_ptr().add(4), v[1]);
                p.copy_from_nonoverlapping(lanes.as_ptr(), n);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_bytes(p: *mut u8, v: Self::I, n: usize) {
            // SAFETY: the caller promises NEON and `n` writable bytes; eight bytes are stored only where all are.
            unsafe {
                let words = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
                let bytes = vreinterpret_u8_s8(vmovn_s16(words));
                if n >= LANES {
                    return vst1_u8(p, bytes);
                }
                let mut lanes = [0u8; LANES];
                vst1_u8(lanes.as_mut_ptr(), bytes);
                p.copy_from_nonoverlapping(lanes.as_ptr(), n);
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn load_bytes(p: *const u8, n: usize, flip: u8) -> Self::I {
            // SAFETY: the caller promises NEON and `n` readable bytes; eight bytes are loaded only where all are.
            unsafe {
                let part;
                let from = match n >= LANES {
                    true => p,
                    false => {
                        part = padded::<LANES>(p, n);
                        part.as_ptr()
                    }
                };
                let words = vmovl_s8(vreinterpret_s8_u8(veor_u8(vld1_u8(from), vdup_n_u8(flip))));
                [vmovl_s16(vget_low_s16(words)), vmovl_s16(vget_high_s16(words))]
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn copy(from: *const u8, to: *mut u8, n: usize, flip: u8) {
            // SAFETY: the caller promises NEON and `n` bytes in both; every access ends at `n`, and what is written twice
            // is written alike, from bytes that nothing here writes.
            unsafe {
                let mut i = 0;
                while i + 16 <= n {
                    Self::copy_16(from.add(i), to.add(i), flip);
                    i += 16;
                }
                if i == n {
                    return;
                }
                if n >= 16 {
                    Self::copy_16(from.add(n - 16), to.add(n - 16), flip);
                } else if n >= 8 {
                    for at in [0, n - 8] {
                        vst1_u8(to.add(at), veor_u8(vld1_u8(from.add(at)), vdup_n_u8(flip)));
                    }
                } else {
                    for at in 0..n {
                        *to.add(at) = *from.add(at) ^ flip;
                    }
                }
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn copy_16(from: *const u8, to: *mut u8, flip: u8) {
            // SAFETY: the caller promises NEON and 16 bytes in both.
            unsafe { vst1q_u8(to, veorq_u8(vld1q_u8(from), vdupq_n_u8(flip))) }
        }
        #[inline(always)]
        fn channel_of(vector: usize, lane: usize) -> usize {
            vector * LANES + lane
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_channels(p: *mut u8, v: [Self::I; 4], narrowing: Narrowing) {
            // SAFETY: the caller promises NEON and `4 * LANES` writable bytes.
            unsafe { Self::store_halves([p, p.add(2 * LANES)], v, narrowing) }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn store_halves(to: [*mut u8; 2], v: [Self::I; 4], narrowing: Narrowing) {
            // SAFETY: the caller promises NEON and `2 * LANES` writable bytes at each pointer.
            unsafe {
                vst1q_u8(to[0], narrowed([v[0], v[1]], narrowing));
                vst1q_u8(to[1], narrowed([v[2], v[3]], narrowing));
            }
        }
    };
}

/// `x` between `low` and `high`; NaN stays.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn clamped(x: float32x4_t, low: float32x4_t, high: float32x4_t) -> float32x4_t {
    // SAFETY: the caller promises NEON.
    unsafe {
        let raised = vbslq_f32(vcgtq_f32(low, x), low, x);
        vbslq_f32(vcltq_f32(high, raised), high, raised)
    }
}

/// Bytes of two vectors.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn narrowed(v: [[int32x4_t; 2]; 2], narrowing: Narrowing) -> uint8x16_t {
    let Narrowing { zero, low, high, flip } = narrowing;
    // Every step saturates, so numbers beyond the limits end at them.
    // SAFETY: the caller promises NEON.
    unsafe {
        let bytes = v.map(|[a, b]| {
            let words = vcombine_s16(vqmovn_s32(a), vqmovn_s32(b));
            vqmovn_s16(vqaddq_s16(words, vdupq_n_s16(zero)))
        });
        let bytes = vcombine_s8(bytes[0], bytes[1]);
        let limited = vminq_s8(vmaxq_s8(bytes, vdupq_n_s8(low)), vdupq_n_s8(high));
        veorq_u8(vreinterpretq_u8_s8(limited), vdupq_n_u8(flip))
    }
}

/// Quads of 16 channels from four taps: four channels in each register.
///
/// # Safety
/// The processor has NEON; each pointer is to 16 readable bytes.
#[inline(always)]
unsafe fn quads(taps: [*const u8; 4], flip: u8) -> [uint8x16_t; 4] {
    // SAFETY: the caller promises NEON and the bytes.
    unsafe {
        let [a, b, c, d] = taps.map(|tap| veorq_u8(vld1q_u8(tap), vdupq_n_u8(flip)));
        let words = |v: uint8x16_t| vreinterpretq_u16_u8(v);
        let (ab, ab_high) = (words(vzip1q_u8(a, b)), words(vzip2q_u8(a, b)));
        let (cd, cd_high) = (words(vzip1q_u8(c, d)), words(vzip2q_u8(c, d)));
        [vzip1q_u16(ab, cd), vzip2q_u16(ab, cd), vzip1q_u16(ab_high, cd_high), vzip2q_u16(ab_high, cd_high)]
            .map(|v| vreinterpretq_u8_u16(v))
    }
}

/// Quads of 32 channels: eight in each pair of registers.
///
/// # Safety
/// The processor has NEON; each pointer is to 32 readable bytes.
#[inline(always)]
unsafe fn pairs_of_quads(taps: [*const u8; 4], flip: u8) -> [[uint8x16_t; 2]; 4] {
    // SAFETY: the caller promises NEON and the bytes.
    unsafe {
        let ([a, b, c, d], [e, f, g, h]) = (quads(taps, flip), quads(taps.map(|tap| tap.add(16)), flip));
        [[a, b], [c, d], [e, f], [g, h]]
    }
}

/// Bytes in 16 bits.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn widened([a, b]: [uint8x16_t; 2]) -> [int16x8_t; 4] {
    // SAFETY: the caller promises NEON.
    unsafe {
        [vmovl_u8(vget_low_u8(a)), vmovl_high_u8(a), vmovl_u8(vget_low_u8(b)), vmovl_high_u8(b)]
            .map(|v| vreinterpretq_s16_u16(v))
    }
}

impl Dots for Neon {
    const CHAINS: usize = 1;
    // Two columns in each, two sums each.
    type Sums = [int32x4_t; 4];
    type Weights = [int16x8_t; 4];
    type Inputs = [int16x8_t; 4];
    common!();

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        // SAFETY: the caller promises NEON.
        unsafe { [vdupq_n_s32(0); 4] }
    }
    #[inline(always)]
    unsafe fn weights<const PART: usize>(p: *const i8) -> Self::Weights {
        // SAFETY: the caller promises NEON and 32 readable bytes.
        unsafe {
            let (a, b) = (vld1q_s8(p), vld1q_s8(p.add(16)));
            [vmovl_s8(vget_low_s8(a)), vmovl_high_s8(a), vmovl_s8(vget_low_s8(b)), vmovl_high_s8(b)]
        }
    }
    #[inline(always)]
    unsafe fn broadcast<const PART: usize>(p: *const u8) -> Self::Inputs {
        // SAFETY: the caller promises NEON and four readable bytes.
        unsafe {
            let quad = vreinterpret_u8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
            [vreinterpretq_s16_u16(vmovl_u8(quad)); 4]
        }
    }
    #[inline(always)]
    unsafe fn dot(sums: Self::Sums, inputs: Self::Inputs, weights: Self::Weights) -> Self::Sums {
        // 255 · -128 is a number of 16 bits.
        // SAFETY: the caller promises NEON.
        unsafe {
            [
                vpadalq_s16(sums[0], vmulq_s16(inputs[0], weights[0])),
                vpadalq_s16(sums[1], vmulq_s16(inputs[1], weights[1])),
                vpadalq_s16(sums[2], vmulq_s16(inputs[2], weights[2])),
                vpadalq_s16(sums[3], vmulq_s16(inputs[3], weights[3])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn add_sums(a: Self::Sums, b: Self::Sums) -> Self::Sums {
        // SAFETY: the caller promises NEON.
        unsafe {
            [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1]), vaddq_s32(a[2], b[2]), vaddq_s32(a[3], b[3])]
        }
    }
    #[inline(always)]
    unsafe fn lanes(sums: Self::Sums) -> Self::I {
        // SAFETY: the caller promises NEON.
        unsafe { [vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3])] }
    }
}

impl TapDots for Neon {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [Self::Inputs; 4] {
        // SAFETY: the caller promises NEON and the bytes.
        unsafe { pairs_of_quads(taps, flip).map(|v| widened(v)) }
    }
}

/// The methods of instructions that add four products to a lane.
macro_rules! dot_products {
    ($shift:literal, $instruction:literal) => {
        const SHIFT: i32 = $shift;
        const CHAINS: usize = 8;
        type Sums = [int32x4_t; 2];
        type Weights = [int8x16_t; 2];
        type Inputs = [uint8x16_t; 2];
        common!();

        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn zero() -> Self::Sums {
            // SAFETY: the caller promises NEON.
            unsafe { [vdupq_n_s32(0); 2] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn weights<const PART: usize>(p: *const i8) -> Self::Weights {
            // SAFETY: the caller promises NEON and 32 readable bytes.
            unsafe { [vld1q_s8(p), vld1q_s8(p.add(16))] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn broadcast<const PART: usize>(p: *const u8) -> Self::Inputs {
            // SAFETY: the caller promises NEON and four readable bytes.
            unsafe {
                let quad = vreinterpretq_u8_u32(vdupq_n_u32(p.cast::<u32>().read_unaligned()));
                [veorq_u8(quad, vdupq_n_u8($shift as u8)); 2]
            }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn dot(sums: Self::Sums, inputs: Self::Inputs, weights: Self::Weights) -> Self::Sums {
            /// # Safety
            /// The processor has the instruction, and the caller is compiled with it.
            #[inline(always)]
            unsafe fn one(mut sum: int32x4_t, x: uint8x16_t, w: int8x16_t) -> int32x4_t {
                // SAFETY: the caller promises the instruction, which touches registers alone.
                unsafe {
                    asm!(
                        concat!($instruction, " {0:v}.4s, {1:v}.16b, {2:v}.16b"),
                        inout(vreg) sum, in(vreg) x, in(vreg) w,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
                sum
            }
            // SAFETY: the caller promises the instruction.
            unsafe { [one(sums[0], inputs[0], weights[0]), one(sums[1], inputs[1], weights[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn add_sums(a: Self::Sums, b: Self::Sums) -> Self::Sums {
            // SAFETY: the caller promises NEON.
            unsafe { [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1])] }
        }
        /// # Safety
        /// As [`Dots`] has it for this method.
        #[inline(always)]
        unsafe fn lanes(sums: Self::Sums) -> Self::I {
            sums
        }
    };
}

// Flipping the highest bit makes signed bytes of unsigned ones, 128 lower.
impl Dots for NeonDot {
    dot_products!(128, "sdot");
}

impl TapDots for NeonDot {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [Self::Inputs; 4] {
        // SAFETY: the caller promises NEON and the bytes.
        unsafe { pairs_of_quads(taps, flip ^ 0x80) }
    }
}

impl Dots for NeonMixedDot {
    dot_products!(0, "usdot");
}

impl TapDots for NeonMixedDot {
    #[inline(always)]
    unsafe fn interleave(taps: [*const u8; 4], flip: u8) -> [Self::Inputs; 4] {
        // SAFETY: the caller promises NEON and the bytes.
        unsafe { pairs_of_quads(taps, flip) }
    }
}
