//! The compiled tiles of each instruction set, and which to take for how many rows. Unsafe island:
//! functions compiled for an instruction set, reachable only through [`TileSet::for_isa`].
#![allow(unsafe_code, reason = "tiles read panels and write rows by address, and chunks share the result")]

#[cfg(target_arch = "aarch64")]
use super::neon_tile::neon_tile;
use super::tile::{Tile, TileFn, tile};
use crate::packed::f32_nr32_v1::NR;
use pteron_core::Isa;
use pteron_kernels::vector_math::{Simd, SimdTask, portable};
#[cfg(target_arch = "x86_64")]
use pteron_kernels::vector_math::{
    avx2::enter as enter_avx2,
    avx512::{enter as enter_avx512, enter_brain16, has_brain16},
};

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
    /// By rows - 1: tiles of half the columns, for panels that have no more.
    half: &'static [TileVariant],
    /// By rows - 1: tiles of several panels, most first, for so few rows that one panel would leave the
    /// multipliers waiting for their own results.
    wide: &'static [&'static [TileVariant]],
    /// Rows of the smallest tile that reads a packed A.
    first_packed: usize,
    /// By rows - `first_packed`: `narrow` for a packed A.
    packed: &'static [TileVariant],
    /// By rows - `first_packed`: `half` for a packed A.
    packed_half: &'static [TileVariant],
}

impl TileSet {
    /// The tiles for `isa`, which must come from the profile of this processor.
    pub fn for_isa(isa: Isa) -> &'static TileSet {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => &NEON,
            _ => &PORTABLE,
        }
    }

    /// The tiles whose elements are pairs of bfloat16, if the processor multiplies them and `isa` allows it. They read
    /// no packed A.
    pub fn of_pairs(isa: Isa) -> Option<&'static TileSet> {
        #[cfg(target_arch = "x86_64")]
        if isa >= Isa::Avx512 && has_brain16() {
            return Some(&AVX512_PAIRS);
        }
        let _ = isa;
        None
    }

    /// Rows of the tallest tile.
    pub fn max_rows(&self) -> usize {
        self.narrow.len()
    }

    /// Tiles that `rows` rows are cut into: [`super::part`] of so many parts.
    pub fn row_tiles(&self, rows: usize) -> usize {
        rows.div_ceil(self.max_rows())
    }

    /// Are there tiles for every part of `rows` rows when A is packed?
    pub fn has_packed(&self, rows: usize) -> bool {
        rows / self.row_tiles(rows).max(1) >= self.first_packed
    }

    /// The tile for `rows` rows of `columns` columns within a panel.
    pub fn within_panel(&self, rows: usize, columns: usize, is_packed: bool) -> Option<&'static TileVariant> {
        let (whole, half, first) = match is_packed {
            true => (self.packed, self.packed_half, self.first_packed),
            false => (self.narrow, self.half, 1),
        };
        let index = rows.checked_sub(first)?;
        half.get(index).filter(|v| columns <= v.columns).or_else(|| whole.get(index))
    }

    /// The widest tile of several panels for `rows` rows and at most `panels` panels.
    pub fn wide(&self, rows: usize, panels: usize) -> Option<&'static TileVariant> {
        self.wide.get(rows.checked_sub(1)?)?.iter().find(|v| v.columns / NR <= panels)
    }
}

struct TileTask<'a, const MR: usize, const W: usize, const VPP: usize, const PACKED: bool, const PAIRS: bool>(
    &'a Tile,
);

impl<const MR: usize, const W: usize, const VPP: usize, const PACKED: bool, const PAIRS: bool> SimdTask
    for TileTask<'_, MR, W, VPP, PACKED, PAIRS>
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: only the functions below make a task, with a tile that keeps the contract of `tile`; `run` is inlined
        // into code compiled for the instruction set of `s`.
        unsafe { tile::<S, MR, W, VPP, PACKED, PAIRS>(s, self.0) }
    }
}

