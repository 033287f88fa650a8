//! The few vector operations a tile needs, per instruction set. Unsafe island.

/// Vectors of an instruction set.
///
/// # Safety
/// Every function may only be called on a processor that has the instruction set, inside a function
/// compiled for it. Pointers must be valid for the lanes that are touched; no alignment is needed.
pub(crate) unsafe trait TileIsa: Copy {
    /// One register (or a small array that the compiler keeps in registers).
    type V: Copy;
    /// Which lanes take part, the first ones always.
    type Mask: Copy;
    /// f32 lanes of `V`.
    const LANES: usize;

    unsafe fn zero() -> Self::V;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    /// A hint that the line of `p` will be read; any pointer is allowed.
    unsafe fn prefetch(p: *const f32);
    /// The same into the second-level cache.
    unsafe fn prefetch_level_2(p: *const f32);
    /// The first `lanes` lanes; more than there are means all.
    unsafe fn mask(lanes: usize) -> Self::Mask;
    unsafe fn load_masked(p: *const f32, m: Self::Mask) -> Self::V;
    unsafe fn store_masked(p: *mut f32, m: Self::Mask, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `x` limited to `[low, high]`; NaN stays NaN.
    unsafe fn clamp(x: Self::V, low: Self::V, high: Self::V) -> Self::V;
}

/// Plain Rust, eight lanes. Multiplies and adds separately: a fused operation without hardware
/// support would be a library call per element.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

// SAFETY: no instruction beyond the target's baseline is used.
unsafe impl TileIsa for Portable {
    type V = [f32; 8];
    type Mask = usize;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self::V {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: eight readable lanes by contract; unaligned reads are allowed for arrays of bytes.
        unsafe { p.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: eight writable lanes by contract.
        unsafe { p.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
    #[inline(always)]
    unsafe fn prefetch_level_2(_: *const f32) {}
    #[inline(always)]
    unsafe fn mask(lanes: usize) -> usize {
        lanes.min(8)
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f32, m: usize) -> Self::V {
        // SAFETY: only the first `m` lanes are read.
        std::array::from_fn(|i| if i < m { unsafe { p.add(i).read() } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_masked(p: *mut f32, m: usize, v: Self::V) {
        for (i, x) in v.into_iter().enumerate().take(m) {
            // SAFETY: only the first `m` lanes are written.
            unsafe { p.add(i).write(x) }
        }
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn clamp(x: Self::V, low: Self::V, high: Self::V) -> Self::V {
        std::array::from_fn(|i| {
            // Comparisons with NaN are false, so NaN falls through both.
            let raised = if x[i] < low[i] { low[i] } else { x[i] };
            if raised > high[i] { high[i] } else { raised }
        })
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::TileIsa;
    use std::arch::x86_64::*;

    macro_rules! instructions {
        ($(fn $name:ident($($arg:ident: $t:ty),*) -> $r:ty = $body:expr;)*) => { $(
            #[inline(always)]
            #[allow(unused_unsafe)]
            unsafe fn $name($($arg: $t),*) -> $r {
                // SAFETY: the contract of the trait: the instruction set is there, pointers are valid.
                unsafe { $body }
            }
        )* };
    }

    /// AVX2 with FMA, eight lanes.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2;

    // SAFETY: each function is one AVX2 or FMA instruction under the trait's contract. MAXPS and MINPS
    // return their second operand when one is NaN, so the value goes second in `clamp`.
    unsafe impl TileIsa for Avx2 {
        type V = __m256;
        type Mask = __m256i;
        const LANES: usize = 8;

        instructions! {
            fn zero() -> __m256 = _mm256_setzero_ps();
            fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
            fn load(p: *const f32) -> __m256 = _mm256_loadu_ps(p);
            fn store(p: *mut f32, v: __m256) -> () = _mm256_storeu_ps(p, v);
            fn prefetch(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
            fn prefetch_level_2(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T1>(p.cast());
            fn mask(lanes: usize) -> __m256i = _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes.min(8) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            fn load_masked(p: *const f32, m: __m256i) -> __m256 = _mm256_maskload_ps(p, m);
            fn store_masked(p: *mut f32, m: __m256i, v: __m256) -> () = _mm256_maskstore_ps(p, m, v);
            fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
            fn clamp(x: __m256, low: __m256, high: __m256) -> __m256 = _mm256_min_ps(high, _mm256_max_ps(low, x));
        }
    }

    /// AVX-512 F, sixteen lanes.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512;

    // SAFETY: each function is one AVX-512 F instruction under the trait's contract; NaN in `clamp` as
    // for AVX2.
    unsafe impl TileIsa for Avx512 {
        type V = __m512;
        type Mask = __mmask16;
        const LANES: usize = 16;

        instructions! {
            fn zero() -> __m512 = _mm512_setzero_ps();
            fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
            fn load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
            fn store(p: *mut f32, v: __m512) -> () = _mm512_storeu_ps(p, v);
            fn prefetch(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
            fn prefetch_level_2(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T1>(p.cast());
            fn mask(lanes: usize) -> __mmask16 = if lanes >= 16 { u16::MAX } else { (1u16 << lanes) - 1 };
            fn load_masked(p: *const f32, m: __mmask16) -> __m512 = _mm512_maskz_loadu_ps(m, p);
            fn store_masked(p: *mut f32, m: __mmask16, v: __m512) -> () = _mm512_mask_storeu_ps(p, m, v);
            fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
            fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
            fn clamp(x: __m512, low: __m512, high: __m512) -> __m512 = _mm512_min_ps(high, _mm512_max_ps(low, x));
        }
    }
}
