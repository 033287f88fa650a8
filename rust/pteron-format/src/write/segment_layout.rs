//! Segments of a file: what each holds and where it starts.

use super::distinct::Distinct;
use super::write_options::check_alignment;
use super::{ProgramDraft, WriteOptions};
use pteron_core::{Error, Result};
use std::collections::HashMap;

/// Largest alignment that a file keeps; also the most padding that one segment can cost.
const MAX_COMMON_ALIGNMENT: u64 = 1 << 20;

/// One segment: pieces at increasing offsets, zeros between them.
struct Segment<'a> {
    alignment: u64,
    pieces: Vec<(u64, &'a [u8])>,
    size: u64,
}

/// Everything behind the program table, and the numbers that the table must state about it.
pub(super) struct SegmentLayout<'a> {
    segments: Vec<Segment<'a>>,
    /// Offset (from the segment base) and size of each segment.
    pub extents: Vec<(u64, u64)>,
    /// Multiple that the segment base must be of.
    pub base_alignment: u64,
    /// Segment base to end of file.
    pub total: u64,
    /// Offsets of constants in segment 0; entry 0 is the placeholder.
    pub constant_offsets: Vec<u64>,
    /// Draft constant index → stored index.
    pub constant_index: Vec<usize>,
    /// Segment and offsets of initial data, if there is any.
    pub mutable: Option<(u32, Vec<u64>)>,
    /// Draft initial data index → stored index.
    pub mutable_index: Vec<usize>,
    /// Blobs that stay in the program table.
    pub inline_delegates: Vec<&'a [u8]>,
    /// Draft blob index → where it went.
    pub delegate_place: Vec<DelegatePlace>,
    /// Segment of each named blob, parallel to the draft.
    pub named_segment: Vec<u32>,
}

/// Where a delegate blob is.
#[derive(Clone, Copy)]
pub(super) enum DelegatePlace {
    /// Index into the inline blobs.
    Inline(u32),
    /// Index into the segments.
    Segment(u32),
}

impl<'a> SegmentLayout<'a> {
    /// Plans all segments of `draft`: constants, initial data, delegates, named blobs.
    pub fn plan(draft: &'a ProgramDraft<'_>, options: &WriteOptions) -> Result<Self> {
        let mut segments = Vec::new();
        let segment_alignment = u64::from(options.segment_alignment);
        let constant_alignment = u64::from(options.constant_tensor_alignment);

        let constants = distinct_after_placeholder(&draft.constants, "constants")?;
        let (segment, constant_offsets) =
            concatenate(&constants.blobs, constant_alignment, lcm(segment_alignment, constant_alignment)?)?;
        segments.push(segment);

        let initial = distinct_after_placeholder(&draft.mutable_data, "mutable_data")?;
        let mut mutable = None;
        if initial.blobs.len() > 1 {
            let (segment, offsets) = concatenate(&initial.blobs, 1, segment_alignment)?;
            mutable = Some((index32(segments.len())?, offsets));
            segments.push(segment);
        }

        let (inline_delegates, delegate_place) =
            place_delegates(draft, options.extract_delegate_segments, segment_alignment, &mut segments)?;
        let named_segment = place_named(draft, segment_alignment, &mut segments)?;
        let (extents, base_alignment, total) = arrange(&segments)?;
        Ok(SegmentLayout {
            segments,
            extents,
            base_alignment,
            total,
            constant_offsets,
            constant_index: constants.index,
            mutable,
            mutable_index: initial.index,
            inline_delegates,
            delegate_place,
            named_segment,
        })
    }

    /// Appends all segment bytes to `out`, whose end is the segment base.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<()> {
        let base = out.len();
        for (segment, (offset, size)) in self.segments.iter().zip(&self.extents) {
            for (piece_offset, piece) in &segment.pieces {
                if !piece.is_empty() {
                    pad_to(out, base, add(*offset, *piece_offset)?)?;
                    out.extend_from_slice(piece);
                }
            }
            // A segment can end in the padding before an empty constant.
            pad_to(out, base, add(*offset, *size)?)?;
        }
        Ok(())
    }
}

