//! What is compiled for each instruction set, and which of them a processor gets. Unsafe island: functions compiled for
//! an instruction set, reachable only through [`Kit::available`].
#![allow(unsafe_code, reason = "functions compiled for an instruction set")]

use super::depthwise_pixels::{Pixels, PixelsFn, pixels};
#[cfg(target_arch = "x86_64")]
use super::dots::{Avx2, Avx512, Avx512Vnni, AvxVnni};
use super::dots::{Dots, Portable};
use super::gather::{Gather, GatherFn, gather};
use super::tile::{Finish, FinishFn, Tile, TileFn, finish, tile};
use pteron_core::Isa;

/// The code of an instruction set.
pub(super) struct Kit {
    /// In names of kernels.
    pub name: &'static str,
    /// By rows - 1.
    pub tiles: &'static [TileFn],
    /// Products of a thread, about.
    pub products_per_ns: usize,
    /// Columns of a tile: a divisor of a panel's.
    pub columns: usize,
    pub finish: FinishFn,
    pub gather: GatherFn,
    pub pixels: PixelsFn,
    /// Channels that [`Kit::pixels`] computes together, and where each of them is.
    pub channels: usize,
    pub channel_of: fn(usize) -> usize,
}

/// Where channel number `i` of those that a call of [`pixels`] computes is among the vectors' lanes, in order.
fn channel_of<D: Dots>(i: usize) -> usize {
    D::channel_of(i / D::LANES, i % D::LANES)
}

macro_rules! kit {
    ($module:ident, $name:literal, $dots:ty, $w:literal, $($feature:literal)?; $rate:literal; $($rows:literal)*) => {
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
            /// As [`pixels`]; the processor has the instruction set.
            $(#[target_feature(enable = $feature)])?
            unsafe fn pixel(p: &Pixels<'_>) {
                // SAFETY: `Kit::available` hands this out for processors that have the instruction set; the caller
                // promises the pointers.
                unsafe { pixels::<$dots>(p) }
            }
            pub(super) static KIT: Kit = Kit {
                name: $name,
                tiles: &[$(tiles::<$rows>),*],
                products_per_ns: $rate,
                columns: $w * <$dots>::LANES,
                finish: finishing,
                gather: gathering,
                pixels: pixel,
                channels: 4 * <$dots>::LANES,
                channel_of: channel_of::<$dots>,
            };
        }
    };
}

kit!(portable, "portable", Portable, 1,; 4; 1 2 3 4);
// Two vectors of columns would leave no register for the weights.
#[cfg(target_arch = "x86_64")]
kit!(avx2, "avx2", Avx2, 1, "avx2"; 40; 1 2 3 4 5 6);
#[cfg(target_arch = "x86_64")]
kit!(avx_vnni, "avx_vnni", AvxVnni, 2, "avx2,avxvnni"; 120; 1 2 3 4 5 6);
#[cfg(target_arch = "x86_64")]
kit!(avx512, "avx512", Avx512, 2, "avx512f,avx512bw,avx512vl,avx512dq"; 80; 1 2 3 4 5 6);
#[cfg(target_arch = "x86_64")]
kit!(
    avx512_vnni, "avx512_vnni", Avx512Vnni, 2, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"; 200;
    1 2 3 4 5 6 7 8 9 10 11 12
);

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
            [
                (has_avx512 && is_x86_feature_detected!("avx512vnni"), Isa::Avx512, &avx512_vnni::KIT),
                (has_avx512, Isa::Avx512, &avx512::KIT),
                (has_avx2 && is_x86_feature_detected!("avxvnni"), Isa::Avx2, &avx_vnni::KIT),
                (has_avx2, Isa::Avx2, &avx2::KIT),
            ]
        };
        #[cfg(not(target_arch = "x86_64"))]
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
