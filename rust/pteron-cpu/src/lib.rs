//! The CPU engine: fast kernels per instruction set, packed weight formats, the thread pool and the
//! executor that schedules kernels on it.
//!
//! Kernels never touch the pool: they state phases × chunks in `bind` and compute one chunk per `run`
//! call; [`executor`] does the rest. Every family of fast kernels has a `KERNELS` table, and
//! [`kernels`] is all of them in the order in which they are asked.
//!
//! Unsafe code lives in the files that allow it at their head and say why: of the pool, the executor, packed formats,
//! and the kernel families. Nothing else may have any.
#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod conv;
pub mod engine_kernel;
pub mod epilogue;
pub mod executor;
mod gemm;
pub mod graph;
pub mod integer;
pub mod linear;
pub mod packed;
pub mod plan;
pub mod pool;
pub mod rotary;
pub mod stop_word;
pub mod weight_only;

use engine_kernel::EngineKernel;
pub use executor::{Executor, SessionScratch};
pub use pool::Pool;

use pteron_core::StaticKernel;

/// The tables of the engine's families.
static FAMILIES: &[&[EngineKernel]] = &[
    linear::matrix_vector::KERNELS,
    linear::row_products::KERNELS,
    linear::vector_matrix::KERNELS,
    linear::KERNELS,
    linear::grouped::KERNELS,
    linear::halves::KERNELS,
    linear::other_dtypes::KERNELS,
    attention::cached::KERNELS,
    #[cfg(feature = "convolution")]
    conv::KERNELS,
];

/// The engine's own kernels, in the order in which those of one operator are asked.
fn engine_kernels() -> impl Iterator<Item = &'static EngineKernel> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Every built-in kernel, in the order in which those of one operator are asked: the engine's, then those of the
/// operator table, from fast to plain.
pub fn kernels() -> impl Iterator<Item = StaticKernel> {
    let engine = engine_kernels().filter_map(EngineKernel::with_schema);
    engine.chain(pteron_kernels::fast_kernels()).chain(pteron_kernels::plain_kernels())
}
