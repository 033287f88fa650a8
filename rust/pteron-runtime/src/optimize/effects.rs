//! What each instruction reads and writes, and where in memory values live.

use super::{Chain, Loader};
use crate::ir::{MethodIr, Placement, ValueIr};
use crate::step_effects::places::{Places, spread};
use crate::step_effects::{Accesses, ByteRegion, Operation, Space, written_scalars};
use pteron_core::{Instruction, ValueId};
use pteron_cpu::graph::ET_VIEW;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Where a value's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// Never written: constants, strings, lists.
    Constant,
    /// These bytes, always.
    At(ByteRegion),
    /// One of several places, decided while running (moves); an index into [`Effects::places`].
    Among(u32),
    /// Decided while running: could be anywhere.
    Unknown,
}

/// Accesses of all instructions and locations of all values.
pub(super) struct Effects {
    pub steps: Vec<Accesses>,
    pub locations: Vec<Location>,
    /// What `Location::Among` stands for; bytes that are never written are left out.
    pub places: Vec<Vec<ByteRegion>>,
    /// Scalars that callers or instructions write.
    written: HashSet<ValueId>,
}

impl Effects {
    pub fn new(ir: &MethodIr, chain: &Chain, loader: &dyn Loader) -> Self {
        let operations: Vec<Option<Operation<'_>>> =
            chain.iter().map(|i| i.as_ref().map(|i| operation(ir, i, loader))).collect();
        let steps: Vec<Accesses> =
            operations.iter().map(|o| o.map(|o| o.accesses(ir)).unwrap_or_default()).collect();
        let mut locations = locate(ir, chain, &steps);
        let places = moved_places(ir, &operations, &mut locations);
        let written = written_scalars(ir, operations.iter().flatten().copied());
        Effects { steps, locations, places, written }
    }

    pub fn location(&self, value: ValueId) -> Location {
        self.locations.get(value.index()).copied().unwrap_or(Location::Unknown)
    }

    /// The places of a location that is decided while running, where there are not too many.
    pub fn among(&self, location: Location) -> Option<&[ByteRegion]> {
        match location {
            Location::Among(index) => self.places.get(index as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    pub fn step(&self, index: usize) -> &Accesses {
        static NOTHING: Accesses = Accesses { reads: Vec::new(), writes: Vec::new() };
        self.steps.get(index).unwrap_or(&NOTHING)
    }

    /// Does something in the program, or the caller, write the scalar `value`?
    pub fn is_written(&self, value: ValueId) -> bool {
        self.written.contains(&value)
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

fn operation<'a>(ir: &MethodIr, instruction: &'a Instruction, loader: &'a dyn Loader) -> Operation<'a> {
    let Instruction::Kernel { operator, .. } = instruction else {
        return Operation::of(instruction, None, false);
    };
    // An operator without schema is unknown: the loader reports it.
    let name = ir.operators.get(*operator as usize);
    Operation::of(instruction, name.and_then(|name| loader.schema(name)), name.is_some_and(|n| n == ET_VIEW))
}

/// Locations: planned values where the plan says, scalars in themselves, `et_view` results where
/// their base is, targets of moves unknown.
fn locate(ir: &MethodIr, chain: &Chain, effects: &[Accesses]) -> Vec<Location> {
    let ids = (0..).map(ValueId).take(ir.values.len());
    let mut locations: Vec<Location> = ids.map(|id| own_location(ir, id)).collect();
    let mut first_access: HashMap<ValueId, usize> = HashMap::new();
    let mut view_definitions: HashMap<ValueId, u32> = HashMap::new();
    let mut overwritten: HashSet<ValueId> = HashSet::new();
    for (i, (instruction, e)) in chain.iter().zip(effects).enumerate() {
        for a in e.reads.iter().chain(&e.writes) {
            first_access.entry(a.value).or_insert(i);
        }
        if let Some((ET_VIEW, &[_, _, out, ..])) = kernel_call(ir, instruction) {
            first_access.entry(out).or_insert(i);
            let count = view_definitions.entry(out).or_default();
            *count = count.saturating_add(1);
        } else {
            overwritten.extend(e.writes.iter().map(|a| a.value));
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
            // Who writes to the view writes to what it was pointed at: the view has to stay an instruction.
            let is_overwritten = overwritten.contains(&out);
            let location = if is_used_before || is_boundary || is_overwritten {
                Location::Unknown
            } else {
                locations.get(base.index()).copied().unwrap_or(Location::Unknown)
            };
            set(&mut locations, out, location);
        }
    }
    locations
}

/// All places of the tensors that moves and views point somewhere while running: their own and those of
/// every value that they may take over, as far as these can be listed.
fn moved_places(
    ir: &MethodIr,
    operations: &[Option<Operation<'_>>],
    locations: &mut [Location],
) -> Vec<Vec<ByteRegion>> {
    let links: Vec<(ValueId, ValueId)> = operations
        .iter()
        .flatten()
        .filter_map(|operation| operation.link(ir))
        .filter(|(_, to)| locations.get(to.index()) == Some(&Location::Unknown))
        .collect();
    if links.is_empty() {
        return Vec::new();
    }
    let ids = (0..).map(ValueId);
    let mut places: Vec<Places> = ids
        .zip(&*locations)
        .map(|(id, location)| match location {
            Location::At(region) => Some(SmallVec::from_slice(&[*region])),
            Location::Constant => Some(ByteRegion::of(ir, id).into_iter().collect()),
            Location::Among(_) | Location::Unknown => None,
        })
        .collect();
    for (_, to) in &links {
        if let Some(slot) = places.get_mut(to.index()) {
            *slot = ByteRegion::of(ir, *to).map(|own| SmallVec::from_slice(&[own]));
        }
    }
    spread(ir, &mut places, &links);
    let mut listed: Vec<Vec<ByteRegion>> = Vec::new();
    for (_, to) in &links {
        if locations.get(to.index()) == Some(&Location::Unknown)
            && let Some(Some(regions)) = places.get(to.index())
        {
            set(locations, *to, Location::Among(u32::try_from(listed.len()).unwrap_or(u32::MAX)));
            let written = regions.iter().filter(|region| region.space != Space::Constant);
            listed.push(written.map(|region| region.at_least_a_byte()).collect());
        }
    }
    listed
}

fn set(locations: &mut [Location], value: ValueId, location: Location) {
    if let Some(slot) = locations.get_mut(value.index()) {
        *slot = location;
    }
}

/// `unknown` for tensors; scalars stay in their own space wherever they are moved from.
fn tensor_or(ir: &MethodIr, value: ValueId, unknown: Location) -> Location {
    match ir.value(value) {
        Some(ValueIr::Tensor(_)) | None => unknown,
        Some(_) => own_location(ir, value),
    }
}

fn own_location(ir: &MethodIr, id: ValueId) -> Location {
    let of_its_own = ByteRegion { space: Space::Value(id.0), start: 0, end: 1 };
    match ir.value(id) {
        Some(ValueIr::Tensor(t)) => match (&t.placement, ByteRegion::of(ir, id)) {
            (Placement::Constant(_), _) => Location::Constant,
            (_, Some(region)) => Location::At(region.at_least_a_byte()),
            (_, None) => Location::Unknown,
        },
        Some(ValueIr::Int(_) | ValueIr::Bool(_) | ValueIr::Double(_) | ValueIr::None) => {
            Location::At(of_its_own)
        }
        // Strings and lists.
        Some(_) => Location::Constant,
        None => Location::Unknown,
    }
}
