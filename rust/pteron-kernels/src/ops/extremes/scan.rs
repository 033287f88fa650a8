//! What the kernels of extremes share: the task of a chunk.

use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::reduction::shape::Volumes;
use crate::vector_math::SimdLevel;
use pteron_core::Element;
use std::ops::Range;

/// Neighbouring results of a unit.
pub(super) const COLUMNS: usize = 64;

/// An element whose extremes have a kernel.
pub(super) trait Scanned: Element {
    /// Computes the units of a task.
    fn scan(level: SimdLevel, task: Task<'_, Self>, is_largest: bool);
}

/// The units of a chunk; the tensors have the elements that `volumes` says.
pub(super) struct Task<'a, T: Element> {
    pub input: ChunkOf<'a, T>,
    pub values: Option<ChunkOfMut<'a, T>>,
    pub places: ChunkOfMut<'a, i64>,
    pub volumes: Volumes,
    pub units: Range<usize>,
}

impl<T: Element> Task<'_, T> {
    /// The stretch of a unit and its results, where those are neighbours.
    #[inline(always)]
    pub fn columns_of(&self, unit: usize) -> (usize, Range<usize>) {
        let inner = self.volumes.inner;
        let parts = inner.div_ceil(COLUMNS);
        let first = unit % parts * COLUMNS;
        (unit / parts, first..inner.min(first + COLUMNS))
    }
}
