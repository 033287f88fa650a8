//! Scaled dot-product attention: `softmax(scale · Q Kᵀ + mask) V` without the matrix of scores. Everything between the
//! tensors is f32; elements of 16 bits are widened when they are read, and a result is rounded once.
//!
//! Layers: `spec` (what is computed, where the arguments are) → `problem` (checked shapes) →
//! `chunk_grid` (heads × groups of rows) → `unit` (a head) → `kernel` (blocks of keys, blocks of rows) →
//! `key_value_panels`, `products`, `scores` (packing, the two products, the softmax between them).
//!
//! Queries, keys, values and output may have any order of batch, heads and rows, so that the transposes
//! around attention in a model vanish. Keys that the mask hides from all rows of a block are not read (`seen_keys`): NaN and
//! infinities in them have no effect. Few rows of which each sees little meet what they see one by one (`scattered`).

pub(crate) mod cached;
mod chunk_grid;
mod kernel;
mod key_value_panels;
mod prepare;
mod problem;
mod products;
mod scattered;
mod scores;
mod seen_keys;
mod spec;
#[cfg(test)]
mod tests;
mod unit;

pub use prepare::prepare_attention;
pub use spec::{AttentionSpec, Axes, Causality, EmptyRow, Extent, Operand, ShapeCheck};

/// Most keys of a block: its packed keys and values stay in the second-level cache, a panel of values in
/// the first.
const KEY_BLOCK: usize = 512;
/// Most rows whose scores are computed together.
const ROW_BLOCK: usize = 28;
/// Rows of scores are this much further apart, so that they do not fall into the same cache lines.
const SCORE_PADDING: usize = 16;
/// Rows of all heads of a group up to which keys and values are read as they lie: packing them would cost
/// more than it saves.
const DIRECT_ROWS: usize = 12;
/// Most rows of a chunk whose masks are looked at row by row. More are worth the packing of all keys.
const SCATTERED_ROWS: usize = 32;
