//! Products of f32 rows with a weight that stays quantised: int8 or 4 bits, with a scale (and a zero point) for each
//! column or for each group of k of a column.
//!
//! Layers: `spec` (what is computed) → [`panels`] (the packed formats) → `weights` (panels back to f32, for the tiles of
//! `gemm`) and `few_rows` (up to four rows, straight from the packed bytes) → [`prepare`].
//!
//! *Numbers.* From five rows on the weight is `(q - zero point) * scale`, rounded to f32, as dequantise has it, and the
//! sums are those of `gemm`: the same bytes as of a product with the dequantised weight. Up to four rows the
//! scale is multiplied with the sum over its group (over at most 256 k), which rounds less often. Either order depends on the
//! shape and the instruction set alone. Rows that are quantised at run time are [`crate::integer`]'s.

mod few_rows;
pub mod panels;
mod prepare;
mod spec;
mod weights;

pub use prepare::{prepare, sums_of_columns};
pub use spec::WeightOnlySpec;

#[cfg(test)]
mod tests;
