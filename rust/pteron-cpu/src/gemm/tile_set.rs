//! The compiled tiles of each instruction set, and which to take for how many rows. Unsafe island:
//! functions compiled for an instruction set, reachable only through [`TileSet::for_isa`].

use super::simd::Portable;
#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::tile::{Tile, TileFn, tile};
use pteron_core::Isa;

/// A tile for some number of rows.
#[derive(Clone, Copy)]
pub(crate) struct TileVariant {
    /// Columns it covers: a part of a panel, one panel, or several.
    pub columns: usize,
    /// The code.
    pub run: TileFn,
}

/// The tiles of an instruction set.
pub(crate) struct TileSet {
    /// Used for the kernel's name.
    pub isa: Isa,
    /// By rows - 1: tiles of at most one panel.
    pub narrow: &'static [TileVariant],
    /// By rows - 1: tiles of several panels, for so few rows that one panel would leave the
    /// multipliers waiting for their own results.
    pub wide: &'static [TileVariant],
}

impl TileSet {
    /// The tiles for `isa`, which must come from the profile of this processor.
    pub fn for_isa(isa: Isa) -> &'static TileSet {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            _ => &PORTABLE,
        }
    }

    /// Rows of the tallest tile.
    pub fn max_rows(&self) -> usize {
        self.narrow.len()
    }
}

macro_rules! compiled {
    ($name:ident, $isa:ty, $($feature:literal)?) => {
        /// # Safety
        /// As [`tile`]; the processor has the instruction set.
        $(#[target_feature(enable = $feature)])?
        unsafe fn $name<const MR: usize, const NP: usize, const VPP: usize>(t: &Tile) {
            // SAFETY: the same contract.
            unsafe { tile::<$isa, MR, NP, VPP>(t) }
        }
    };
}
compiled!(portable, Portable,);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq");

/// `variants!(function, lanes; (rows, panels, vectors per panel), ...)`
macro_rules! variants {
    ($f:ident, $lanes:literal; $(($mr:literal, $np:literal, $vpp:literal)),* $(,)?) => {
        &[$(TileVariant { columns: $np * $vpp * $lanes, run: $f::<$mr, $np, $vpp> }),*]
    };
}

/// 16 registers of 4 lanes: 4 rows x 8 columns.
static PORTABLE: TileSet = TileSet {
    isa: Isa::Portable,
    narrow: variants!(portable, 8; (1, 1, 4), (2, 1, 2), (3, 1, 1), (4, 1, 1)),
    wide: &[],
};

/// 16 registers of 8 lanes: 6 rows x 16 columns are 12 sums, 2 of B and 1 of A.
#[cfg(target_arch = "x86_64")]
static AVX2: TileSet = TileSet {
    isa: Isa::Avx2,
    narrow: variants!(avx2, 8; (1, 1, 4), (2, 1, 4), (3, 1, 2), (4, 1, 2), (5, 1, 2), (6, 1, 2)),
    wide: variants!(avx2, 8; (1, 2, 4)),
};

/// 32 registers of 16 lanes: 14 rows x 32 columns are 28 sums, 2 of B and 1 of A.
#[cfg(target_arch = "x86_64")]
static AVX512: TileSet = TileSet {
    isa: Isa::Avx512,
    narrow: variants!(avx512, 16; (1, 1, 2), (2, 1, 2), (3, 1, 2), (4, 1, 2), (5, 1, 2), (6, 1, 2), (7, 1, 2),
        (8, 1, 2), (9, 1, 2), (10, 1, 2), (11, 1, 2), (12, 1, 2), (13, 1, 2), (14, 1, 2)),
    wide: variants!(avx512, 16; (1, 4, 2), (2, 4, 2), (3, 2, 2), (4, 2, 2)),
};
