//! [`Simd`] with NEON, the vectors of every 64-bit ARM processor. Unsafe island: every block relies on [`Neon`] being made
//! only inside [`enter`] and [`vectors`], whose callers have detected the feature.
//!
//! A register has four lanes, and there are 32 of them: kernels see two side by side ([`Twice`]), which is the register file
//! of AVX2 in numbers and in bytes. So what is laid out for AVX2 fits, and sums come in its order.

use super::intrinsics::{memory, pure};
use super::simd::{Simd, SimdTask};
use super::twice::Twice;
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof that NEON is there: one register of four lanes.
#[derive(Clone, Copy)]
pub struct Neon(());

/// The vectors that kernels are given.
pub type NeonPair = Twice<Neon>;

/// Does the processor have what [`enter`] needs?
pub fn is_available() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

/// Runs `task` with NEON code.
///
/// # Safety
/// [`is_available`] is true.
#[target_feature(enable = "neon")]
pub unsafe fn enter<T: SimdTask>(task: T) -> T::Output {
    task.run(Twice(Neon(())))
}

/// The proof for code that is written for NEON alone.
///
/// # Safety
/// [`is_available`] is true.
#[inline(always)]
pub unsafe fn vectors() -> NeonPair {
    Twice(Neon(()))
}

/// 2^n for integral n in -126..=127, built in the exponent field.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn power_of_two(n: float32x4_t) -> float32x4_t {
    // SAFETY: the caller promises NEON; no memory is touched.
    unsafe {
        let exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
        vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
    }
}

impl Simd for Neon {
    type F = float32x4_t;
    type I = int32x4_t;
    type M = uint32x4_t;
    type D = float64x2_t;
    type L = int64x2_t;
    const LANES: usize = 4;
    // Of two registers each, as many as with AVX2.
    const AT_ONCE: usize = 4;

