//! The operators that are matrix multiplications: `linear`, `addmm`, `mm`, `bmm`, `baddbmm` in f32.
//!
//! A constant right-hand matrix is packed once at load ([`crate::packed::f32_nr32_v1`]); one that is
//! computed at run time is packed panel by panel where its panels are read often enough, else read as it
//! lies. Bias, residual and clamp are added in the tiles, a post program runs on finished blocks; `alpha`,
//! `beta` and unusual broadcasts of the added tensor take a pass over each finished block. Cases left to the
//! reference kernels: other dtypes, a left-hand side or output whose rows are not contiguous.

mod accept;
mod combine;
mod matmul;
pub mod matrix_vector;
mod problem;
pub mod vector_matrix;
pub mod wide_types;

pub use accept::prepare_linear_like;

use pteron_core::StaticKernel;

/// The fast kernels of this family.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_nr32",
        prepare: |ctx| accept::prepare(ctx, accept::ADDMM),
    },
    StaticKernel {
        schema: "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_nr32",
        prepare: |ctx| accept::prepare(ctx, accept::MM),
    },
    StaticKernel {
        schema: "aten::linear.out(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_nr32",
        prepare: |ctx| accept::prepare(ctx, accept::LINEAR),
    },
    StaticKernel {
        schema: "aten::bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_nr32",
        prepare: |ctx| accept::prepare(ctx, accept::BMM),
    },
    StaticKernel {
        schema: "aten::baddbmm.out(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32_nr32",
        prepare: |ctx| accept::prepare(ctx, accept::BADDBMM),
    },
];

#[cfg(test)]
mod epilogue_tests;
#[cfg(test)]
mod tests;