macro_rules! compiled {
    ($name:ident, $pairs:literal, $enter:expr, $($feature:literal)?) => {
        /// # Safety
        /// As [`tile`]; the processor has the instruction set.
        $(#[target_feature(enable = $feature)])?
        unsafe fn $name<const MR: usize, const W: usize, const VPP: usize, const PACKED: bool>(t: &Tile) {
            let task = TileTask::<MR, W, VPP, PACKED, $pairs>(t);
            // SAFETY: the contract of this function: `TileSet::for_isa` hands it out for processors that have the
            // instruction set.
            #[allow(unused_unsafe, reason = "the portable entry is safe")]
            unsafe { $enter(task) }
        }
    };
}
compiled!(portable, false, |task: TileTask<'_, MR, W, VPP, PACKED, false>| task.run(portable::Portable),);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, false, enter_avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
compiled!(avx512, false, enter_avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq");
#[cfg(target_arch = "x86_64")]
compiled!(avx512_pairs, true, enter_brain16, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16");

/// `variants!(function, lanes, packed; vectors of a tile, vectors per panel: rows ...)`
macro_rules! variants {
    ($f:ident, $lanes:literal, $packed:literal; $($w:literal, $vpp:literal: $($mr:literal)*);*) => {
        &[$($(TileVariant { columns: $w * $lanes, run: $f::<$mr, $w, $vpp, $packed> }),*),*]
    };
}

/// 16 registers of 4 lanes: 4 rows x 8 columns.
static PORTABLE: TileSet = TileSet {
    isa: Isa::Portable,
    narrow: variants!(portable, 8, false; 4, 4: 1; 2, 2: 2; 1, 1: 3 4),
    half: &[],
    wide: &[],
    first_packed: 3,
    packed: variants!(portable, 8, true; 1, 1: 3 4),
    packed_half: &[],
};

/// 16 registers of 8 lanes: 6 rows x 16 columns are 12 sums, 2 of B and 1 of A.
#[cfg(target_arch = "x86_64")]
static AVX2: TileSet = TileSet {
    isa: Isa::Avx2,
    narrow: variants!(avx2, 8, false; 4, 4: 1 2; 2, 2: 3 4 5 6),
    half: variants!(avx2, 8, false; 1, 1: 1 2 3 4 5 6),
    wide: &[variants!(avx2, 8, false; 8, 4: 1)],
    first_packed: 5,
    packed: variants!(avx2, 8, true; 2, 2: 5 6),
    packed_half: variants!(avx2, 8, true; 1, 1: 5 6),
};

/// 32 registers of 16 lanes: 14 rows x 32 columns are 28 sums, 2 of B and 1 of A.
#[cfg(target_arch = "x86_64")]
static AVX512: TileSet = TileSet {
    isa: Isa::Avx512,
    narrow: variants!(avx512, 16, false; 2, 2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    half: variants!(avx512, 16, false; 1, 1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    wide: &[
        variants!(avx512, 16, false; 8, 2: 1; 4, 2: 1),
        variants!(avx512, 16, false; 8, 2: 2; 4, 2: 2),
        variants!(avx512, 16, false; 4, 2: 3),
        variants!(avx512, 16, false; 4, 2: 4),
    ],
    first_packed: 9,
    packed: variants!(avx512, 16, true; 2, 2: 9 10 11 12 13 14),
    packed_half: variants!(avx512, 16, true; 1, 1: 9 10 11 12 13 14),
};

/// 32 registers of 4 lanes, taken in pairs: 8 rows x 8 columns are 16 sums, 2 of B and 8 of A, which last for four k; 5 rows
/// x 16 columns are 20 sums, 4 of B and 5 of A.
#[cfg(target_arch = "aarch64")]
static NEON: TileSet = TileSet {
    isa: Isa::Neon,
    narrow: variants!(neon_tile, 8, false; 4, 4: 1 2; 2, 2: 3 4 5; 1, 1: 6 7 8),
    half: variants!(neon_tile, 8, false; 1, 1: 1 2 3 4 5 6 7 8),
    wide: &[variants!(neon_tile, 8, false; 8, 4: 1)],
    first_packed: 6,
    packed: variants!(neon_tile, 8, true; 1, 1: 6 7 8),
    packed_half: &[],
};

/// As [`AVX512`] without what few columns, few rows and a packed A would gain.
#[cfg(target_arch = "x86_64")]
static AVX512_PAIRS: TileSet = TileSet {
    isa: Isa::Avx512,
    narrow: variants!(avx512_pairs, 16, false; 2, 2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    half: &[],
    wide: &[],
    first_packed: usize::MAX,
    packed: &[],
    packed_half: &[],
};
