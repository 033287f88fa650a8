//! The CPU engine: fast kernels per instruction set, packed weight formats, the thread pool and the
//! executor that schedules kernels on it.
//!
//! Kernels never touch the pool: they state phases × chunks in `bind` and compute one chunk per `run`
//! call; [`executor`] does the rest. Every family of fast kernels has a `KERNELS` table, and
//! [`kernels`] is all of them in the order in which they are asked.
//!
//! Unsafe code lives in [`pool`], [`executor`] and the kernel families.

pub mod attention;
pub mod conv;
pub mod cpu_detect;
pub mod elementwise;
pub mod epilogue;
pub mod executor;
mod gemm;
pub mod graph;
pub mod layout;
pub mod linear;
pub mod norm;
pub mod packed;
pub mod plan;
pub mod pool;
pub mod pooling;
pub mod reduction;
pub mod resampling;
pub mod single_call;
pub mod softmax;
pub mod stop_word;
pub mod vector_math;

pub use executor::{Executor, SessionScratch};
pub use pool::Pool;

use pteron_core::StaticKernel;

/// The tables of all families of fast kernels.
static FAMILIES: &[&[StaticKernel]] = &[
    linear::matrix_vector::KERNELS,
    linear::vector_matrix::KERNELS,
    linear::KERNELS,
    linear::wide_types::KERNELS,
    elementwise::unary::KERNELS,
    elementwise::elementary::KERNELS,
    elementwise::activations::KERNELS,
    elementwise::binary::KERNELS,
    elementwise::pairs::KERNELS,
    elementwise::binary::COMPARISONS,
    elementwise::choose::KERNELS,
    elementwise::boolean::KERNELS,
    elementwise::numbers::KERNELS,
    elementwise::casts::KERNELS,
    softmax::kernel::KERNELS,
    norm::layer_norm::KERNELS,
    norm::batch_norm::KERNELS,
    norm::group_norm::KERNELS,
    #[cfg(feature = "convolution")]
    conv::KERNELS,
    #[cfg(feature = "pooling")]
    pooling::max_pool::KERNELS,
    #[cfg(feature = "pooling")]
    pooling::avg_pool::KERNELS,
    #[cfg(feature = "image")]
    resampling::bilinear::KERNELS,
    reduction::float::KERNELS,
    reduction::wide::KERNELS,
    reduction::any::KERNELS,
    layout::views::KERNELS,
    layout::cat::KERNELS,
    layout::embedding::KERNELS,
    layout::pad::KERNELS,
    layout::triangle::KERNELS,
];

/// Every fast kernel, in the order in which they are asked; the reference kernels come after them.
pub fn kernels() -> impl Iterator<Item = &'static StaticKernel> {
    FAMILIES.iter().flat_map(|family| family.iter())
}
