//! An element of a row of logits, and how many are looked at together.

/// Logits of a block.
pub(super) const BLOCK: usize = 128;

/// An element of a row of logits: float32 as the model gives them, float64 behind penalties.
pub(super) trait Logit: Copy + PartialOrd + Into<f64> {
    /// A word as wide as the element, so that comparisons fill vectors.
    type Word: Copy + Default + PartialEq + From<bool> + std::ops::BitOr<Output = Self::Word>;
    const LOWEST: Self;
}

impl Logit for f32 {
    type Word = u32;
    const LOWEST: f32 = f32::NEG_INFINITY;
}

impl Logit for f64 {
    type Word = u64;
    const LOWEST: f64 = f64::NEG_INFINITY;
}
