//! Segments of a file, whatever they hold: one behind the other, each aligned.

use super::file_layout::FileLayout;
use pteron_core::{Error, Result};

/// Largest alignment that a file keeps; also the most padding that one segment can cost.
const MAX_COMMON_ALIGNMENT: u64 = 1 << 20;

/// One segment: pieces at increasing offsets, zeros between them.
pub(super) struct Segment<'a> {
    pub alignment: u64,
    pub pieces: Vec<(u64, &'a [u8])>,
    pub size: u64,
    /// The segment before it whose bytes it names from an offset on; it has no pieces then.
    pub inside: Option<(usize, u64)>,
}

impl<'a> Segment<'a> {
    /// A segment of one blob.
    pub fn whole(blob: &'a [u8], alignment: u64) -> Self {
        Segment { alignment, pieces: vec![(0, blob)], size: blob.len() as u64, inside: None }
    }

    /// `size` bytes of segment `segment`, which comes before it, from `offset` on.
    pub fn within(segment: usize, offset: u64, size: u64) -> Self {
        Segment { alignment: 1, pieces: Vec::new(), size, inside: Some((segment, offset)) }
    }
}

/// Segments in their places.
pub(super) struct Segments<'a> {
    list: Vec<Segment<'a>>,
    /// Offset (from the segment base) and size of each segment.
    pub extents: Vec<(u64, u64)>,
    /// Multiple that the segment base must be of.
    pub base_alignment: u64,
    /// Segment base to end of file.
    pub total: u64,
}

impl<'a> Segments<'a> {
    /// Puts segments one behind the other.
    pub fn arrange(list: Vec<Segment<'a>>) -> Result<Self> {
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let (mut at, mut base_alignment) = (0u64, 1u64);
        for segment in &list {
            if let Some((outer, offset)) = segment.inside {
                let start = extents.get(outer).map_or(0, |(start, _)| *start);
                extents.push((add(start, offset)?, segment.size));
                continue;
            }
            if segment.size == 0 {
                extents.push((at, 0));
                continue;
            }
            let offset = align_up(at, segment.alignment)?;
            // A promise about an offset in the file holds only if the base keeps it as well.
            base_alignment = lcm(base_alignment, segment.alignment)?;
            extents.push((offset, segment.size));
            at = add(offset, segment.size)?;
        }
        Ok(Segments { list, extents, base_alignment, total: at })
    }

    /// The file that begins with `head` and has the segments from `base` on.
    pub fn behind(self, mut head: Vec<u8>, base: u64) -> Result<FileLayout<'a>> {
        head.resize(usize::try_from(base).map_err(|_| too_large())?, 0);
        let mut pieces = Vec::new();
        for (segment, (offset, _)) in self.list.iter().zip(&self.extents) {
            for (inside, piece) in segment.pieces.iter().filter(|(_, piece)| !piece.is_empty()) {
                pieces.push((add(base, add(*offset, *inside)?)?, *piece));
            }
        }
        Ok(FileLayout { head, pieces, len: add(base, self.total)? })
    }
}

pub(super) fn add(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or_else(too_large)
}

/// The next multiple of `alignment` (not zero) from `value` on.
pub(super) fn align_up(value: u64, alignment: u64) -> Result<u64> {
    value.checked_next_multiple_of(alignment).ok_or_else(too_large)
}

/// Least common multiple of two alignments.
pub(super) fn lcm(a: u64, b: u64) -> Result<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x.checked_rem(y).unwrap_or(0));
    }
    let out = a.checked_div(x).and_then(|q| q.checked_mul(b)).filter(|m| *m <= MAX_COMMON_ALIGNMENT);
    out.ok_or_else(|| {
        Error::program("alignments that a segment must keep together are too large")
            .expected("a least common multiple of at most 1 MiB")
            .got(format!("{a} and {b}"))
    })
}

/// An index as the tables of the format store it.
pub(super) fn index32(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| too_large())
}

pub(super) fn too_large() -> Error {
    Error::limit("the contents are too large for a file of this format")
}
