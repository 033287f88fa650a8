//! Outputs with a place in the memory plan that can be computed in a buffer of the caller instead.
//!
//! That is so where nobody can tell the difference: from the step that first writes the output on, no step
//! looks at other values in its bytes, nothing is a view of it, and the step writes all of it, from arguments that
//! lie elsewhere. Nor may an earlier step find there what the call before left: all that it reads in these bytes was
//! written in the same call, or given by the caller.

use crate::ir::{MethodIr, TensorIr};
use crate::load::step::{Action, KernelStep, Step};
use crate::step_effects::{ArgumentRole, ByteRegion, tensor_roles};
use pteron_core::{AliasRule, ValueId};
use std::collections::HashSet;

/// The outputs that may move. `links`: (from, to) of every move and view. Steps must have neither jumps nor
/// delegate calls (`may_lie_with_callers` in `session_layout`).
pub(crate) fn movable(ir: &MethodIr, steps: &[Step], links: &[(ValueId, ValueId)]) -> Vec<ValueId> {
    let mut out: Vec<ValueId> = Vec::new();
    for id in &ir.outputs {
        let is_linked = links.iter().any(|(from, to)| from == id || to == id);
        if let Some(region) = ByteRegion::planned(ir, *id)
            && ir.tensor(*id).is_some_and(TensorIr::is_temporary)
            && !is_linked
            && !out.contains(id)
            && !ir.inputs.contains(id)
            && !ir.outputs.iter().any(|other| other != id && overlaps(ir, *other, &region))
            && is_apart_once_written(ir, steps, *id, &region)
        {
            out.push(*id);
        }
    }
    out
}

fn overlaps(ir: &MethodIr, id: ValueId, region: &ByteRegion) -> bool {
    ByteRegion::planned(ir, id).is_some_and(|own| own.overlaps(region))
}

fn is_apart_once_written(ir: &MethodIr, steps: &[Step], id: ValueId, region: &ByteRegion) -> bool {
    let mut is_written = false;
    let mut known: HashSet<ValueId> = ir.inputs.iter().copied().collect();
    for step in steps {
        let Action::Kernel(kernel) = &step.action else { continue };
        let roles = tensor_roles(ir, &kernel.schema, &step.args);
        let is_mentioned = roles.iter().any(|r| r.value == id);
        if is_mentioned && (kernel.overlap_check.is_some() || kernel.alias == AliasRule::View) {
            return false;
        }
        if !is_written && is_mentioned {
            let is_read = roles.iter().any(|r| r.value == id && !r.is_output);
            if is_read || !writes_all(kernel) {
                return false;
            }
            is_written = true;
        }
        if is_written && roles.iter().any(|r| r.value != id && overlaps(ir, r.value, region)) {
            return false;
        }
        let reads = |r: &ArgumentRole| !r.is_output || !writes_all(kernel);
        if roles.iter().any(|r| reads(r) && !known.contains(&r.value) && overlaps(ir, r.value, region)) {
            return false;
        }
        known.extend(roles.iter().filter(|r| r.is_output).map(|r| r.value));
    }
    is_written
}

/// Does the kernel write all of its outputs, whatever was there?
fn writes_all(kernel: &KernelStep) -> bool {
    kernel.alias != AliasRule::Update && !kernel.schema.updates()
}