/// The distinct blobs with the placeholder kept apart as entry 0, so that an empty constant is not
/// taken for "no data".
fn distinct_after_placeholder<'a>(
    list: &'a [std::borrow::Cow<'_, [u8]>],
    what: &str,
) -> Result<Distinct<'a>> {
    if list.first().is_some_and(|b| !b.is_empty()) {
        return Err(Error::program(format!("entry 0 of {what} is not empty"))
            .expected("an empty placeholder, because index 0 means \"no data\""));
    }
    let rest = Distinct::of(list.iter().skip(1).map(|b| b.as_ref()));
    let mut out = Distinct { blobs: vec![&[]], index: vec![0] };
    out.blobs.extend(rest.blobs);
    out.index.extend(rest.index.iter().map(|i| i.saturating_add(1)));
    Ok(out)
}

/// One segment of `blobs`, each at a multiple of `piece_alignment`, and their offsets.
fn concatenate<'a>(
    blobs: &[&'a [u8]],
    piece_alignment: u64,
    alignment: u64,
) -> Result<(Segment<'a>, Vec<u64>)> {
    let mut segment = Segment { alignment, pieces: Vec::new(), size: 0 };
    let mut offsets = Vec::new();
    for blob in blobs {
        let offset = align_up(segment.size, piece_alignment)?;
        offsets.push(offset);
        if !blob.is_empty() {
            segment.pieces.push((offset, *blob));
            segment.size = add(offset, blob.len() as u64)?;
        }
    }
    // An empty blob at the very end may have been given the next aligned place.
    segment.size = segment.size.max(offsets.last().copied().unwrap_or(0));
    Ok((segment, offsets))
}

fn whole(blob: &[u8], alignment: u64) -> Segment<'_> {
    Segment { alignment, pieces: vec![(0, blob)], size: blob.len() as u64 }
}

/// Delegate blobs: segments of their own when `extract` and not empty, inline otherwise.
fn place_delegates<'a>(
    draft: &'a ProgramDraft<'_>,
    extract: bool,
    alignment: u64,
    segments: &mut Vec<Segment<'a>>,
) -> Result<(Vec<&'a [u8]>, Vec<DelegatePlace>)> {
    let distinct = Distinct::of(draft.delegate_data.iter().map(|b| b.as_ref()));
    let mut inline = Vec::new();
    let mut places = Vec::new();
    for blob in distinct.blobs {
        if extract && !blob.is_empty() {
            places.push(DelegatePlace::Segment(index32(segments.len())?));
            segments.push(whole(blob, alignment));
        } else {
            places.push(DelegatePlace::Inline(index32(inline.len())?));
            inline.push(blob);
        }
    }
    let place = distinct.index.iter().filter_map(|i| places.get(*i).copied()).collect();
    Ok((inline, place))
}

/// Named blobs: one segment per content, aligned for every key that shares it.
fn place_named<'a>(
    draft: &'a ProgramDraft<'_>,
    segment_alignment: u64,
    segments: &mut Vec<Segment<'a>>,
) -> Result<Vec<u32>> {
    let mut stored: HashMap<&[u8], usize> = HashMap::new();
    let mut out = Vec::new();
    for named in &draft.named_data {
        check_alignment(
            &format!("the alignment of named data '{}'", pteron_core::error::printable(&named.key)),
            named.alignment,
        )?;
        let wanted = u64::from(named.alignment);
        let next = segments.len();
        let at = *stored.entry(named.data.as_ref()).or_insert(next);
        if at == next {
            segments.push(whole(&named.data, segment_alignment));
        }
        if let Some(segment) = segments.get_mut(at) {
            segment.alignment = lcm(segment.alignment, wanted)?;
        }
        out.push(index32(at)?);
    }
    Ok(out)
}

/// Offset and size of every segment, the alignment of the segment base, and the total length.
type Arrangement = (Vec<(u64, u64)>, u64, u64);

/// Puts segments one behind the other.
fn arrange(segments: &[Segment<'_>]) -> Result<Arrangement> {
    let mut extents = Vec::new();
    let (mut at, mut base_alignment) = (0u64, 1u64);
    for segment in segments {
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
    Ok((extents, base_alignment, at))
}

fn pad_to(out: &mut Vec<u8>, base: usize, offset: u64) -> Result<()> {
    let end = usize::try_from(offset).ok().and_then(|o| base.checked_add(o)).ok_or_else(too_large)?;
    if end > out.len() {
        out.resize(end, 0);
    }
    Ok(())
}

fn add(a: u64, b: u64) -> Result<u64> {
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

fn index32(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| too_large())
}

fn too_large() -> Error {
    Error::limit("the program is too large for a file of this format")
}
