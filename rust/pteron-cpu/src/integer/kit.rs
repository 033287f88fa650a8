//! What is compiled for each instruction set, and which of them a processor gets. Unsafe island: functions compiled for
//! an instruction set, reachable only through [`Kit::available`].
#![allow(unsafe_code, reason = "functions compiled for an instruction set")]

use super::depthwise_pixels::{DepthwisePixels, Pixels, PixelsFn};
#[cfg(target_arch = "x86_64")]
use super::dots::{Avx2, Avx512, Avx512Vnni, AvxVnni};
use super::dots::{Dots, Portable};
#[cfg(target_arch = "aarch64")]
use super::dots::{Neon, NeonDot, NeonMixedDot};
use super::finish::{Finish, FinishFn, finish};
use super::gather::{Gather, GatherFn, Widen, WidenFn, gather, widen};
#[cfg(target_arch = "aarch64")]
use super::neon_tile::{COLUMNS, Mixed, Signed, quad_tile};
use super::tile::{Registers, Tile, TileFn, TileOfBytesFn, tile, tile_of_bytes};
use crate::packed::s8_nr32k4_v1::NR;
use pteron_core::Isa;

/// The code of an instruction set.
pub(super) struct Kit {
    /// In names of kernels.
    pub name: &'static str,
    /// By rows - 1.
    pub tiles: &'static [TileFn],
    /// Of all columns of a panel, for few rows, by rows - 1: these meet a panel once, and read it in one go.
    pub whole: &'static [TileFn],
    /// Tiles of whole panels that write bytes of bounded results without storing sums, by rows - 1; of two quantised tensors' sums.
    /// None where a panel has more vectors than two.
    pub of_bytes: &'static [TileOfBytesFn],
    pub of_sums: &'static [TileOfBytesFn],
    /// Products of a thread, about.
    pub products_per_ns: usize,
    /// What is taken from activations before they are multiplied.
    pub shift: i32,
    /// Columns of a tile: a divisor of a panel's.
    pub columns: usize,
    /// Ends a run of tiles, which set tile registers so.
    pub leave: unsafe fn(Registers),
    pub finish: FinishFn,
    pub gather: GatherFn,
    /// Bytes of an activation in the rows that tiles read, and what makes such rows of bytes, where that is more than one.
    pub width: usize,
    pub widen: WidenFn,
    pub pixels: PixelsFn,
    /// Where tap `t` of channel number `i` of a block lies among the weights that [`Kit::pixels`] reads: numbers of [`Kit::width`] bytes.
    pub tap_place: fn(t: usize, i: usize) -> usize,
    /// Channels that [`Kit::pixels`] computes together, and where each of them is.
    pub channels: usize,
    pub channel_of: fn(usize) -> usize,
}

/// Where channel number `i` of those that a call of [`DepthwisePixels::pixels`] computes is among the vectors' lanes, in order.
fn channel_of<D: Dots>(i: usize) -> usize {
    D::channel_of(i / D::LANES, i % D::LANES)
}

/// Of kits without tile registers.
///
/// # Safety
/// None is asked for.
unsafe fn nothing_to_leave(_: Registers) {}

macro_rules! kit {
    ($module:ident, $name:literal, $dots:ty, $w:literal, $($feature:literal)?; $rate:literal; $($rows:literal)*; $($few:literal)*; $($bytes:literal)*) => {
        mod $module {
            use super::*;
            /// # Safety
            /// As [`tile`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn tiles<const MR: usize>(t: &Tile) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { tile::<$dots, MR, $w>(t) }
            }
            /// # Safety
            /// As [`tile`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            #[allow(dead_code, reason = "not for every instruction set")]
            unsafe fn whole<const MR: usize>(t: &Tile) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { tile::<$dots, MR, { NR / <$dots>::LANES }>(t) }
            }
            /// # Safety
            /// As [`tile_of_bytes`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            #[allow(dead_code, reason = "not for every instruction set")]
            unsafe fn of_bytes<const MR: usize, const SUMMED: bool>(t: &Tile, f: &Finish) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers and the ending.
                unsafe { tile_of_bytes::<$dots, MR, SUMMED>(t, f) }
            }
            /// # Safety
            /// As [`finish`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn finishing(f: &Finish) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { finish::<$dots>(f) }
            }
            /// # Safety
            /// As [`gather`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn gathering(g: &Gather<'_>) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { gather::<$dots>(g) }
            }
            /// # Safety
            /// As [`widen`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn widening(w: &Widen) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { widen::<$dots>(w) }
            }
            /// # Safety
            /// As [`DepthwisePixels::pixels`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn pixel(p: &Pixels<'_>) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { <$dots>::pixels(p) }
            }
            pub(super) static KIT: Kit = Kit {
                name: $name,
                tiles: &[$(tiles::<$rows>),*],
                whole: &[$(whole::<$few>),*],
                of_bytes: &[$(of_bytes::<$bytes, false>),*],
                of_sums: &[$(of_bytes::<$bytes, true>),*],
                products_per_ns: $rate,
                shift: <$dots>::SHIFT,
                columns: $w * <$dots>::LANES,
                leave: nothing_to_leave,
                finish: finishing,
                gather: gathering,
                width: <$dots>::WIDTH,
                widen: widening,
                pixels: pixel,
                tap_place: <$dots>::tap_place,
                channels: 4 * <$dots>::LANES,
                channel_of: channel_of::<$dots>,
            };
        }
    };
}

