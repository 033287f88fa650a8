//! The most bytes one thread can read per second from memory of a given size: what a multiplication of few
//! rows is held against, since it reads every weight once.

use crate::clock::{best, thread_time};
use pteron_core::{AlignedBuffer, Isa};

/// Bytes that no cache holds.
pub const BEYOND_CACHES: usize = 256 << 20;

macro_rules! reader {
    ($name:ident, $feature:literal, $zero:path, $load:path, $add:path, $lanes:literal) => {
        /// Reads `n` floats (a multiple of 256) and adds them up in eight chains.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        fn $name(data: &[f32]) {
            use std::arch::x86_64::*;
            let mut sums = [$zero(); 8];
            for block in data.chunks_exact(8 * $lanes) {
                // SAFETY: prefetches of any address are allowed; the loads stay inside the block.
                unsafe {
                    for line in (0..8 * $lanes).step_by(16) {
                        _mm_prefetch::<_MM_HINT_T0>(block.as_ptr().wrapping_add(1024 + line).cast());
                    }
                    for (i, s) in sums.iter_mut().enumerate() {
                        *s = $add(*s, $load(block.as_ptr().add(i * $lanes)));
                    }
                }
            }
            std::hint::black_box(sums);
        }
    };
}
reader!(avx512, "avx512f", _mm512_setzero_ps, _mm512_loadu_ps, _mm512_add_ps, 16);
reader!(avx2, "avx2", _mm256_setzero_ps, _mm256_loadu_ps, _mm256_add_ps, 8);

fn portable(data: &[f32]) {
    let mut sums = [0f32; 32];
    for block in data.chunks_exact(32) {
        for (s, x) in sums.iter_mut().zip(block) {
            *s += x;
        }
    }
    std::hint::black_box(sums);
}

/// Bytes per second of reading `bytes` bytes again and again.
pub fn bytes_per_second(isa: Isa, bytes: usize) -> f64 {
    let bytes = bytes.next_multiple_of(1024);
    let mut buffer = AlignedBuffer::zeroed(bytes).expect("memory");
    // Every page gets memory of its own.
    buffer.as_mut_elements::<f32>().fill(1.0);
    let data = buffer.as_elements::<f32>();
    let seconds = best(thread_time, || match isa {
        // SAFETY: the caller asks for instruction sets that are available only.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512(data) },
        // SAFETY: the caller asks for instruction sets that are available only.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2(data) },
        _ => portable(data),
    });
    bytes as f64 / seconds
}
