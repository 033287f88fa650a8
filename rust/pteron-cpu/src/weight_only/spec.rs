//! What a product with a quantised weight computes: independent of the number of rows.

use crate::integer::RowScheme;
use std::fmt;

/// `y = x · Wᵀ + bias`, `W = (q - zero points) * scales`.
///
/// Its arguments: x (f32, rows of K elements); q (int8 constant, dense, N · K elements; where
/// [`WeightOnlySpec::has_pairs`], uint8, half as many); the scales (f32 constant, dense, for
/// each column its groups side by side); where [`WeightOnlySpec::has_zeros`], the zero points (like the scales); where
/// [`WeightOnlySpec::has_bias`], the bias (f32, N elements); what epilogues read; the output (f32).
#[derive(Debug, Clone, PartialEq)]
pub struct WeightOnlySpec {
    /// Elements of a row of x. Positive.
    pub k: usize,
    /// Elements of a row of the output. Positive.
    pub n: usize,
    /// Elements of k that share a scale: K for one scale per column. Positive, divides K.
    pub group: usize,
    /// Does q lie as [N, K], the rows of a linear layer's weight, and not as [K, N]?
    pub is_row_per_output: bool,
    /// Has a byte of q two numbers, each plus 8, that of the even k in the high four bits? Then K and groups are even, and q
    /// lies as [N, K / 2].
    pub has_pairs: bool,
    /// Are there zero points?
    pub has_zeros: bool,
    /// Is there a bias?
    pub has_bias: bool,
    /// How rows of x become integers, which are multiplied instead of them: 4-bit weights without zero points.
    pub rows: Option<RowScheme>,
}

impl WeightOnlySpec {
    /// Groups of a column.
    pub fn groups(&self) -> usize {
        self.k.div_ceil(self.group.max(1))
    }
}

impl fmt::Display for WeightOnlySpec {
    /// `weight-only linear`, `weight-only linear, groups of 32, zero points`, `weight-only linear, groups of 32 of rows`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("weight-only linear")?;
        if self.group != self.k {
            write!(f, ", groups of {}", self.group)?;
        }
        if self.has_zeros {
            f.write_str(", zero points")?;
        }
        self.rows.map_or(Ok(()), |scheme| f.write_str(scheme.phrase()))
    }
}
