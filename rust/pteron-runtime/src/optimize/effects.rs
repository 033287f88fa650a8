//! What each instruction reads and writes, and where in memory values live.

use super::{Chain, Loader};
use crate::ir::{MethodIr, Placement, ValueIr};
use pteron_core::{Instruction, ValueId};
use std::collections::HashMap;

/// An operator that only points its output at its input's bytes.
pub(super) const ET_VIEW: &str = "executorch_prim::et_view.default";

/// A memory that regions are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Space {
    /// An arena of the plan.
    Arena(u32),
    /// The caller's memory for one unplanned value, or the content of a scalar value.
    Value(u32),
}

/// A byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub space: Space,
    pub start: usize,
    pub end: usize,
}

/// Where a value's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// Never written: constants, strings, lists.
    Constant,
    /// These bytes, always.
    At(Region),
    /// One of several places, decided while running (moves); an index into [`Effects::places`].
    Among(u32),
    /// Decided while running: could be anywhere.
    Unknown,
}

/// One argument that an instruction reads or writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub value: ValueId,
    /// Position in its arguments; `u32::MAX` for an element of a list argument.
    pub position: u32,
}

/// Accesses of one instruction.
#[derive(Debug, Clone, Default)]
pub(super) struct StepEffects {
    pub reads: Vec<Access>,
    pub writes: Vec<Access>,
}

/// Accesses of all instructions and locations of all values.
pub(super) struct Effects {
    pub steps: Vec<StepEffects>,
    pub locations: Vec<Location>,
    /// What `Location::Among` stands for; bytes that are never written are left out.
    pub places: Vec<Vec<Region>>,
}

impl Effects {
    pub fn new(ir: &MethodIr, chain: &Chain, loader: &dyn Loader) -> Self {
        let effect =
            |i: &Option<Instruction>| i.as_ref().map(|i| step_effects(ir, i, loader)).unwrap_or_default();
        let effects: Vec<StepEffects> = chain.iter().map(effect).collect();
        let mut locations = locate(ir, chain, &effects);
        let places = moved_places(ir, chain, &mut locations);
        Effects { steps: effects, locations, places }
    }

    pub fn location(&self, value: ValueId) -> Location {
        self.locations.get(value.index()).copied().unwrap_or(Location::Unknown)
    }

