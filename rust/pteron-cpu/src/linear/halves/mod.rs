//! `mm`, `addmm` and `linear` of float16 and bfloat16 with a constant right-hand matrix, which stays 16 bits wide.
//!
//! Layers: [`panels`] (the packed formats, and panels back in f32) → `few_rows` (up to four rows, widened in registers) →
//! `product` (the kernel: rows of a block, sums in f32, results rounded once). From five rows on a product is one of
//! `crate::gemm`: of pairs of bfloat16 where the processor multiplies them (AMX: `in_registers`; AVX-512 BF16), else of
//! panels widened to f32.
//!
//! *Numbers.* Products of 16-bit floats are exact in f32. They are added up in f32, factors and the added tensor are
//! applied in f32, and the result is rounded once. With AMX and AVX-512 BF16 numbers and sums below 2⁻¹²⁶ count as zero, which
//! moves a sum of K products by at most `K·2⁻¹²⁶·(1 + largest |a| + largest |b|)`; f32 sums round otherwise alike. The order of a
//! sum depends on the shape and the instruction set alone.

mod few_rows;
mod in_registers;
pub mod panels;
mod product;

use super::signature::{ADDMM, LINEAR, MM};
use crate::engine_kernel::{EngineKernel, engine_kernel};

/// The kernels of this family.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::addmm.out", "halves", |ctx| product::prepare(ctx, ADDMM)),
    engine_kernel("aten::mm.out", "halves", |ctx| product::prepare(ctx, MM)),
    engine_kernel("aten::linear.out", "halves", |ctx| product::prepare(ctx, LINEAR)),
];

#[cfg(test)]
mod tests;