kit!(portable, "portable", Portable, 1,; 4; 1 2 3 4;;);
#[cfg(target_arch = "x86_64")]
kit!(avx2, "avx2", Avx2, 2, "avx2"; 60; 1 2 3 4 5 6; 1 2;);
#[cfg(target_arch = "x86_64")]
kit!(avx_vnni, "avx_vnni", AvxVnni, 2, "avx2,avxvnni"; 120; 1 2 3 4 5 6; 1 2;);
#[cfg(target_arch = "x86_64")]
kit!(avx512, "avx512", Avx512, 2, "avx512f,avx512bw,avx512vl,avx512dq"; 80; 1 2 3 4 5 6;;);
#[cfg(target_arch = "x86_64")]
kit!(
    avx512_vnni, "avx512_vnni", Avx512Vnni, 2, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"; 200;
    1 2 3 4 5 6 7 8 9 10 11 12;; 1 2 3 4 5 6 7 8 9 10 11 12
);
// The weights, which are 16 bits wide, take four registers of 32; a row's sums take four.
#[cfg(target_arch = "aarch64")]
kit!(neon, "neon", Neon, 1, "neon"; 20; 1 2 3 4 5;;);
// Their tiles come below.
#[cfg(target_arch = "aarch64")]
kit!(neon_dotprod, "neon_dotprod", NeonDot, 2, "neon,dotprod"; 80; 1;;);
#[cfg(target_arch = "aarch64")]
kit!(neon_i8mm, "neon_i8mm", NeonMixedDot, 2, "neon,i8mm"; 80; 1;;);

/// `quad_tiles!(kit, instruction, features; name: rows ...)`: the kit with tiles that multiply by a quad of a register. 5 rows
/// x 16 columns are 20 sums, 4 registers of weights and 5 of activations, of 32.
#[cfg(target_arch = "aarch64")]
macro_rules! quad_tiles {
    ($name:ident, $kit:ident, $tile:ident, $dot:ident, $feature:literal; $($rows:literal)*) => {
        /// # Safety
        /// As [`quad_tile`]; the processor has the instruction set.
        #[target_feature(enable = $feature)]
        unsafe fn $tile<const MR: usize>(t: &Tile) {
            // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller promises the
            // pointers.
            unsafe { quad_tile::<$dot, MR>(t) }
        }
        static $name: Kit = Kit { tiles: &[$($tile::<$rows>),*], columns: COLUMNS, ..$kit::KIT };
    };
}
#[cfg(target_arch = "aarch64")]
quad_tiles!(NEON_DOTPROD, neon_dotprod, sdot_tile, Signed, "neon,dotprod"; 1 2 3 4 5);
#[cfg(target_arch = "aarch64")]
quad_tiles!(NEON_I8MM, neon_i8mm, sudot_tile, Mixed, "neon,i8mm"; 1 2 3 4 5);

/// A tile in tile registers.
///
/// # Safety
/// As [`tile`], of whole panels; [`crate::amx::has_bytes`].
#[cfg(target_arch = "x86_64")]
unsafe fn register_tile<const MR: usize>(t: &Tile) {
    let tile = crate::amx::Tile {
        rows: t.rows,
        stride: t.stride,
        cells: t.quads,
        panel: t.panel.cast(),
        sums: t.sums.cast(),
        sums_stride: NR * size_of::<i32>(),
        registers: t.registers,
    };
    // SAFETY: `Kit::available` hands this out where there are tile registers; quads are cells, and the caller promises the
    // pointers.
    unsafe { crate::amx::bytes::<MR>(&tile) }
}

/// Tiles of 5 to 32 rows in tile registers, whose loads of columns fewer rows would not pay for.
#[cfg(target_arch = "x86_64")]
macro_rules! register_tiles {
    ($few:expr; $($rows:literal)*) => {
        [$few[0], $few[1], $few[2], $few[3], $(register_tile::<$rows>),*]
    };
}
#[cfg(target_arch = "x86_64")]
static AMX_TILES: [TileFn; 32] = register_tiles!(
    avx512_vnni::KIT.tiles;
    5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
);
#[cfg(target_arch = "x86_64")]
static AMX: Kit = Kit {
    name: "amx",
    tiles: &AMX_TILES,
    of_bytes: &[],
    of_sums: &[],
    products_per_ns: 1500,
    leave: crate::amx::leave,
    ..avx512_vnni::KIT
};

impl Kit {
    /// Every kit that this processor can run, with the instruction set that has to be allowed for it; best first.
    pub(super) fn available() -> impl Iterator<Item = (Isa, &'static Kit)> {
        #[cfg(target_arch = "x86_64")]
        let others = {
            let has_avx2 = is_x86_feature_detected!("avx2");
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq");
            let has_vnni = has_avx512 && is_x86_feature_detected!("avx512vnni");
            [
                (has_vnni && crate::amx::has_bytes(), Isa::Avx512, &AMX),
                (has_vnni, Isa::Avx512, &avx512_vnni::KIT),
                (has_avx512, Isa::Avx512, &avx512::KIT),
                (has_avx2 && is_x86_feature_detected!("avxvnni"), Isa::Avx2, &avx_vnni::KIT),
                (has_avx2, Isa::Avx2, &avx2::KIT),
            ]
        };
        #[cfg(target_arch = "aarch64")]
        let others = {
            use std::arch::is_aarch64_feature_detected as has;
            [
                (has!("neon") && has!("i8mm"), Isa::Neon, &NEON_I8MM),
                (has!("neon") && has!("dotprod"), Isa::Neon, &NEON_DOTPROD),
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
        self.tiles.len()
    }
}
