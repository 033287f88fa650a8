//! The most multiply-adds one thread can do: independent chains in registers, nothing loaded.

use pteron_core::Isa;
use std::time::Instant;

/// Rounds of one timing.
const ROUNDS: usize = 200_000;

macro_rules! chains {
    ($name:ident, $feature:literal, $v:ty, $set:path, $fma:path, $lanes:literal, $chains:literal) => {
        /// Floating-point operations of one call.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        fn $name() -> f64 {
            use std::arch::x86_64::*;
            let (x, y) = ($set(std::hint::black_box(0.999)), $set(std::hint::black_box(1e-9)));
            let mut sums: [$v; $chains] = [x; $chains];
            for _ in 0..ROUNDS {
                for s in &mut sums {
                    *s = $fma(*s, x, y);
                }
            }
            std::hint::black_box(sums);
            (ROUNDS * $chains * $lanes * 2) as f64
        }
    };
}
chains!(avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, 16, 24);
chains!(avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, 8, 12);

/// Multiply and add apart, as the portable kernels do it: four lanes on the baseline of x86-64.
fn portable() -> f64 {
    let x = std::hint::black_box([0.999f32; 4]);
    let y = std::hint::black_box([1e-9f32; 4]);
    let mut sums = [x; 12];
    for _ in 0..ROUNDS {
        for s in &mut sums {
            for lane in 0..4 {
                s[lane] = s[lane] * x[lane] + y[lane];
            }
        }
    }
    std::hint::black_box(sums);
    (ROUNDS * 12 * 4 * 2) as f64
}

/// The best of several timings, in floating-point operations per second.
pub fn flops_per_second(isa: Isa) -> f64 {
    let mut best = 0.0f64;
    for _ in 0..40 {
        let start = Instant::now();
        let flops = match isa {
            // SAFETY: the caller asks for instruction sets that are available only.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512() },
            // SAFETY: the caller asks for instruction sets that are available only.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2() },
            _ => portable(),
        };
        best = best.max(flops / start.elapsed().as_secs_f64());
    }
    best
}
