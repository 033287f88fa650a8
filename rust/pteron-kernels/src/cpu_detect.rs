//! Finds out what processor this is: the instruction set to use and the cache sizes.
//!
//! The environment variable `PTERON_ISA` (`portable`, `neon`, `avx2`, `avx512`) lowers the instruction set;
//! a set that the processor does not have is refused, never run.

use pteron_core::{CpuProfile, Error, Isa, Result};

/// Cache sizes taken when the processor does not tell: small enough to be true nearly everywhere.
const FALLBACK_L1: usize = 32 << 10;
/// See [`FALLBACK_L1`].
const FALLBACK_L2: usize = 512 << 10;

/// The best instruction set this processor has, whatever the environment says.
pub fn best_isa() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        if has_avx2 && has_avx512 {
            return Isa::Avx512;
        }
        if has_avx2 {
            return Isa::Avx2;
        }
    }
    #[cfg(target_arch = "aarch64")]
    if crate::vector_math::neon::is_available() {
        return Isa::Neon;
    }
    Isa::Portable
}

/// Those that code is compiled for on this processor's architecture, weakest first.
const COMPILED: &[Isa] = &[
    Isa::Portable,
    #[cfg(target_arch = "aarch64")]
    Isa::Neon,
    #[cfg(target_arch = "x86_64")]
    Isa::Avx2,
    #[cfg(target_arch = "x86_64")]
    Isa::Avx512,
];

/// Every instruction set that kernels may be forced to on this machine, weakest first.
pub fn available_isas() -> Vec<Isa> {
    COMPILED.iter().copied().filter(|isa| *isa <= best_isa()).collect()
}

/// The processor as kernels are prepared for it: [`best_isa`], lowered by `PTERON_ISA`.
///
/// Errors when `PTERON_ISA` names no instruction set, or one that this processor lacks.
pub fn detect() -> Result<CpuProfile> {
    let wanted = std::env::var("PTERON_ISA").ok();
    Ok(CpuProfile {
        isa: choose_isa(wanted.as_deref(), best_isa(), COMPILED)?,
        l1_bytes: l1_bytes(),
        l2_bytes: l2_bytes(),
        load_threads: 1,
    })
}

/// The profile for a given instruction set; an error when this processor lacks it.
pub fn profile_for(isa: Isa) -> Result<CpuProfile> {
    Ok(CpuProfile {
        isa: choose_isa(Some(isa.name()), best_isa(), COMPILED)?,
        l1_bytes: l1_bytes(),
        l2_bytes: l2_bytes(),
        load_threads: 1,
    })
}

/// `compiled`: those of the architecture.
fn choose_isa(wanted: Option<&str>, best: Isa, compiled: &[Isa]) -> Result<Isa> {
    let Some(name) = wanted.filter(|name| !name.is_empty()) else {
        return Ok(best);
    };
    let isa = Isa::from_name(name).ok_or_else(|| {
        Error::input("PTERON_ISA names no instruction set that kernels are written for")
            .expected("portable, neon, avx2 or avx512")
            .got(name)
            .hint("unset PTERON_ISA to use the best one this processor has")
    })?;
    if isa > best || !compiled.contains(&isa) {
        return Err(Error::input("the instruction set asked for is not available on this processor")
            .expected(format!("at most {}", best.name()))
            .got(name)
            .hint("unset PTERON_ISA, or choose a weaker one"));
    }
    Ok(isa)
}

fn l1_bytes() -> usize {
    cache_bytes(1).unwrap_or(FALLBACK_L1)
}

fn l2_bytes() -> usize {
    cache_bytes(2).unwrap_or(FALLBACK_L2)
}