    pure!(splat(v: f32) -> float32x4_t, vdupq_n_f32(v));
    memory!(load(p: *const f32) -> float32x4_t, vld1q_f32(p));
    memory!(load_partial(p: *const f32, n: usize) -> float32x4_t, {
        let zero = vdupq_n_f32(0.0);
        match n {
            0 => zero,
            1 => vld1q_lane_f32::<0>(p, zero),
            2 => vcombine_f32(vld1_f32(p), vget_low_f32(zero)),
            3 => vld1q_lane_f32::<2>(p.add(2), vcombine_f32(vld1_f32(p), vget_low_f32(zero))),
            _ => vld1q_f32(p),
        }
    });
    memory!(load_even(p: *const f32, n: usize) -> float32x4_t, {
        let zero = vdupq_n_f32(0.0);
        match n {
            0 => zero,
            1 => vld1q_lane_f32::<0>(p, zero),
            2 => vld1q_lane_f32::<1>(p.add(2), vld1q_lane_f32::<0>(p, zero)),
            // The last odd element need not exist: the second register ends with the last even one.
            3 => vld1q_lane_f32::<2>(p.add(4), vuzp1q_f32(vld1q_f32(p), zero)),
            _ => {
                let high = vld1q_f32(p.add(3));
                vcombine_f32(vget_low_f32(vuzp1q_f32(vld1q_f32(p), zero)), vget_low_f32(vuzp2q_f32(high, high)))
            }
        }
    });
    memory!(store(p: *mut f32, v: float32x4_t), vst1q_f32(p, v));
    memory!(store_partial(p: *mut f32, v: float32x4_t, n: usize), {
        match n {
            0 => {}
            1 => vst1q_lane_f32::<0>(p, v),
            2 => vst1_f32(p, vget_low_f32(v)),
            3 => {
                vst1_f32(p, vget_low_f32(v));
                vst1q_lane_f32::<2>(p.add(2), v);
            }
            _ => vst1q_f32(p, v),
        }
    });
    pure!(add(a: float32x4_t, b: float32x4_t) -> float32x4_t, vaddq_f32(a, b));
    pure!(sub(a: float32x4_t, b: float32x4_t) -> float32x4_t, vsubq_f32(a, b));
    pure!(mul(a: float32x4_t, b: float32x4_t) -> float32x4_t, vmulq_f32(a, b));
    pure!(div(a: float32x4_t, b: float32x4_t) -> float32x4_t, vdivq_f32(a, b));
    pure!(fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t, vfmaq_f32(c, a, b));
    pure!(fnma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t, vfmsq_f32(c, a, b));
    // The processor's own minimum is NaN when either operand is.
    pure!(min(a: float32x4_t, b: float32x4_t) -> float32x4_t, vbslq_f32(vcltq_f32(a, b), a, b));
    pure!(max(a: float32x4_t, b: float32x4_t) -> float32x4_t, vbslq_f32(vcgtq_f32(a, b), a, b));
    pure!(abs(a: float32x4_t) -> float32x4_t, vabsq_f32(a));
    pure!(neg(a: float32x4_t) -> float32x4_t, vnegq_f32(a));
    pure!(sqrt(a: float32x4_t) -> float32x4_t, vsqrtq_f32(a));
    pure!(round(a: float32x4_t) -> float32x4_t, vrndnq_f32(a));
    pure!(scale2(a: float32x4_t, n: float32x4_t) -> float32x4_t, {
        // Three factors of at most 2^±100 reach every n; all but the last keep the product in the normal range when
        // `a` is near one.
        let third = vrndnq_f32(vmulq_f32(n, vdupq_n_f32(1.0 / 3.0)));
        let last = vsubq_f32(n, vaddq_f32(third, third));
        let (p, q) = (power_of_two(third), power_of_two(last));
        vmulq_f32(vmulq_f32(vmulq_f32(a, p), p), q)
    });
    pure!(splat_d(v: f64) -> float64x2_t, vdupq_n_f64(v));
    memory!(load_d(p: *const f64) -> float64x2_t, vld1q_f64(p));
    memory!(store_d(p: *mut f64, v: float64x2_t), vst1q_f64(p, v));
    pure!(fma_d(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t, vfmaq_f64(c, a, b));
    pure!(splat_l(v: i64) -> int64x2_t, vdupq_n_s64(v));
    memory!(load_l(p: *const i64) -> int64x2_t, vld1q_s64(p));
    memory!(store_l(p: *mut i64, v: int64x2_t), vst1q_s64(p, v));
    pure!(add_l(a: int64x2_t, b: int64x2_t) -> int64x2_t, vaddq_s64(a, b));
    pure!(mul_l(a: int64x2_t, b: int64x2_t) -> int64x2_t, {
        // The products of the halves that reach the lower 64 bits.
        let (a, b) = (vreinterpretq_u32_s64(a), vreinterpretq_u32_s64(b));
        let crossed = vshlq_n_u64::<32>(vpaddlq_u32(vmulq_u32(a, vrev64q_u32(b))));
        let low = |v: uint32x4_t| vmovn_u64(vreinterpretq_u64_u32(v));
        vreinterpretq_s64_u64(vmlal_u32(crossed, low(a), low(b)))
    });
    pure!(lt(a: float32x4_t, b: float32x4_t) -> uint32x4_t, vcltq_f32(a, b));
    pure!(le(a: float32x4_t, b: float32x4_t) -> uint32x4_t, vcleq_f32(a, b));
    pure!(eq(a: float32x4_t, b: float32x4_t) -> uint32x4_t, vceqq_f32(a, b));
    pure!(not(m: uint32x4_t) -> uint32x4_t, vmvnq_u32(m));
    pure!(or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t, vorrq_u32(a, b));
    pure!(any(m: uint32x4_t) -> bool, vmaxvq_u32(m) != 0);
    pure!(select(m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t, vbslq_f32(m, a, b));
    memory!(load_bools(p: *const u8, n: usize) -> uint32x4_t, {
        let mut bytes = [0u8; 4];
        if n >= 4 {
            bytes = p.cast::<[u8; 4]>().read_unaligned();
        } else {
            for (i, b) in bytes.iter_mut().enumerate().take(n) {
                *b = *p.add(i);
            }
        }
        let wide = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(u32::from_le_bytes(bytes)))));
        let wide = vmovl_u16(wide);
        vtstq_u32(wide, wide)
    });
    memory!(store_bools(p: *mut u8, m: uint32x4_t, n: usize), {
        let narrow = vmovn_u32(vshrq_n_u32::<31>(m));
        let bytes = vget_lane_u32::<0>(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(narrow, narrow)))).to_le_bytes();
        if n >= 4 {
            p.cast::<[u8; 4]>().write_unaligned(bytes);
        } else {
            for (i, b) in bytes.iter().enumerate().take(n) {
                *p.add(i) = *b;
            }
        }
    });
    pure!(to_bits(a: float32x4_t) -> int32x4_t, vreinterpretq_s32_f32(a));
    pure!(of_bits(a: int32x4_t) -> float32x4_t, vreinterpretq_f32_s32(a));
    pure!(splat_i(v: i32) -> int32x4_t, vdupq_n_s32(v));
    pure!(add_i(a: int32x4_t, b: int32x4_t) -> int32x4_t, vaddq_s32(a, b));
    pure!(mul_i(a: int32x4_t, b: int32x4_t) -> int32x4_t, vmulq_s32(a, b));
    pure!(sub_i(a: int32x4_t, b: int32x4_t) -> int32x4_t, vsubq_s32(a, b));
    pure!(and_i(a: int32x4_t, b: int32x4_t) -> int32x4_t, vandq_s32(a, b));
    pure!(or_i(a: int32x4_t, b: int32x4_t) -> int32x4_t, vorrq_s32(a, b));
    #[inline(always)]
    fn shl_i<const N: u32>(self, a: int32x4_t) -> int32x4_t {
        // SAFETY: `self` proves the feature.
        unsafe { vshlq_s32(a, vdupq_n_s32(N as i32)) }
    }
    #[inline(always)]
    fn shr_i<const N: u32>(self, a: int32x4_t) -> int32x4_t {
        // SAFETY: `self` proves the feature; a shift to the left by less than nothing is one to the right.
        unsafe { vshlq_s32(a, vdupq_n_s32(-(N as i32))) }
    }
    memory!(load_i8(p: *const i8) -> int32x4_t, {
        let bytes = vreinterpret_s8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
        vmovl_s16(vget_low_s16(vmovl_s8(bytes)))
    });
    memory!(store_i8(p: *mut i8, v: int32x4_t), {
        let words = vmovn_s32(v);
        let bytes = vmovn_s16(vcombine_s16(words, words));
        p.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_s8(bytes)))
    });
    pure!(nibbles(a: int32x4_t) -> (float32x4_t, float32x4_t), {
        let low = vshrq_n_s32::<28>(vshlq_n_s32::<28>(a));
        let high = vshrq_n_s32::<28>(vshlq_n_s32::<24>(a));
        (vcvtq_f32_s32(low), vcvtq_f32_s32(high))
    });
    // The intrinsics of float16 name a type that stable Rust does not have; the instructions are in the baseline.
    memory!(load_binary16(p: *const u16) -> float32x4_t, {
        let (halves, wide): (uint16x4_t, float32x4_t);
        halves = vld1_u16(p);
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
        wide
    });
    memory!(store_binary16(p: *mut u16, v: float32x4_t), {
        // Rounds to nearest, ties to even, unless told otherwise.
        let halves: uint16x4_t;
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) halves, in(vreg) v, options(pure, nomem, nostack, preserves_flags));
        vst1_u16(p, halves)
    });
    memory!(load_brain16(p: *const u16) -> float32x4_t, vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p))));
    memory!(store_brain16(p: *mut u16, v: float32x4_t), {
        let bits = vreinterpretq_u32_f32(v);
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        // Rounding could carry a NaN into an infinity.
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
        vst1_u16(p, vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(v, v), rounded, quiet)))
    });
    pure!(to_float(a: int32x4_t) -> float32x4_t, vcvtq_f32_s32(a));
    const FUSES_DOUBLE: bool = true;
    #[inline(always)]
    fn fma_double(self, a: f64, b: f64, c: f64) -> f64 {
        // One instruction of the baseline.
        a.mul_add(b, c)
    }
    pure!(reduce_add(a: float32x4_t) -> f32, {
        let d = vadd_f32(vget_low_f32(a), vget_high_f32(a));
        vget_lane_f32::<0>(vpadd_f32(d, d))
    });
    pure!(reduce_max(a: float32x4_t) -> f32, vmaxvq_f32(a));
    // Each is NaN when either operand is, as the trait wants it here.
    pure!(max_nan(a: float32x4_t, b: float32x4_t) -> float32x4_t, vmaxq_f32(a, b));
    pure!(min_nan(a: float32x4_t, b: float32x4_t) -> float32x4_t, vminq_f32(a, b));
    #[inline(always)]
    unsafe fn transpose_block(
        self,
        src: *const f32,
        src_stride: usize,
        rows: usize,
        cols: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        let mut v = [self.splat(0.0); 4];
        // SAFETY: only rows < `rows` and columns < `cols` are touched; the rest is shuffles.
        unsafe {
            for (r, v) in v.iter_mut().enumerate().take(rows) {
                *v = self.load_up_to(src.add(r * src_stride), cols);
            }
            let t = transpose4(v);
            for (c, t) in t.iter().enumerate().take(cols) {
                self.store_up_to(dst.add(c * dst_stride), *t, rows);
            }
        }
    }
}

/// Transposes a 4x4 block in registers.
///
/// # Safety
/// NEON is there.
#[inline(always)]
unsafe fn transpose4(v: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the caller promises NEON; no memory is touched.
    unsafe {
        let wide = |v: float32x4_t| vreinterpretq_f64_f32(v);
        let (a, b) = (wide(vtrn1q_f32(v[0], v[1])), wide(vtrn2q_f32(v[0], v[1])));
        let (c, d) = (wide(vtrn1q_f32(v[2], v[3])), wide(vtrn2q_f32(v[2], v[3])));
        [vtrn1q_f64(a, c), vtrn1q_f64(b, d), vtrn2q_f64(a, c), vtrn2q_f64(b, d)]
            .map(|v| vreinterpretq_f32_f64(v))
    }
}
