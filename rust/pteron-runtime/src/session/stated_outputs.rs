//! How many outputs a delegate call has, as far as the file says: in `pteron.interface`, or else by what the other
//! steps do with the arguments. A delegate that states another number would take an input for an output, or leave an
//! output as it was, and nobody would notice.

use crate::ir::Placement;
use crate::load::method_code::MethodCode;
use crate::load::step::{Action, Step};
use crate::step_effects::{ByteRegion, MemoryMap, Operation};
use pteron_core::{Error, Result, ValueId};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Comparisons of places after which arguments count as written: a file with so many has no right to more time.
const MOST_COMPARISONS: usize = 1 << 24;

/// What the steps of a method tell about the arguments of its delegate calls.
pub(crate) struct StatedOutputs<'a> {
    code: &'a MethodCode,
    map: &'a MemoryMap<'a>,
    /// The first step, of those that every later one comes after, that writes a value; delegates left out.
    written_at: HashMap<ValueId, usize>,
    /// Bytes that a step writes, and the step.
    writes: Vec<(usize, ByteRegion)>,
    /// Bytes that hold something when a run begins.
    filled: Vec<ByteRegion>,
}

impl<'a> StatedOutputs<'a> {
    /// `num_outputs`: what each delegate states.
    pub fn new(code: &'a MethodCode, map: &'a MemoryMap<'a>, num_outputs: &dyn Fn(u32) -> usize) -> Self {
        let mut out = StatedOutputs { code, map, written_at: HashMap::new(), writes: vec![], filled: vec![] };
        // The furthest step that a jump from before leads to.
        let mut reached = 0;
        for (at, step) in code.steps.iter().enumerate() {
            out.add(at, step, num_outputs, reached <= at);
            if let Action::JumpFalse { target, .. } = &step.action {
                reached = reached.max(*target as usize);
            }
        }
        let has_contents = |id: &ValueId| code.ir.inputs.contains(id) || has_initial(code, *id);
        let ids = (0..).map(ValueId).take(code.ir.values.len());
        out.filled = ids.filter(has_contents).filter_map(|id| ByteRegion::of(&code.ir, id)).collect();
        out
    }

    fn add(&mut self, at: usize, step: &Step, num_outputs: &dyn Fn(u32) -> usize, is_always_run: bool) {
        let ir = &self.code.ir;
        let operation = match &step.action {
            Action::Delegate { delegate } => {
                Operation::Delegate { outputs: Some(num_outputs(*delegate)), args: &step.args }
            }
            _ => step.operation(),
        };
        let pointed = operation.link(ir).map(|(_, to)| to);
        let written: Vec<ValueId> = operation.accesses(ir).writes.iter().map(|w| w.value).collect();
        if is_always_run && !matches!(step.action, Action::Delegate { .. }) {
            for value in written.iter().copied().chain(pointed) {
                self.written_at.entry(value).or_insert(at);
            }
        }
        let places = written.iter().filter_map(|value| self.map.places(*value)).flatten();
        self.writes.extend(places.map(|place| (at, *place)));
    }

    /// Checks what delegate number `delegate` states against step `at`, which calls it.
    ///
    /// # Errors
    /// `ErrorKind::Program` when the file says otherwise.
    pub fn check(&self, at: usize, step: &Step, delegate: u32, stated: usize) -> Result<()> {
        let possible = self.possible(at, step, delegate);
        if possible.contains(&stated) {
            return Ok(());
        }
        let (least, most) = (possible.start(), possible.end());
        Err(Error::program("a delegate states another number of outputs than its call in the file has")
            .expected(if least == most { format!("{least}") } else { format!("{least} to {most}") })
            .got(stated.to_string())
            .hint(
                "num_outputs counts the last arguments of the call; where it is right, the file was made for \
                 another version of the backend",
            ))
    }

    fn possible(&self, at: usize, step: &Step, delegate: u32) -> RangeInclusive<usize> {
        let stated = self.code.delegate_outputs.iter().find(|(index, _)| *index == delegate as usize);
        if let Some((_, count)) = stated {
            return *count..=*count;
        }
        let count = |first: usize| step.args.len().saturating_sub(first);
        let inputs = step
            .args
            .iter()
            .rposition(|id| self.is_certain_input(at, *id))
            .map_or(0, |i| i.saturating_add(1));
        let outputs = step.args.iter().position(|id| self.is_certain_output(at, *id));
        let most = count(inputs);
        // Where both are certain and contradict each other, the call itself is odd, and nothing is claimed.
        let least = outputs.map_or(0, count);
        if least <= most { least..=most } else { 0..=step.args.len() }
    }

    /// Does `id` hold something whenever step `at` comes, without the delegate's doing?
    fn is_certain_input(&self, at: usize, id: ValueId) -> bool {
        // First contents are no proof: an update may be written over them.
        self.code.ir.inputs.contains(&id)
            || (self.written_at.get(&id).is_some_and(|first| *first < at) && !has_initial(self.code, id))
    }

    /// Does nothing but step `at` ever write the bytes of `id`?
    fn is_certain_output(&self, at: usize, id: ValueId) -> bool {
        let Some(tensor) = self.code.ir.tensor(id) else { return false };
        let is_stored = matches!(tensor.placement, Placement::Constant(_));
        let is_empty = tensor.spec.nbytes().is_ok_and(|n| n == 0);
        if is_stored || is_empty || self.writes.len().saturating_mul(self.code.steps.len()) > MOST_COMPARISONS
        {
            return false;
        }
        let Some(places) = self.map.places(id) else { return false };
        let by_others = self.writes.iter().filter(|(step, _)| *step != at).map(|(_, place)| place);
        let mut written = by_others.chain(&self.filled);
        !written.any(|other| places.iter().any(|place| place.overlaps(other)))
    }
}

fn has_initial(code: &MethodCode, id: ValueId) -> bool {
    code.ir.tensor(id).is_some_and(|t| matches!(t.placement, Placement::Planned { initial: Some(_), .. }))
}
