//! Finds out what processor this is: the instruction set to use and the cache sizes.
//!
//! The environment variable `PTERON_ISA` (`portable`, `avx2`, `avx512`) lowers the instruction set;
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
    Isa::Portable
}

/// Every instruction set that kernels may be forced to on this machine, weakest first.
pub fn available_isas() -> Vec<Isa> {
    [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| *isa <= best_isa()).collect()
}

/// The processor as kernels are prepared for it: [`best_isa`], lowered by `PTERON_ISA`.
///
/// Errors when `PTERON_ISA` names no instruction set, or one that this processor lacks.
pub fn detect() -> Result<CpuProfile> {
    let wanted = std::env::var("PTERON_ISA").ok();
    Ok(CpuProfile {
        isa: choose_isa(wanted.as_deref(), best_isa())?,
        l1_bytes: l1_bytes(),
        l2_bytes: l2_bytes(),
        load_threads: 1,
    })
}

/// The profile for a given instruction set; an error when this processor lacks it.
pub fn profile_for(isa: Isa) -> Result<CpuProfile> {
    Ok(CpuProfile {
        isa: choose_isa(Some(isa.name()), best_isa())?,
        l1_bytes: l1_bytes(),
        l2_bytes: l2_bytes(),
        load_threads: 1,
    })
}

fn choose_isa(wanted: Option<&str>, best: Isa) -> Result<Isa> {
    let Some(name) = wanted.filter(|name| !name.is_empty()) else {
        return Ok(best);
    };
    let isa = Isa::from_name(name).ok_or_else(|| {
        Error::input("PTERON_ISA names no instruction set that kernels are written for")
            .expected("portable, avx2 or avx512")
            .got(name)
            .hint("unset PTERON_ISA to use the best one this processor has")
    })?;
    if isa > best {
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

#[cfg(not(target_arch = "x86_64"))]
fn cache_bytes(_level: u32) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_lowers_but_never_raises() {
        assert_eq!(choose_isa(None, Isa::Avx512).unwrap(), Isa::Avx512);
        assert_eq!(choose_isa(Some(""), Isa::Avx2).unwrap(), Isa::Avx2);
        assert_eq!(choose_isa(Some("portable"), Isa::Avx512).unwrap(), Isa::Portable);
        let e = choose_isa(Some("avx512"), Isa::Avx2).unwrap_err();
        assert!(e.to_string().contains("at most avx2"), "{e}");
        let e = choose_isa(Some("neon"), Isa::Avx2).unwrap_err();
        assert!(e.to_string().contains("neon"), "{e}");
    }

    #[test]
    fn caches_have_plausible_sizes() {
        let p = profile_for(Isa::Portable).unwrap();
        assert!((8 << 10..=1 << 20).contains(&p.l1_bytes), "{p:?}");
        assert!((64 << 10..=64 << 20).contains(&p.l2_bytes), "{p:?}");
        assert!(available_isas().contains(&best_isa()));
    }
}