/// Size of the data (or unified) cache of a level, from CPUID leaf 4. AMD processors report the same
/// subleaves in leaf 0x8000001D.
#[cfg(target_arch = "x86_64")]
fn cache_bytes(level: u32) -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // "AuthenticAMD" starts with these four bytes in EBX.
    let is_amd = __cpuid(0).ebx == u32::from_le_bytes(*b"Auth");
    let leaf = if is_amd { 0x8000_001d } else { 4 };
    let highest = if is_amd { __cpuid(0x8000_0000).eax } else { __cpuid(0).eax };
    if highest < leaf {
        return None;
    }
    for sub in 0..16 {
        let r = __cpuid_count(leaf, sub);
        let (kind, found_level) = (r.eax & 0x1f, (r.eax >> 5) & 7);
        if kind == 0 {
            return None;
        }
        // Kind 1 is data, 3 unified.
        if found_level == level && (kind == 1 || kind == 3) {
            let (ways, partitions, line, sets) =
                ((r.ebx >> 22) + 1, ((r.ebx >> 12) & 0x3ff) + 1, (r.ebx & 0xfff) + 1, r.ecx.wrapping_add(1));
            return Some(ways as usize * partitions as usize * line as usize * sets as usize);
        }
    }
    None
}

/// The same as Linux tells it; an emulator may tell nothing.
#[cfg(all(not(target_arch = "x86_64"), target_os = "linux"))]
fn cache_bytes(level: u32) -> Option<usize> {
    // A core has an instruction cache, a data cache and two or three levels behind them.
    (0..8).find_map(|index| {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
        };
        let is_level = read("level")?.trim().parse::<u32>().ok()? == level;
        let is_data = read("type")?.trim() != "Instruction";
        (is_level && is_data).then(|| size_of_text(&read("size")?)).flatten().filter(|bytes| *bytes > 0)
    })
}

#[cfg(all(not(target_arch = "x86_64"), not(target_os = "linux")))]
fn cache_bytes(_level: u32) -> Option<usize> {
    None
}

/// A size such as `32K` in bytes.
#[cfg(any(test, all(not(target_arch = "x86_64"), target_os = "linux")))]
fn size_of_text(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_lowers_but_never_raises() {
        const X86: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512];
        assert_eq!(choose_isa(None, Isa::Avx512, X86).unwrap(), Isa::Avx512);
        assert_eq!(choose_isa(Some(""), Isa::Avx2, X86).unwrap(), Isa::Avx2);
        assert_eq!(choose_isa(Some("portable"), Isa::Avx512, X86).unwrap(), Isa::Portable);
        let e = choose_isa(Some("avx512"), Isa::Avx2, X86).unwrap_err();
        assert!(e.to_string().contains("at most avx2"), "{e}");
        let e = choose_isa(Some("mmx"), Isa::Avx2, X86).unwrap_err();
        assert!(e.to_string().contains("mmx"), "{e}");
    }

    #[test]
    fn sets_of_another_architecture_are_refused() {
        const X86: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512];
        const ARM: &[Isa] = &[Isa::Portable, Isa::Neon];
        // NEON stands before AVX2 in the order, which says nothing about what there is.
        let e = choose_isa(Some("neon"), Isa::Avx512, X86).unwrap_err();
        assert!(e.to_string().contains("neon"), "{e}");
        let e = choose_isa(Some("avx2"), Isa::Neon, ARM).unwrap_err();
        assert!(e.to_string().contains("at most neon"), "{e}");
        assert_eq!(choose_isa(Some("neon"), Isa::Neon, ARM).unwrap(), Isa::Neon);
        assert_eq!(choose_isa(Some("portable"), Isa::Neon, ARM).unwrap(), Isa::Portable);
    }

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        assert_eq!(size_of_text("32K\n"), Some(32 << 10));
        assert_eq!(size_of_text("1M"), Some(1 << 20));
        assert_eq!(size_of_text("65536"), Some(65536));
        assert_eq!(size_of_text("many"), None);
        assert_eq!(size_of_text(""), None);
    }

    #[test]
    fn caches_have_plausible_sizes() {
        let p = profile_for(Isa::Portable).unwrap();
        assert!((8 << 10..=1 << 20).contains(&p.l1_bytes), "{p:?}");
        assert!((64 << 10..=64 << 20).contains(&p.l2_bytes), "{p:?}");
        assert!(available_isas().contains(&best_isa()));
    }
}