    /// The places of a location that is decided while running, where there are not too many.
    pub fn among(&self, location: Location) -> Option<&[Region]> {
        match location {
            Location::Among(index) => self.places.get(index as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    pub fn step(&self, index: usize) -> &StepEffects {
        static NOTHING: StepEffects = StepEffects { reads: Vec::new(), writes: Vec::new() };
        self.steps.get(index).unwrap_or(&NOTHING)
    }
}

/// The kernel call that an instruction is, if it is one: operator and arguments.
pub(super) fn kernel_call<'a>(
    ir: &'a MethodIr,
    instruction: &'a Option<Instruction>,
) -> Option<(&'a str, &'a [ValueId])> {
    match instruction {
        Some(Instruction::Kernel { operator, args }) => Some((ir.operators.get(*operator as usize)?, args)),
        _ => None,
    }
}

fn expand(ir: &MethodIr, value: ValueId, position: u32, out: &mut Vec<Access>) {
    match ir.value(value).and_then(ValueIr::as_list) {
        Some(list) => out.extend(list.iter().map(|value| Access { value, position: u32::MAX })),
        None => out.push(Access { value, position }),
    }
}

fn step_effects(ir: &MethodIr, instruction: &Instruction, loader: &dyn Loader) -> StepEffects {
    let mut e = StepEffects::default();
    let at = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
    match instruction {
        Instruction::Kernel { operator, args } => {
            let name = ir.operators.get(*operator as usize);
            if name.is_some_and(|n| n == ET_VIEW) {
                // Points its output at its input; no byte is written.
                for (i, v) in args.iter().take(2).enumerate() {
                    expand(ir, *v, at(i), &mut e.reads);
                }
                return e;
            }
            let schema = name.and_then(|name| loader.schema(name));
            for (i, v) in args.iter().enumerate() {
                let Some(schema) = schema else {
                    // Unknown operator: the loader reports it; assume the worst meanwhile.
                    expand(ir, *v, at(i), &mut e.reads);
                    expand(ir, *v, at(i), &mut e.writes);
                    continue;
                };
                match schema.args.get(i) {
                    Some(a) if a.is_output => {
                        expand(ir, *v, at(i), &mut e.writes);
                        // An output in front of the inputs is `self` of an in-place operator.
                        if i == 0 {
                            expand(ir, *v, at(i), &mut e.reads);
                        }
                    }
                    Some(_) => expand(ir, *v, at(i), &mut e.reads),
                    // The appended return: the same value again, or a scalar result.
                    None => expand(ir, *v, at(i), &mut e.writes),
                }
            }
        }
        Instruction::Delegate { args, .. } => {
            // The split into inputs and outputs is known only after init.
            for (i, v) in args.iter().enumerate() {
                expand(ir, *v, at(i), &mut e.reads);
                expand(ir, *v, at(i), &mut e.writes);
            }
        }
        Instruction::Move { from, to } => {
            expand(ir, *from, 0, &mut e.reads);
            // A tensor is pointed elsewhere; no byte is written.
            if ir.tensor(*to).is_none() {
                e.writes.push(Access { value: *to, position: 1 });
            }
        }
        Instruction::JumpFalse { condition, .. } => expand(ir, *condition, 0, &mut e.reads),
        // Memory of a plan is never given back: nothing happens.
        Instruction::Free { .. } => {}
    }
    e
}

/// Locations: planned values where the plan says, scalars in themselves, `et_view` results where
/// their base is, targets of moves unknown.
fn locate(ir: &MethodIr, chain: &Chain, effects: &[StepEffects]) -> Vec<Location> {
    let mut locations: Vec<Location> =
        ir.values.iter().enumerate().map(|(i, v)| own_location(i, v)).collect();
    let mut first_access: HashMap<ValueId, usize> = HashMap::new();
    let mut view_definitions: HashMap<ValueId, u32> = HashMap::new();
    for (i, (instruction, e)) in chain.iter().zip(effects).enumerate() {
        for a in e.reads.iter().chain(&e.writes) {
            first_access.entry(a.value).or_insert(i);
        }
        if let Some((ET_VIEW, &[_, _, out, ..])) = kernel_call(ir, instruction) {
            first_access.entry(out).or_insert(i);
            let count = view_definitions.entry(out).or_default();
            *count = count.saturating_add(1);
        }
        if let Some(Instruction::Move { to, .. }) = instruction {
            view_definitions.insert(*to, 2);
        }
    }
    for (value, definitions) in &view_definitions {
        if *definitions > 1 {
            set(&mut locations, *value, tensor_or(ir, *value, Location::Unknown));
        }
    }
    for (i, instruction) in chain.iter().enumerate() {
        if let Some((ET_VIEW, &[base, _, out, ..])) = kernel_call(ir, instruction)
            && view_definitions.get(&out) == Some(&1)
        {
            let is_used_before = first_access.get(&out).is_some_and(|first| *first < i);
            let is_boundary = ir.inputs.contains(&out);
            let location = if is_used_before || is_boundary {
                Location::Unknown
            } else {
                locations.get(base.index()).copied().unwrap_or(Location::Unknown)
            };
            set(&mut locations, out, location);
        }
    }
    locations
}

/// Values of more places than this could be anywhere.
const MOST_PLACES: usize = 8;

/// All places of the tensors that moves and views point somewhere while running: their own and those of
/// every value that they may take over, as far as these can be listed.
fn moved_places(ir: &MethodIr, chain: &Chain, locations: &mut [Location]) -> Vec<Vec<Region>> {
    let links: Vec<(ValueId, ValueId)> = chain
        .iter()
        .filter_map(|instruction| match instruction {
            Some(Instruction::Move { from, to }) => Some((*from, *to)),
            _ => match kernel_call(ir, instruction) {
                Some((ET_VIEW, &[base, _, out, ..])) => Some((base, out)),
                _ => None,
            },
        })
        .filter(|(_, to)| locations.get(to.index()) == Some(&Location::Unknown) && ir.tensor(*to).is_some())
        .collect();
    if links.is_empty() {
        return Vec::new();
    }
    let mut places: HashMap<ValueId, Option<Vec<Region>>> = HashMap::new();
    for (_, to) in &links {
        let own = ir.values.get(to.index()).map(|v| own_location(to.index(), v));
        let own = match own {
            Some(Location::At(region)) => Some(vec![region]),
            Some(Location::Constant) => Some(vec![]),
            _ => None,
        };
        places.insert(*to, own);
    }
    // Every round adds places or gives a value up, so there is an end.
    loop {
        let mut is_changed = false;
        for (from, to) in &links {
            let source = match locations.get(from.index()) {
                Some(Location::At(region)) => Some(vec![*region]),
                Some(Location::Constant) => Some(vec![]),
                _ => places.get(from).cloned().flatten(),
            };
            let nbytes = ir.tensor(*to).and_then(|t| t.spec.nbytes().ok()).unwrap_or(usize::MAX).max(1);
            if let Some(target) = places.get_mut(to) {
                is_changed |= add_places(target, source, nbytes);
            }
        }
        if !is_changed {
            break;
        }
    }
    let mut listed = Vec::new();
    for (value, regions) in places {
        if let Some(regions) = regions {
            set(locations, value, Location::Among(u32::try_from(listed.len()).unwrap_or(u32::MAX)));
            listed.push(regions);
        }
    }
    listed
}

/// Adds what a value may take over to what it may be; true when that changed something.
fn add_places(target: &mut Option<Vec<Region>>, source: Option<Vec<Region>>, nbytes: usize) -> bool {
    let Some(known) = target else { return false };
    let Some(source) = source else {
        *target = None;
        return true;
    };
    let mut is_changed = false;
    for region in source {
        let seen = Region { end: region.start.saturating_add(nbytes).max(region.end), ..region };
        if !known.contains(&seen) {
            known.push(seen);
            is_changed = true;
        }
    }
    if known.len() > MOST_PLACES {
        *target = None;
    }
    is_changed
}

fn set(locations: &mut [Location], value: ValueId, location: Location) {
    if let Some(slot) = locations.get_mut(value.index()) {
        *slot = location;
    }
}

/// `unknown` for tensors; scalars stay in their own space wherever they are moved from.
fn tensor_or(ir: &MethodIr, value: ValueId, unknown: Location) -> Location {
    match ir.values.get(value.index()) {
        Some(ValueIr::Tensor(_)) | None => unknown,
        Some(v) => own_location(value.index(), v),
    }
}

fn own_location(index: usize, value: &ValueIr) -> Location {
    let own = |bytes: usize| {
        Location::At(Region {
            space: Space::Value(u32::try_from(index).unwrap_or(u32::MAX)),
            start: 0,
            end: bytes.max(1),
        })
    };
    match value {
        ValueIr::Tensor(t) => match &t.placement {
            Placement::Constant(_) => Location::Constant,
            Placement::Planned { arena, offset, .. } => match t.spec.nbytes() {
                Ok(n) => match offset.checked_add(n.max(1)) {
                    Some(end) => Location::At(Region { space: Space::Arena(*arena), start: *offset, end }),
                    None => Location::Unknown,
                },
                Err(_) => Location::Unknown,
            },
            Placement::Unplanned => own(t.spec.nbytes().unwrap_or(1)),
        },
        ValueIr::Int(_) | ValueIr::Bool(_) | ValueIr::Double(_) | ValueIr::None => own(1),
        ValueIr::String(_)
        | ValueIr::IntList(_)
        | ValueIr::DoubleList(_)
        | ValueIr::BoolList(_)
        | ValueIr::TensorList(_)
        | ValueIr::OptionalTensorList(_) => Location::Constant,
    }
}
