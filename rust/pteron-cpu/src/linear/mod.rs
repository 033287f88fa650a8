//! The operators that are matrix multiplications: `linear`, `addmm`, `mm`, `bmm`, `baddbmm` in f32, and products in
//! groups ([`grouped`]).
//!
//! A constant right-hand matrix is packed once at load ([`crate::packed::f32_nr32_v1`]); one that is
//! computed at run time is packed panel by panel where its panels are read often enough, else read as it
//! lies. Bias, residual and clamp are added in the tiles, a post program runs on finished blocks; `alpha`,
//! `beta` and unusual broadcasts of the added tensor take a pass over each finished block. Cases left to the
//! reference kernels: other dtypes, a left-hand side or output whose rows are not contiguous.

mod accept;
mod combine;
pub mod grouped;
pub mod halves;
mod matmul;
pub mod matrix_vector;
pub mod other_dtypes;
mod problem;
pub mod row_products;
mod signature;
pub mod vector_matrix;

use crate::engine_kernel::{EngineKernel, engine_kernel};
pub(crate) use accept::{SourceProduct, prepare_source};
pub use accept::{prepare_linear_like, prepare_rows};

/// The kernels of this family.
pub static KERNELS: &[EngineKernel] = &[
    engine_kernel("aten::addmm.out", "f32_nr32", |ctx| accept::prepare(ctx, signature::ADDMM)),
    engine_kernel("aten::mm.out", "f32_nr32", |ctx| accept::prepare(ctx, signature::MM)),
    engine_kernel("aten::linear.out", "f32_nr32", |ctx| accept::prepare(ctx, signature::LINEAR)),
    engine_kernel("aten::bmm.out", "f32_nr32", |ctx| accept::prepare(ctx, signature::BMM)),
    engine_kernel("aten::baddbmm.out", "f32_nr32", |ctx| accept::prepare(ctx, signature::BADDBMM)),
];

#[cfg(test)]
mod epilogue_tests;
#[cfg(test)]
mod tests;
