//! Byte ranges, and the memories in which they are counted.

use crate::ir::{MethodIr, Placement};
use pteron_core::ValueId;

/// A memory in which ranges are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Space {
    /// An arena of the plan.
    Arena(u32),
    /// Memory of one value alone: an unplanned tensor's, or the content of a scalar.
    Value(u32),
    /// Bytes that nobody writes.
    Constant,
}

/// A byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteRegion {
    pub space: Space,
    pub start: usize,
    pub end: usize,
}

impl ByteRegion {
    /// Where the placement of the tensor `id` puts it, at its largest shape; `None` for other values, and where
    /// the range exceeds the address space.
    pub fn of(ir: &MethodIr, id: ValueId) -> Option<ByteRegion> {
        let tensor = ir.tensor(id)?;
        let nbytes = tensor.spec.nbytes().ok()?;
        let (space, start) = match &tensor.placement {
            Placement::Constant(_) => (Space::Constant, 0),
            Placement::Planned { arena, offset, .. } => (Space::Arena(*arena), *offset),
            Placement::Unplanned => (Space::Value(id.0), 0),
        };
        Some(ByteRegion { space, start, end: start.checked_add(nbytes)? })
    }

    /// As [`ByteRegion::of`] for planned memory; `None` for everything else.
    pub fn planned(ir: &MethodIr, id: ValueId) -> Option<ByteRegion> {
        ByteRegion::of(ir, id).filter(|region| matches!(region.space, Space::Arena(_)))
    }

    /// With at least one byte, so that an empty tensor is at a place too.
    #[must_use]
    pub fn at_least_a_byte(self) -> ByteRegion {
        ByteRegion { end: self.end.max(self.start.saturating_add(1)), ..self }
    }

    /// Is there a byte in both?
    pub fn overlaps(&self, other: &ByteRegion) -> bool {
        self.space == other.space && self.start.max(other.start) < self.end.min(other.end)
    }

    /// Is every byte of `other` in this?
    pub fn covers(&self, other: &ByteRegion) -> bool {
        self.space == other.space && self.start <= other.start && other.end <= self.end
    }
}
