//! The micro-kernel for the dot products of NEON by one quad of a register that holds four of them, so that a row needs a load
//! for four quads, where [`super::tile`] would spread each quad over a register of its own. Unsafe island.
//!
//! Loops are written out by macros, as in [`super::tile`].
#![allow(unsafe_code, reason = "tiles read rows and panels and write results by address")]

use super::tile::{Tile, unrolled};
use crate::packed::s8_nr32k4_v1::{NR, QUAD};
use std::arch::aarch64::*;
use std::arch::asm;

/// Quads of a register.
const QUADS: usize = 4;
/// Columns of a register of sums.
const LANES: usize = 4;
/// Registers of weights in a tile.
const W: usize = 4;
/// Columns of a tile.
pub(super) const COLUMNS: usize = W * LANES;

/// Dot products with a quad of activations.
pub(super) trait QuadDot {
    /// The bits of activations that are flipped, so that their bytes are those that the instruction takes.
    const FLIP: u8;
    /// Adds the products of each quad of weights and of quad `quad` of `x`, which is known when this is compiled.
    ///
    /// # Safety
    /// The processor has the instruction, and the caller is compiled with it.
    unsafe fn dot(sum: int32x4_t, weights: int8x16_t, x: uint8x16_t, quad: usize) -> int32x4_t;
}

macro_rules! quad_dot {
    ($name:ident, $flip:literal, $instruction:literal) => {
        impl QuadDot for $name {
            const FLIP: u8 = $flip;
            /// # Safety
            /// As [`QuadDot`] has it.
            #[inline(always)]
            unsafe fn dot(mut sum: int32x4_t, weights: int8x16_t, x: uint8x16_t, quad: usize) -> int32x4_t {
                macro_rules! of_quad {
                            ($quad:literal) => {
                                // SAFETY: the caller promises the instruction, which touches registers alone.
                                unsafe {
                                    asm!(
                                        concat!($instruction, " {0:v}.4s, {1:v}.16b, {2:v}.4b[", $quad, "]"),
                                        inout(vreg) sum, in(vreg) weights, in(vreg) x,
                                        options(pure, nomem, nostack, preserves_flags)
                                    );
                                }
                            };
                        }
                match quad {
                    0 => of_quad!(0),
                    1 => of_quad!(1),
                    2 => of_quad!(2),
                    _ => of_quad!(3),
                }
                sum
            }
        }
    };
}

/// `sdot`, of activations 128 lower.
pub(super) struct Signed;
/// `sudot`, of activations as they are.
pub(super) struct Mixed;
quad_dot!(Signed, 0x80, "sdot");
quad_dot!(Mixed, 0, "sudot");

/// Computes a tile of `MR` rows.
///
/// # Safety
/// The caller is compiled for the instruction of `D`, which the processor has; all pointers are valid for what `t` describes.
#[inline(always)]
pub(super) unsafe fn quad_tile<D: QuadDot, const MR: usize>(t: &Tile) {
    const { assert!(MR <= 5 && NR.is_multiple_of(COLUMNS)) };
    // SAFETY: the caller promises `quads` quads of `MR` rows and of the columns, and room for the sums.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); W]; MR];
        let mut rows = [t.rows; MR];
        unrolled!(rows R < MR, { rows[R % MR] = t.rows.wrapping_add(R * t.stride); });
        let flip = vdupq_n_u8(D::FLIP);
        let mut panel = t.panel;
        for _ in 0..t.quads / QUADS {
            let mut x = [flip; MR];
            unrolled!(rows R < MR, {
                x[R % MR] = veorq_u8(vld1q_u8(rows[R % MR]), flip);
                rows[R % MR] = rows[R % MR].wrapping_add(QUADS * QUAD);
            });
            unrolled!(few Q < QUADS, { step::<D, MR>(panel.wrapping_add(Q * NR * QUAD), &x, Q, &mut sums); });
            panel = panel.wrapping_add(QUADS * NR * QUAD);
        }
        for ahead in 0..t.quads % QUADS {
            let mut x = [flip; MR];
            unrolled!(rows R < MR, {
                let quad = rows[R % MR].wrapping_add(ahead * QUAD).cast::<u32>().read_unaligned();
                x[R % MR] = veorq_u8(vreinterpretq_u8_u32(vdupq_n_u32(quad)), flip);
            });
            step::<D, MR>(panel, &x, 0, &mut sums);
            panel = panel.wrapping_add(NR * QUAD);
        }
        unrolled!(rows R < MR, {
            unrolled!(few V < W, {
                vst1q_s32(t.sums.wrapping_add(R * NR + V * LANES), sums[R % MR][V]);
            });
        });
    }
}

/// One quad of every row and column: quad `quad` of the registers `x`.
///
/// # Safety
/// As [`quad_tile`]; `panel` is at the same quad.
#[inline(always)]
unsafe fn step<D: QuadDot, const MR: usize>(
    panel: *const i8,
    x: &[uint8x16_t; MR],
    quad: usize,
    sums: &mut [[int32x4_t; W]; MR],
) {
    // SAFETY: this quad exists, so every column of the tile has it.
    unsafe {
        unrolled!(few V < W, {
            let weights = vld1q_s8(panel.wrapping_add(V * LANES * QUAD));
            unrolled!(rows R < MR, {
                sums[R % MR][V] = D::dot(sums[R % MR][V], weights, x[R % MR], quad);
            });
        });
    }
}
