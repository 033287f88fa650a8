//! Memory for what lives within a delegate: by lifetimes over its calls, behind what the file plans.

use super::views::Views;
use crate::fit::{ALIGNMENT, Demand, best_placement};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Error, Members, Result, Value};
use pteron_xnnpack::{ExpandedTensor, Expansion};
use smallvec::SmallVec;

/// Beyond this number tensors lie behind each other: looking for gaps takes time with the square of it.
const MOST_FITTED: usize = 1 << 13;

/// Offsets of the intermediates of an expansion, by index of the value, and the bytes of all together.
pub(super) struct Workspace {
    offsets: Vec<usize>,
    pub nbytes: usize,
}

impl Workspace {
    /// Places the intermediates of `expansion`; one that is a view needs the bytes of its root.
    ///
    /// Errors: `LimitExceeded` for more memory than can be addressed.
    pub(super) fn new(expansion: &Expansion, views: &Views) -> Result<Workspace> {
        let mut spans: Vec<Option<(usize, usize)>> = try_with_capacity(expansion.values.len())?;
        spans.resize(expansion.values.len(), None);
        let mut name = |index: usize, at: usize| {
            if let Some(slot) = spans.get_mut(views.root(index).unwrap_or(index)) {
                *slot = Some((slot.map_or(at, |(first, _)| first), at));
            }
        };
        for (at, call) in expansion.calls.iter().enumerate() {
            for index in call.args() {
                name(index, at);
                let members = expansion.values.get(index).map_or(Members::All(&[]), Value::members);
                members.iter().for_each(|member| name(member, at));
            }
        }
        let mut demands: Vec<Demand> = Vec::new();
        let mut of: Vec<usize> = Vec::new();
        for (index, (value, span)) in expansion.values.iter().zip(spans).enumerate() {
            if let (Value::Tensor(tensor), Some(span)) = (value, span)
                && let ExpandedTensor::Intermediate(spec) = &**tensor
            {
                demands.push(Demand { nbytes: spec.nbytes()?, spans: SmallVec::from_slice(&[span]) });
                of.push(index);
            }
        }
        let placed = if demands.len() > MOST_FITTED { in_a_row(&demands) } else { best_placement(&demands) };
        let (found, nbytes) = placed.ok_or_else(too_large)?;
        let mut offsets: Vec<usize> = try_with_capacity(expansion.values.len())?;
        offsets.resize(expansion.values.len(), 0);
        for (index, offset) in of.into_iter().zip(found) {
            if let Some(slot) = offsets.get_mut(index) {
                *slot = offset;
            }
        }
        Ok(Workspace { offsets, nbytes })
    }

    /// Offset of the intermediate that is value `index`, which is no view; 0 for one that no call names.
    pub(super) fn offset(&self, index: usize) -> usize {
        self.offsets.get(index).copied().unwrap_or(0)
    }
}

/// The size of an arena that has `more` bytes behind its own, and where these begin.
pub(super) fn behind(arena: usize, more: usize) -> Result<(usize, usize)> {
    let start = arena.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
    Ok((start, start.checked_add(more).ok_or_else(too_large)?))
}

fn in_a_row(demands: &[Demand]) -> Option<(Vec<usize>, usize)> {
    let mut total = 0usize;
    let mut offsets = Vec::with_capacity(demands.len());
    for demand in demands {
        offsets.push(total);
        total = total.checked_add(demand.nbytes.max(1).checked_next_multiple_of(ALIGNMENT)?)?;
    }
    Some((offsets, total))
}

#[cold]
fn too_large() -> Error {
    Error::limit("the tensors inside a delegate exceed the address space")
        .expected(format!("at most {} bytes in all", usize::MAX))
}
