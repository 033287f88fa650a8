//! What a delegate writes lies clear of its other arguments: its calls may write an output before they read the last
//! input, so the check of each call alone would not notice.

use crate::ir::MethodIr;
use crate::step_effects::{ByteRegion, Space, overlap_error};
use pteron_core::memory_reserve::filled;
use pteron_core::{Result, Value, ValueId};
use pteron_xnnpack::{ExpandedTensor, Expansion};

/// One argument: its bytes, and whether the delegate writes them.
struct Argument {
    region: ByteRegion,
    value: ValueId,
    is_written: bool,
}

/// Errors: `Program` where the memory of an argument that `expansion` writes overlaps that of another argument. Memory
/// that a move has put elsewhere is left to the checks of the calls.
pub(super) fn check_disjoint(ir: &MethodIr, args: &[ValueId], expansion: &Expansion) -> Result<()> {
    let mut is_written = filled(false, args.len())?;
    for output in expansion.calls.iter().flat_map(|call| &call.outputs) {
        if let Some(Value::Tensor(tensor)) = expansion.values.get(*output)
            && let ExpandedTensor::Argument(argument) = **tensor
            && let Some(slot) = is_written.get_mut(argument)
        {
            *slot = true;
        }
    }
    let mut arguments: Vec<Argument> = args
        .iter()
        .zip(is_written)
        .filter_map(|(value, is_written)| {
            let region = ByteRegion::of(ir, *value)?;
            let has_bytes = region.start < region.end && region.space != Space::Constant;
            has_bytes.then_some(Argument { region, value: *value, is_written })
        })
        .collect();
    arguments.sort_unstable_by_key(|argument| argument.region);
    // The argument, of all so far and of those that are written, that reaches furthest.
    let (mut any, mut written): (Option<&Argument>, Option<&Argument>) = (None, None);
    for next in &arguments {
        let before = if next.is_written { any } else { written };
        if let Some(before) = before.filter(|before| before.region.overlaps(&next.region)) {
            let (out, other) = if next.is_written { (next, before) } else { (before, next) };
            return Err(overlap_error(out.value, other.value, other.is_written));
        }
        any = Some(furthest(any, next));
        if next.is_written {
            written = Some(furthest(written, next));
        }
    }
    Ok(())
}

fn furthest<'a>(a: Option<&'a Argument>, b: &'a Argument) -> &'a Argument {
    let reach = |argument: &Argument| (argument.region.space, argument.region.end);
    a.filter(|a| reach(a) > reach(b)).unwrap_or(b)
}
