//! One method: arenas, values, delegates, operators, instructions, inputs and outputs.

use super::delegates::delegates;
use super::instructions::InstructionContext;
use super::place::{self, InPlace, index_below, required};
use super::segments::Segments;
use super::stored_data::StoredData;
use super::tensors::{TensorContext, device};
use super::values::values;
use crate::generated::wire;
use crate::{MethodDef, ValueDef};
use flatbuffers::Vector;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{Device, Error, Result, ValueId, ValueKind};
use std::ops::Range;

/// What the program shares between methods.
pub(super) struct MethodContext<'a> {
    /// Constants.
    pub constants: &'a StoredData,
    /// First contents of mutable buffers.
    pub initial: &'a StoredData,
    /// Segments.
    pub segments: &'a Segments,
    /// Places of blobs inside the program table.
    pub inline_blobs: &'a [Range<usize>],
}

impl MethodContext<'_> {
    /// Reads and checks `plan`; errors carry the method's name.
    pub fn read(&self, plan: &wire::ExecutionPlan<'_>) -> Result<MethodDef> {
        let name = required(plan.name(), "name").in_place(|| "a method")?;
        self.body(plan, name).map_err(|e| e.method(name))
    }

    fn body(&self, plan: &wire::ExecutionPlan<'_>, name: &str) -> Result<MethodDef> {
        let arenas = arenas(plan)?;
        let arena_devices = arena_devices(plan, arenas.len())?;
        let context = TensorContext { constants: self.constants, initial: self.initial, arenas: &arenas };
        let values = values(required(plan.values(), "values")?, &context)?;
        let delegates = delegates(plan, self.inline_blobs, self.segments)?;
        let operators = operators(plan)?;
        let context = InstructionContext { values: &values, operators: &operators, delegates: &delegates };
        let instructions = context.read(plan)?;
        let inputs = borders(required(plan.inputs(), "inputs")?, &values, "input")?;
        let outputs = borders(required(plan.outputs(), "outputs")?, &values, "output")?;
        let trees = plan.container_meta_type();
        Ok(MethodDef {
            name: place::name(name)?,
            values,
            inputs,
            outputs,
            operators,
            delegates,
            instructions,
            arenas,
            arena_devices,
            input_tree: place::tree(trees.as_ref().and_then(|t| t.encoded_inp_str()))?,
            output_tree: place::tree(trees.as_ref().and_then(|t| t.encoded_out_str()))?,
        })
    }
}

/// Sizes of planned memory. Entry 0 of the file's list stands for "not planned" and is dropped.
fn arenas(plan: &wire::ExecutionPlan<'_>) -> Result<Vec<usize>> {
    let sizes = required(plan.non_const_buffer_sizes(), "non_const_buffer_sizes")?;
    let mut out = try_with_capacity(sizes.len())?;
    for (id, size) in sizes.iter().enumerate().skip(1) {
        out.push(usize::try_from(size).ok().filter(|n| isize::try_from(*n).is_ok()).ok_or_else(|| {
            Error::program(format!("arena {id} has an impossible size"))
                .expected("a number of bytes that memory can hold")
                .got(size.to_string())
        })?);
    }
    Ok(out)
}

/// The arenas, of `count`, that are not in the CPU's memory, in order.
fn arena_devices(plan: &wire::ExecutionPlan<'_>, count: usize) -> Result<Vec<(u32, Device)>> {
    let table = plan.non_const_buffer_device().unwrap_or_default();
    let mut out = try_with_capacity(table.len())?;
    for (at, entry) in table.iter().enumerate() {
        let id = entry.buffer_idx();
        let place = || format!("entry {at} of non_const_buffer_device");
        let device = device(entry.device_type(), entry.device_index()).in_place(place)?;
        // Entry 0 of the sizes stands for "not planned", and every writer counts it.
        if id == 0 && device.is_cpu() {
            continue;
        }
        let arena = u32::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let Some(arena) = arena.filter(|a| (*a as usize) < count) else {
            return Err(Error::program("there is no such arena")
                .expected(match count {
                    0 => "no entry, because there is no arena".to_owned(),
                    _ => format!("a buffer_idx from 1 to {count}"),
                })
                .got(id.to_string()))
            .in_place(place);
        };
        out.push((arena, device));
    }
    out.sort_unstable();
    let again = out.windows(2).find_map(|pair| match pair {
        [(one, _), (other, _)] if one == other => Some(*one),
        _ => None,
    });
    if let Some(arena) = again {
        return Err(Error::program("an arena has several entries in non_const_buffer_device")
            .expected("one entry for each arena")
            .got(format!("buffer_idx {} again", u64::from(arena).saturating_add(1))));
    }
    out.retain(|(_, device)| !device.is_cpu());
    Ok(out)
}

/// Full names of the operators.
fn operators(plan: &wire::ExecutionPlan<'_>) -> Result<Vec<String>> {
    let table = plan.operators().unwrap_or_default();
    let mut out = try_with_capacity(table.len())?;
    for (index, entry) in table.iter().enumerate() {
        let name = required(entry.name(), "name").in_place(|| format!("operator {index}"))?;
        out.push(match entry.overload().unwrap_or_default() {
            "" => place::name(name)?,
            overload => format!("{}.{}", place::name(name)?, place::name(overload)?),
        });
    }
    Ok(out)
}

/// Inputs or outputs: values that a caller can give or take. Lists cannot be; exporters flatten them.
fn borders(table: Vector<'_, i32>, values: &[ValueDef], what: &str) -> Result<Vec<ValueId>> {
    let mut out = try_with_capacity(table.len())?;
    for (at, index) in table.iter().enumerate() {
        let id = index_below(i64::from(index), values.len(), "value")
            .in_place(|| format!("{what} {at}"))
            .map(ValueId)?;
        match values.get(id.index()).map(ValueDef::kind) {
            Some(
                kind @ (ValueKind::IntList
                | ValueKind::DoubleList
                | ValueKind::BoolList
                | ValueKind::TensorList
                | ValueKind::OptionalTensorList),
            ) => {
                return Err(Error::program(format!("{what} {at} is a list"))
                    .expected("a tensor, number, string or None")
                    .got(format!("value {} of kind {kind}", id.0)));
            }
            _ => out.push(id),
        }
    }
    Ok(out)
}
