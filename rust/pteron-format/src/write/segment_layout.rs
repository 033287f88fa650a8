//! Segments of a program: what each holds, and what the table must state about it.

use super::distinct::Distinct;
use super::segments::{Segment, Segments, add, align_up, index32, lcm};
use super::write_options::check_alignment;
use super::{ProgramDraft, WriteOptions};
use pteron_core::{Error, Result};

/// Everything behind the program table, and the numbers that the table must state about it.
pub(super) struct SegmentLayout<'a> {
    pub segments: Segments<'a>,
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
        Ok(SegmentLayout {
            segments: Segments::arrange(segments)?,
            constant_offsets,
            constant_index: constants.index,
            mutable,
            mutable_index: initial.index,
            inline_delegates,
            delegate_place,
            named_segment,
        })
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
            segments.push(Segment::whole(blob, alignment));
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
    let wanted = draft.named_data.iter().map(|n| (n.key.as_str(), n.data.as_ref(), n.alignment));
    place_keyed(wanted, segment_alignment, segments)
}

/// One segment per distinct content of (key, bytes, alignment), aligned for every key that shares it;
/// returns the segment of each key.
pub(super) fn place_keyed<'a, 'k>(
    entries: impl Iterator<Item = (&'k str, &'a [u8], u32)> + Clone,
    segment_alignment: u64,
    segments: &mut Vec<Segment<'a>>,
) -> Result<Vec<u32>> {
    let first = segments.len();
    let distinct = Distinct::of(entries.clone().map(|(_, data, _)| data));
    segments.extend(distinct.blobs.iter().map(|blob| Segment::whole(blob, segment_alignment)));
    let mut out = Vec::new();
    for ((key, _, alignment), index) in entries.zip(&distinct.index) {
        check_alignment(
            &format!("the alignment of named data '{}'", pteron_core::error::printable(key)),
            alignment,
        )?;
        let at = first.saturating_add(*index);
        if let Some(segment) = segments.get_mut(at) {
            segment.alignment = lcm(segment.alignment, u64::from(alignment))?;
        }
        out.push(index32(at)?);
    }
    Ok(out)
}
