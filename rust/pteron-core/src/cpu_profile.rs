//! What kernels may assume about the processor. Detection lives in `pteron-cpu`.

/// Instruction set a kernel variant is written for. Those of one processor family are in order, weakest first; NEON stands
/// before those of x86-64, so that "at most AVX2" is NEON where there is nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, any processor.
    Portable,
    /// 64-bit ARM with NEON (Advanced SIMD).
    Neon,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ.
    Avx512,
}

impl Isa {
    /// All of them, in order.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// The name used in options, listings and the `PTERON_ISA` variable.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The instruction set of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.name() == name)
    }
}

/// The processor as kernels see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuProfile {
    /// Best instruction set to use.
    pub isa: Isa,
    /// L1 data cache of a core, bytes.
    pub l1_bytes: usize,
    /// L2 cache of a core, bytes.
    pub l2_bytes: usize,
    /// Threads that load may use, at least 1.
    pub load_threads: usize,
}
