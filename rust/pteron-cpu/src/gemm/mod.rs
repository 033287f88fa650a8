//! Matrix multiplication in f32: C = A·B, B packed ([`crate::packed::f32_nr32_v1`]) or as it lies.
//!
//! Layers: [`tile`] (the micro-kernel, on `pteron_kernels::vector_math`) → [`tile_set`] (compiled tiles
//! per instruction set) → [`packed_rows`] (A in the order of the tiles) → [`block`] (one chunk: K-blocks,
//! panels, tiles) → [`tiling`] (the chunk grid).
//! The operators that use it are in [`crate::linear`].
//!
//! *Reduction order.* K is cut into blocks of at most [`K_BLOCK`], by K alone. Inside a block an element
//! is summed over k in order; the sums of the blocks are added in order. That holds for every number
//! of rows and every tile, so a row gives the same bytes alone and in a batch, with 1 and with N
//! threads. (Plain Rust rounds products where the others fuse them, so it differs in the last bits.)

mod block;
#[cfg(target_arch = "aarch64")]
mod neon_tile;
mod packed_rows;
mod panel_source;
pub(crate) mod tile;
mod tile_set;
mod tiling;

pub(crate) use block::{Gemm, Lhs, ROWS_WORTH_PACKING, Rhs, scratch_elements};
pub(crate) use packed_rows::RowMatrix;
pub(crate) use panel_source::{FEW_ROWS, FewRows, PanelSource};
pub(crate) use tile::{Fetch, Tile};
pub(crate) use tile_set::TileSet;
pub(crate) use tiling::{PACKED_ROWS, Tiling};

/// Longest run of k that is summed in registers before it is added to C. 384 rows of a panel are
/// 48 KiB: larger blocks gain nothing, and shorter sums are more accurate.
pub(crate) const K_BLOCK: usize = 384;

/// Number of K-blocks; at least one, so that an empty sum still writes C.
pub(crate) fn k_blocks(k: usize) -> usize {
    k.div_ceil(K_BLOCK).max(1)
}

/// Longest K-block of a sum of length `k`.
pub(crate) fn longest_k_block(k: usize) -> usize {
    k.div_ceil(k_blocks(k))
}

/// Part `i` of `0..total` cut into `parts` parts that differ by at most one.
pub(crate) fn part(total: usize, parts: usize, i: usize) -> std::ops::Range<usize> {
    let (each, more) = (total / parts, total % parts);
    let start = i * each + i.min(more);
    start..start + each + usize::from(i < more)
}

#[cfg(test)]
pub(crate) mod tests;
