//! Where tensors can be over all moves and views.

use super::ByteRegion;
use crate::ir::MethodIr;
use pteron_core::ValueId;
use smallvec::SmallVec;

/// All places of one value; `None`: too many to list.
pub(crate) type Places = Option<SmallVec<[ByteRegion; 1]>>;

/// More places than this count as "anywhere".
const MOST_PLACES: usize = 8;

/// Adds to the places of every value those that it takes over through `links`, (from, to) of moves and views.
pub(crate) fn spread(ir: &MethodIr, places: &mut [Places], links: &[(ValueId, ValueId)]) {
    // Every round can only add places, and each value takes at most MOST_PLACES of them.
    while links.iter().fold(false, |changed, (from, to)| follow(ir, places, *from, *to) || changed) {}
}

fn follow(ir: &MethodIr, places: &mut [Places], from: ValueId, to: ValueId) -> bool {
    let nbytes = ir.tensor(to).and_then(|t| t.spec.nbytes().ok()).unwrap_or(0);
    let source = places.get(from.index()).cloned().flatten();
    let Some(slot) = places.get_mut(to.index()) else { return false };
    let Some(target) = slot else { return false };
    let Some(source) = source else {
        *slot = None;
        return true;
    };
    let mut is_changed = false;
    for region in source {
        let seen = ByteRegion { end: region.start.saturating_add(nbytes), ..region };
        if !target.contains(&seen) {
            target.push(seen);
            is_changed = true;
        }
    }
    if target.len() > MOST_PLACES {
        *slot = None;
    }
    is_changed
}
