//! One method: arenas, values, delegates, operators, instructions, inputs and outputs.

use super::delegates::delegates;
use super::instructions::InstructionContext;
use super::place::{self, InPlace, index_below, required};
use super::segments::Segments;
use super::stored_data::StoredData;
use super::tensors::{TensorContext, check_device};
use super::values::values;
use crate::generated::wire;
use crate::{MethodDef, ValueDef};
use flatbuffers::Vector;
use pteron_core::memory_reserve::list_of;
use pteron_core::{Error, Result, ValueId, ValueKind};
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
            input_tree: place::tree(trees.as_ref().and_then(|t| t.encoded_inp_str()))?,
            output_tree: place::tree(trees.as_ref().and_then(|t| t.encoded_out_str()))?,
        })
    }
}

/// Sizes of planned memory. Entry 0 of the file's list stands for "not planned" and is dropped.
fn arenas(plan: &wire::ExecutionPlan<'_>) -> Result<Vec<usize>> {
    let sizes = required(plan.non_const_buffer_sizes(), "non_const_buffer_sizes")?;
    let mut out = list_of(sizes.len())?;
    for (id, size) in sizes.iter().enumerate().skip(1) {
        out.push(usize::try_from(size).ok().filter(|n| isize::try_from(*n).is_ok()).ok_or_else(|| {
            Error::program(format!("arena {id} has an impossible size"))
                .expected("a number of bytes that memory can hold")
                .got(size.to_string())
        })?);
    }
    for entry in plan.non_const_buffer_device().unwrap_or_default() {
        check_device(entry.device_type()).in_place(|| format!("arena {}", entry.buffer_idx()))?;
    }
    Ok(out)
}

/// Full names of the operators.
fn operators(plan: &wire::ExecutionPlan<'_>) -> Result<Vec<String>> {
    let table = plan.operators().unwrap_or_default();
    let mut out = list_of(table.len())?;
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
    let mut out = list_of(table.len())?;
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
