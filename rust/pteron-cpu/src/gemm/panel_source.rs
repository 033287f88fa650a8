//! Right-hand matrices in forms of their own, whose panels become f32 when they are multiplied.

use pteron_kernels::vector_math::SimdLevel;
use std::ops::Range;

/// Rows of A up to which [`PanelSource::multiply_few`] computes a product: they read B at the speed of memory.
pub(crate) const FEW_ROWS: usize = 4;

/// A few rows of A and those of C, the elements of a row side by side.
#[derive(Clone, Copy)]
pub(crate) struct FewRows {
    /// At most [`FEW_ROWS`].
    pub m: usize,
    pub a: *const f32,
    pub a_stride: usize,
    pub c: *mut f32,
    pub c_stride: usize,
}

/// A matrix of K rows and N columns, in panels of 32 columns.
#[allow(unsafe_code, reason = "panels are written by address")]
pub(crate) trait PanelSource: Send + Sync + 'static {
    /// The name of the form, for listings.
    fn format(&self) -> &'static str;

    /// Writes rows `k` of panel `panel`, 32 values each; those of columns beyond N are zero.
    ///
    /// # Safety
    /// The panel and the rows exist, `to` is valid for writes of 32 values for each of them, the processor has `level`.
    unsafe fn unpack(&self, level: SimdLevel, panel: usize, k: Range<usize>, to: *mut f32);

    /// C = A·B for the columns of `panels`.
    ///
    /// # Safety
    /// The panels exist; the rows of A have K elements, those of C N, which no other thread touches in these columns
    /// and no input shares; the processor has `level`.
    unsafe fn multiply_few(&self, level: SimdLevel, rows: &FewRows, panels: Range<usize>);
}
