//! The instruction sets that a processor has, and how work enters them.

use super::simd::SimdTask;
use pteron_core::Isa;

/// An instruction set that this processor has: what a kernel keeps after `prepare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimdLevel(Isa);

impl SimdLevel {
    /// `wanted`, or the best weaker one when the processor lacks it.
    pub fn at_most(wanted: Isa) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if wanted >= Isa::Avx512 && super::avx512::is_available() {
                return SimdLevel(Isa::Avx512);
            }
            if wanted >= Isa::Avx2 && super::avx2::is_available() {
                return SimdLevel(Isa::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if wanted >= Isa::Neon && super::neon::is_available() {
            return SimdLevel(Isa::Neon);
        }
        let _ = wanted;
        SimdLevel(Isa::Portable)
    }

    /// Which one.
    pub fn isa(self) -> Isa {
        self.0
    }

    /// Lanes of its vectors.
    pub fn lanes(self) -> usize {
        match self.0 {
            Isa::Avx512 => 16,
            Isa::Avx2 | Isa::Neon | Isa::Portable => 8,
        }
    }

    /// Runs `task`, whose loops the compiler vectorises, with at most AVX2: for work that waits for memory, where
    /// wider vectors gain nothing and a third variant would be code for nobody.
    #[inline(always)]
    pub fn dispatch_narrow<T: SimdTask>(self, task: T) -> T::Output {
        match self.0 {
            // SAFETY: `at_most`, the only constructor, detected the features, and AVX-512 implies AVX2 there.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx2 => unsafe { super::avx2::enter(task) },
            // SAFETY: `at_most`, the only constructor, detected NEON.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { super::neon::enter(task) },
            _ => task.run(super::portable::Portable),
        }
    }

    /// Runs `task` with this instruction set unless it is the portable one, of which callers have another way: for work
    /// that only instructions for vectors make quick, where a portable variant would be code for nobody.
    #[inline(always)]
    pub fn dispatch_vectors<T: SimdTask>(self, task: T) {
        match self.0 {
            // SAFETY: `at_most`, the only constructor, detected the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => drop(unsafe { super::avx512::enter(task) }),
            // SAFETY: `at_most`, the only constructor, detected AVX2, FMA and F16C.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => drop(unsafe { super::avx2::enter(task) }),
            // SAFETY: `at_most`, the only constructor, detected NEON.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => drop(unsafe { super::neon::enter(task) }),
            _ => {
                // Where the target has no other level, nothing else reads it.
                let _ = task;
                unreachable!("the portable level has no instructions for vectors")
            }
        }
    }

    /// Runs `task` with this instruction set.
    #[inline(always)]
    pub fn dispatch<T: SimdTask>(self, task: T) -> T::Output {
        match self.0 {
            // SAFETY: `at_most`, the only constructor, detected the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { super::avx512::enter(task) },
            // SAFETY: `at_most`, the only constructor, detected AVX2, FMA and F16C.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { super::avx2::enter(task) },
            // SAFETY: `at_most`, the only constructor, detected NEON.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { super::neon::enter(task) },
            _ => task.run(super::portable::Portable),
        }
    }
}
