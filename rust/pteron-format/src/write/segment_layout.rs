//! Segments of a program: what each holds, and what the table must state about it.

use super::distinct::Distinct;
use super::segments::{Segment, Segments, add, align_up, index32, lcm};
use super::write_options::check_alignment;
use super::{ProgramDraft, WriteOptions};
use pteron_core::{Error, Result};
use std::collections::HashMap;

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
        let named = NamedBlobs::of(draft, &constants.blobs, segment_alignment)?;
        let mut alignments = Vec::new();
        for (at, _) in constants.blobs.iter().enumerate() {
            alignments.push(match named.alignment_of_constant.get(&at) {
                Some(alignment) => lcm(constant_alignment, *alignment)?,
                None => constant_alignment,
            });
        }
        let (segment, constant_offsets) = concatenate(&constants.blobs, &alignments, segment_alignment)?;
        segments.push(segment);

        let initial = distinct_after_placeholder(&draft.mutable_data, "mutable_data")?;
        let mut mutable = None;
        if initial.blobs.len() > 1 {
            let (segment, offsets) = concatenate(&initial.blobs, &[], segment_alignment)?;
            mutable = Some((index32(segments.len())?, offsets));
            segments.push(segment);
        }

        let (inline_delegates, delegate_place) =
            place_delegates(draft, options.extract_delegate_segments, segment_alignment, &mut segments)?;
        let named_segment = named.place(&constant_offsets, &mut segments)?;
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

/// One segment of `blobs`, each at a multiple of its entry in `alignments` (1 where it has none), and their
/// offsets. The segment keeps all of these alignments and `alignment`.
fn concatenate<'a>(
    blobs: &[&'a [u8]],
    alignments: &[u64],
    alignment: u64,
) -> Result<(Segment<'a>, Vec<u64>)> {
    let mut segment = Segment { alignment, pieces: Vec::new(), size: 0, inside: None };
    let mut offsets = Vec::new();
    for (at, blob) in blobs.iter().enumerate() {
        let own = alignments.get(at).copied().unwrap_or(1);
        let offset = align_up(segment.size, own)?;
        offsets.push(offset);
        segment.alignment = lcm(segment.alignment, own)?;
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

/// Named blobs of a program by content. A content that is also a constant is stored with the constants, and its
/// segment names these bytes: what a delegate and a kernel both read is in the file once.
struct NamedBlobs<'a> {
    /// Each content once: its bytes, its alignment, and the stored constant that it equals.
    contents: Vec<(&'a [u8], u64, Option<usize>)>,
    /// Index into `contents` of each named blob, parallel to the draft.
    index: Vec<usize>,
    /// Stored constant → what its bytes are aligned to for the names that it has.
    alignment_of_constant: HashMap<usize, u64>,
}

impl<'a> NamedBlobs<'a> {
    fn of(draft: &'a ProgramDraft<'_>, constants: &[&'a [u8]], segment_alignment: u64) -> Result<Self> {
        let named = draft.named_data.iter().map(|n| (n.key.as_str(), n.data.as_ref(), n.alignment));
        let (blobs, alignments, index) = keyed_contents(named, segment_alignment)?;
        // Without the placeholder, which an empty constant equals, the constants are distinct: they keep their order.
        let stored = constants.get(1..).unwrap_or_default();
        let both = Distinct::of(stored.iter().copied().chain(blobs.iter().copied()));
        let mut contents = Vec::new();
        let mut alignment_of_constant = HashMap::new();
        for (at, (blob, alignment)) in blobs.into_iter().zip(alignments).enumerate() {
            let first = both.index.get(stored.len().saturating_add(at)).copied();
            let equal = first.filter(|first| *first < stored.len() && !blob.is_empty());
            let constant = equal.map(|at| at.saturating_add(1));
            if let Some(constant) = constant {
                alignment_of_constant.insert(constant, alignment);
            }
            contents.push((blob, alignment, constant));
        }
        Ok(NamedBlobs { contents, index, alignment_of_constant })
    }

    /// Adds a segment for each content and returns that of each named blob; the constants are segment 0.
    fn place(self, constant_offsets: &[u64], segments: &mut Vec<Segment<'a>>) -> Result<Vec<u32>> {
        let first = segments.len();
        for (blob, alignment, constant) in self.contents {
            let inside = constant.and_then(|at| constant_offsets.get(at));
            segments.push(match inside {
                Some(offset) => Segment::within(0, *offset, blob.len() as u64),
                None => Segment::whole(blob, alignment),
            });
        }
        self.index.into_iter().map(|at| index32(first.saturating_add(at))).collect()
    }
}

/// Distinct contents, what each is aligned to, and the content of each entry of a list.
type KeyedContents<'a> = (Vec<&'a [u8]>, Vec<u64>, Vec<usize>);

/// The distinct contents of (key, bytes, alignment), each aligned for every key that shares it.
fn keyed_contents<'a, 'k>(
    entries: impl Iterator<Item = (&'k str, &'a [u8], u32)> + Clone,
    segment_alignment: u64,
) -> Result<KeyedContents<'a>> {
    let Distinct { blobs, index } = Distinct::of(entries.clone().map(|(_, data, _)| data));
    let mut alignments = vec![segment_alignment; blobs.len()];
    for ((key, _, alignment), at) in entries.zip(&index) {
        check_alignment(
            &format!("the alignment of named data '{}'", pteron_core::error::printable(key)),
            alignment,
        )?;
        if let Some(all) = alignments.get_mut(*at) {
            *all = lcm(*all, u64::from(alignment))?;
        }
    }
    Ok((blobs, alignments, index))
}

/// One segment per distinct content of (key, bytes, alignment), aligned for every key that shares it;
/// returns the segment of each key.
pub(super) fn place_keyed<'a, 'k>(
    entries: impl Iterator<Item = (&'k str, &'a [u8], u32)> + Clone,
    segment_alignment: u64,
    segments: &mut Vec<Segment<'a>>,
) -> Result<Vec<u32>> {
    let first = segments.len();
    let (blobs, alignments, index) = keyed_contents(entries, segment_alignment)?;
    segments.extend(blobs.iter().zip(alignments).map(|(blob, alignment)| Segment::whole(blob, alignment)));
    index.into_iter().map(|at| index32(first.saturating_add(at))).collect()
}
