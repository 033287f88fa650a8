//! What is compiled for each instruction set, and which of them a processor gets. Unsafe island: functions compiled for an instruction
//! set, reachable only through [`Kit::available`].
#![allow(unsafe_code, reason = "functions compiled for an instruction set")]

use super::dots::NibbleDots;
use super::tile::{Tile, TileFn, tile};
use crate::integer::dots::Portable;
#[cfg(target_arch = "x86_64")]
use crate::integer::dots::{Avx2, Avx512Vnni, AvxVnni};
#[cfg(target_arch = "aarch64")]
use crate::integer::dots::{Neon, NeonDot};
use pteron_core::Isa;

/// The code of an instruction set.
pub(super) struct Kit {
    /// In names of kernels.
    pub name: &'static str,
    /// By rows - 1; for scales of f32, and of bfloat16.
    pub tiles: [&'static [TileFn]; 2],
    /// Products of a thread, about.
    pub products_per_ns: usize,
    /// See [`NibbleDots::HALVES`].
    pub halves: bool,
}

macro_rules! kit {
    ($module:ident, $name:literal, $dots:ty, $($feature:literal)?; $rate:literal; $(($rows:literal, $vectors:literal))*) => {
        mod $module {
            use super::*;
            /// # Safety
            /// As [`tile`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn tiles<const R: usize, const C: usize, const BRAIN: bool>(t: &Tile) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { tile::<$dots, R, C, BRAIN>(t) }
            }
            pub(super) static KIT: Kit = Kit {
                name: $name,
                tiles: [&[$(tiles::<$rows, $vectors, false>),*], &[$(tiles::<$rows, $vectors, true>),*]],
                products_per_ns: $rate,
                halves: <$dots as NibbleDots>::HALVES,
            };
        }
    };
}

kit!(portable, "portable", Portable,; 2; (1, 1) (2, 1));
// Sums of a block take R x C registers of 16, weights 2 C. With AVX-512 totals are in registers, too, as many as sums: five rows
// leave some of 32.
#[cfg(target_arch = "x86_64")]
kit!(avx2, "avx2", Avx2, "avx2"; 90; (1, 4) (2, 2) (3, 2) (4, 2));
#[cfg(target_arch = "x86_64")]
kit!(avx_vnni, "avx_vnni", AvxVnni, "avx2,avxvnni"; 150; (1, 4) (2, 2) (3, 2) (4, 2));
#[cfg(target_arch = "x86_64")]
kit!(
    avx512_vnni, "avx512_vnni", Avx512Vnni, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"; 300;
    (1, 2) (2, 2) (3, 2) (4, 2) (5, 2)
);
#[cfg(target_arch = "aarch64")]
kit!(neon, "neon", Neon, "neon"; 20; (1, 2) (2, 2) (3, 1) (4, 1));
#[cfg(target_arch = "aarch64")]
kit!(neon_dotprod, "neon_dotprod", NeonDot, "neon,dotprod"; 80; (1, 4) (2, 2) (3, 2) (4, 2));

impl Kit {
    /// Every kit that this processor can run, with the instruction set that has to be allowed for it; best first.
    pub(super) fn available() -> impl Iterator<Item = (Isa, &'static Kit)> {
        #[cfg(target_arch = "x86_64")]
        let others = {
            let has_avx2 = is_x86_feature_detected!("avx2");
            let has_vnni = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni");
            [
                (has_vnni, Isa::Avx512, &avx512_vnni::KIT),
                (has_avx2 && is_x86_feature_detected!("avxvnni"), Isa::Avx2, &avx_vnni::KIT),
                (has_avx2, Isa::Avx2, &avx2::KIT),
            ]
        };
        #[cfg(target_arch = "aarch64")]
        let others = {
            use std::arch::is_aarch64_feature_detected as has;
            [
                (has!("neon") && has!("dotprod"), Isa::Neon, &neon_dotprod::KIT),
                (has!("neon"), Isa::Neon, &neon::KIT),
            ]
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let others: [(bool, Isa, &'static Kit); 0] = [];
        let portable = (true, Isa::Portable, &portable::KIT);
        others
            .into_iter()
            .chain([portable])
            .filter(|(is_there, ..)| *is_there)
            .map(|(_, isa, kit)| (isa, kit))
    }

    /// Rows of the tallest tile.
    pub(super) fn max_rows(&self) -> usize {
        self.tiles[0].len()
    }
}
