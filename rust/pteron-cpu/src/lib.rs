//! The engine: graph IR and rewrites, plans, fast kernels per instruction set, packed weight formats,
//! thread pool.

pub mod epilogue;
pub mod graph;
pub mod plan;
