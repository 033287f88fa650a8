//! Where a session puts each value: which memory it owns, what it copies in, what it puts back before
//! every run.

use crate::ir::{ConstantRef, MethodIr, Placement, TensorIr};
use crate::load::code_builder::BuiltCode;
use crate::load::constants::dense_copy;
use crate::load::planned_outputs;
use crate::load::prepare::Preparer;
use crate::load::small_constants::SmallConstants;
use crate::load::step::{Action, Step};
use pteron_core::{Error, PackedBytes, Result, ValueId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What sessions of a method have in common.
pub(crate) struct SessionLayout {
    /// Does a session need the value at all? Most of what a plan fused away, folded or packed is in no step any more.
    is_used: Box<[bool]>,
    /// Memory of constants that load made, by value. Constants that every kernel took from a packed copy
    /// have none.
    pub folded: HashMap<ValueId, FoldedMemory>,
    /// Copies of small constants of a mapped file.
    pub small: SmallConstants,
    /// Unplanned values that get memory of the session's own: bytes.
    pub own: Vec<(ValueId, usize)>,
    /// Unplanned outputs that get fresh memory per run.
    pub fresh_outputs: Vec<ValueId>,
    /// May those lie in buffers that the caller binds?
    pub has_direct_outputs: bool,
    /// Planned outputs that can be computed in such a buffer as well.
    pub movable_outputs: Vec<ValueId>,
    /// Tensors whose pointer is put back before every run.
    pub moving: Vec<ValueId>,
    /// Scalars that instructions write: put back to their values in the file before every run, so that
    /// a run that was stopped in a loop leaves nothing behind.
    pub scalars: Vec<ValueId>,
    /// Mutable buffers by name.
    pub state: Vec<(String, ValueId)>,
    /// Bytes of planned and own memory together.
    pub nbytes: usize,
}

/// Memory of a folded constant.
pub(crate) enum FoldedMemory {
    /// A part of the program's storage: byte offset within the constant.
    Stored(pteron_core::ConstantKey, usize),
    /// A dense copy.
    Copied(Arc<PackedBytes>),
}

impl SessionLayout {
    pub(crate) fn new(
        ir: &MethodIr,
        built: &BuiltCode,
        written: &HashSet<ValueId>,
        preparer: Preparer<'_>,
    ) -> Result<SessionLayout> {
        let inputs: HashSet<ValueId> = ir.inputs.iter().copied().collect();
        let outputs: HashSet<ValueId> = ir.outputs.iter().copied().collect();
        let is_used = used_values(ir, built);
        let is_read = |id: ValueId| is_used.get(id.index()).copied().unwrap_or(false);
        let small = SmallConstants::copy(ir, preparer.constants.data, is_read)?;
        let mut layout = SessionLayout {
            is_used,
            small,
            folded: folded_memory(ir, &built.steps, preparer)?,
            own: vec![],
            fresh_outputs: vec![],
            has_direct_outputs: may_lie_with_callers(&built.steps),
            movable_outputs: vec![],
            moving: built.moving.iter().copied().collect(),
            scalars: vec![],
            state: vec![],
            nbytes: 0,
        };
        if layout.has_direct_outputs {
            layout.movable_outputs = planned_outputs::movable(ir, &built.steps, &built.links);
        }
        for id in &layout.movable_outputs {
            if !layout.moving.contains(id) {
                layout.moving.push(*id);
            }
        }
        layout.moving.sort_unstable();
        let add = |total: usize, n: usize| {
            total.checked_add(n).ok_or_else(|| {
                Error::program("the memory plan exceeds the address space")
                    .expected(format!("at most {} bytes in all", usize::MAX))
                    .got(format!("{n} bytes besides {total}"))
            })
        };
        for n in &ir.arenas {
            layout.nbytes = add(layout.nbytes, *n)?;
        }
        for (i, value) in ir.values.iter().enumerate() {
            let id = ValueId(u32::try_from(i).map_err(|_| Error::program("too many values"))?);
            let Some(tensor) = value.as_tensor() else {
                if written.contains(&id) && !inputs.contains(&id) {
                    layout.scalars.push(id);
                }
                continue;
            };
            match &tensor.placement {
                Placement::Unplanned if inputs.contains(&id) => {}
                Placement::Unplanned if outputs.contains(&id) => layout.fresh_outputs.push(id),
                Placement::Unplanned if !layout.is_used(id) => {}
                Placement::Unplanned => {
                    let nbytes = tensor.spec.nbytes()?;
                    layout.nbytes = add(layout.nbytes, nbytes)?;
                    layout.own.push((id, nbytes));
                }
                Placement::Planned { .. } if tensor.is_state() => {
                    let name = tensor.name.clone().unwrap_or_else(|| format!("state{}", layout.state.len()));
                    layout.state.push((name, id));
                }
                _ => {}
            }
        }
        Ok(layout)
    }

    /// Does a session need the value `id` at all?
    pub(crate) fn is_used(&self, id: ValueId) -> bool {
        self.is_used.get(id.index()).copied().unwrap_or(false)
    }
}

/// May the method's outputs lie in callers' memory? Not where a delegate could keep a view of it, and
/// not where a jump could leave one unwritten: fresh memory is zero, callers' memory is what it was.
fn may_lie_with_callers(steps: &[Step]) -> bool {
    !steps.iter().any(|s| matches!(s.action, Action::Delegate { .. } | Action::JumpFalse { .. }))
}

/// What steps, callers and those who keep state can name, directly or in a list.
fn used_values(ir: &MethodIr, built: &BuiltCode) -> Box<[bool]> {
    let mut is_used = vec![false; ir.values.len()];
    let mut mark = |id: ValueId| {
        for id in std::iter::once(id).chain(ir.members(id).iter()) {
            if let Some(used) = is_used.get_mut(id.index()) {
                *used = true;
            }
        }
    };
    for step in &built.steps {
        step.operation().named().for_each(&mut mark);
    }
    ir.inputs.iter().chain(&ir.outputs).copied().for_each(&mut mark);
    ir.tensors().filter(|(_, tensor)| tensor.is_state()).for_each(|(id, _)| mark(id));
    is_used.into()
}

/// Memory for the folded constants that some kernel reads as memory.
fn folded_memory(
    ir: &MethodIr,
    steps: &[Step],
    preparer: Preparer<'_>,
) -> Result<HashMap<ValueId, FoldedMemory>> {
    let mut memory = HashMap::new();
    for step in steps {
        for (position, id) in step.args.iter().enumerate() {
            let is_read = match &step.action {
                Action::Kernel(k) => k.prepared.needs(position),
                _ => true,
            };
            for id in ir.leaves(*id).filter(|_| is_read) {
                let Some(tensor) = ir.tensor(id) else { continue };
                if matches!(tensor.placement, Placement::Constant(ConstantRef::Folded(_)))
                    && !memory.contains_key(&id)
                {
                    memory.insert(id, memory_of(tensor, preparer)?);
                }
            }
        }
    }
    Ok(memory)
}

fn memory_of(tensor: &TensorIr, preparer: Preparer<'_>) -> Result<FoldedMemory> {
    let view = preparer
        .constants
        .view(tensor)
        .ok_or_else(|| Error::internal("a folded constant has lost its storage"))?;
    let is_stored = matches!(&tensor.placement, Placement::Constant(ConstantRef::Folded(i))
        if preparer.constants.folded.get(*i as usize).is_some_and(|f| f.data.is_none()));
    if is_stored && tensor.spec.dim_order.is_dense(&view.shape, &view.strides) {
        return Ok(FoldedMemory::Stored(view.key, view.offset.saturating_mul(view.dtype.size())));
    }
    Ok(FoldedMemory::Copied(dense_copy(preparer.packs, &view, tensor)?))
}
