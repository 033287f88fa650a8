//! Where the rows of a transform lie, and what they are.

/// What becomes what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Complex rows of `n` numbers.
    Complex,
    /// `n` real numbers to the first `kept` of the spectrum: `n / 2 + 1`, or all `n`.
    FromReal {
        /// That many.
        kept: usize,
    },
    /// The first `n / 2 + 1` of `given` numbers of a spectrum to `n` real numbers.
    ToReal {
        /// That many.
        given: usize,
    },
}

/// Rows along the middle one of three dimensions, `outer` by `n` by `inner`, row-major; `n` is the length of the signal.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Extents before the dimension, multiplied.
    pub outer: usize,
    /// That of the dimension.
    pub n: usize,
    /// Extents behind it, multiplied.
    pub inner: usize,
}
