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

/// The best of several timings, in operations per second; not a number where there is nothing to measure.
pub fn operations_per_second(isa: Isa) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let has_512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
        let mut best = 0.0f64;
        for _ in 0..40 {
            let start = Instant::now();
            let operations = match isa {
                // SAFETY: the features were just detected.
                Isa::Avx512 if has_512 => unsafe { avx512_vnni() },
                // SAFETY: the features are detected first.
                Isa::Avx2 if is_x86_feature_detected!("avxvnni") => unsafe { avx_vnni() },
                // SAFETY: the profile of this processor has AVX2 for these.
                Isa::Avx2 | Isa::Avx512 => unsafe { avx2() },
                Isa::Portable => return f64::NAN,
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
