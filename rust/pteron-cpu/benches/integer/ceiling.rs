//! The most byte products one thread can do: independent chains of dot products in registers, nothing loaded.

use pteron_core::Isa;
use std::time::Instant;

/// Rounds of one timing.
const ROUNDS: usize = 100_000;

macro_rules! chains {
    ($name:ident, $feature:literal, $zero:path, $dot:expr, $products:literal, $chains:literal) => {
        /// Operations of one call.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        fn $name() -> f64 {
            let x = std::hint::black_box($zero());
            let mut sums = [x; $chains];
            for _ in 0..ROUNDS {
                for s in &mut sums {
                    *s = $dot(*s, x);
                }
            }
            std::hint::black_box(sums);
            (ROUNDS * $chains * $products * 2) as f64
        }
    };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
chains!(avx512_vnni, "avx512f,avx512vnni", _mm512_setzero_si512, |s, x| _mm512_dpbusd_epi32(s, x, x), 64, 24);
chains!(avx_vnni, "avx2,avxvnni", _mm256_setzero_si256, |s, x| _mm256_dpbusd_avx_epi32(s, x, x), 32, 12);
chains!(avx2, "avx2", _mm256_setzero_si256, |s, x| _mm256_add_epi32(x, _mm256_madd_epi16(s, x)), 16, 12);

/// Four products of tile registers, over and over; operations of one call.
///
/// # Safety
/// The processor has tile registers and the system lets this process use them.
#[cfg(target_arch = "x86_64")]
unsafe fn amx() -> f64 {
    #[repr(align(64))]
    struct Shapes([u8; 64]);
    let mut shapes = Shapes([0; 64]);
    shapes.0[0] = 1;
    for tile in 0..8 {
        (shapes.0[16 + 2 * tile], shapes.0[48 + tile]) = (64, 16);
    }
    // SAFETY: the caller promises tile registers; shapes are as `ldtilecfg` reads them, and no address is used.
    unsafe {
        std::arch::asm!(
            "ldtilecfg [{shapes}]",
            "2:",
            "tdpbusd tmm0, tmm4, tmm6",
            "tdpbusd tmm1, tmm4, tmm7",
            "tdpbusd tmm2, tmm5, tmm6",
            "tdpbusd tmm3, tmm5, tmm7",
            "dec {rounds}",
            "jnz 2b",
            "tilerelease",
            shapes = in(reg) &shapes,
            rounds = inout(reg) ROUNDS / 4 => _,
            options(nostack),
        );
    }
    (ROUNDS / 4 * 4 * 16 * 16 * 64 * 2) as f64
}

/// The best of several timings, in operations per second; not a number where there is nothing to measure. `has_tiles`: of
/// tile registers.
pub fn operations_per_second(isa: Isa, has_tiles: bool) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let has_512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
        let mut best = 0.0f64;
        for _ in 0..40 {
            let start = Instant::now();
            let operations = match isa {
                // SAFETY: the kernels have found them usable.
                Isa::Avx512 if has_tiles => unsafe { amx() },
                // SAFETY: the features were just detected.
                Isa::Avx512 if has_512 => unsafe { avx512_vnni() },
                // SAFETY: the features are detected first.
                Isa::Avx2 if is_x86_feature_detected!("avxvnni") => unsafe { avx_vnni() },
                // SAFETY: the profile of this processor has AVX2 for these.
                Isa::Avx2 | Isa::Avx512 => unsafe { avx2() },
                Isa::Portable | Isa::Neon => return f64::NAN,
            };
            best = best.max(operations / start.elapsed().as_secs_f64());
        }
        best
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        f64::NAN
    }
}
