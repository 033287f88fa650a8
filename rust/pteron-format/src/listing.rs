//! The text form of a program: one line per tensor, delegate and instruction. Made for reading and for
//! comparing; it states no file offsets, so that a change of layout does not change it.

use crate::{MethodDef, Placement, ProgramFile, StoredBytes, TensorDef, ValueDef};
use pteron_core::error::printable;
use pteron_core::memory_reserve::{text_of, within_memory_limit};
use pteron_core::{Device, Instruction, Result, TensorSpec, ValueId};
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// The text form of `program`.
///
/// `%3` is value 3 and `%3=7` value 3 with its initial value; `constant 2` counts distinct constants
/// in order of first use; `float32[<=8, <=4]` is a tensor whose extents may shrink.
///
/// # Errors
/// `ErrorKind::LimitExceeded` when memory for it cannot be had.
pub fn listing(program: &ProgramFile) -> Result<String> {
    within_memory_limit(|| text_of(&Listing { program, constants: number_constants(program) }))
}

struct Listing<'a> {
    program: &'a ProgramFile,
    constants: HashMap<Range<usize>, usize>,
}

/// Numbers constants and initial data by first use. Distinct empty constants may share a place.
fn number_constants(program: &ProgramFile) -> HashMap<Range<usize>, usize> {
    let mut out = HashMap::new();
    for value in program.methods.iter().flat_map(|m| &m.values) {
        let Some(StoredBytes::InFile(range)) = value.as_tensor().and_then(TensorDef::stored) else {
            continue;
        };
        let next = out.len();
        out.entry(range.clone()).or_insert(next);
    }
    out
}

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let constant_bytes = self.constants.keys().fold(0usize, |n, r| n.saturating_add(r.len()));
        writeln!(f, "program: {} methods", self.program.methods.len())?;
        writeln!(f, "constants: {}, {constant_bytes} bytes", self.constants.len())?;
        for named in &self.program.named_data {
            writeln!(f, "named data '{}': {} bytes", printable(&named.key), named.range.len())?;
        }
        self.program.methods.iter().try_for_each(|m| self.method(f, m))
    }
}

impl Listing<'_> {
    fn method(&self, f: &mut Formatter<'_>, method: &MethodDef) -> fmt::Result {
        writeln!(f, "\nmethod {}", printable(&method.name))?;
        writeln!(f, "  inputs: {}", Refs { method, ids: &method.inputs })?;
        writeln!(f, "  outputs: {}", Refs { method, ids: &method.outputs })?;
        for (index, size) in method.arenas.iter().enumerate() {
            write!(f, "  arena {index}: {size} bytes")?;
            writeln!(
                f,
                "{}",
                OnDevice(u32::try_from(index).map_or(Device::Cpu, |i| method.arena_device(i)))
            )?;
        }
        for (index, delegate) in method.delegates.iter().enumerate() {
            write!(f, "  delegate {index}: {}, {} bytes", printable(&delegate.backend), delegate.blob.len())?;
            for spec in &delegate.specs {
                write!(f, ", {} ({} bytes)", printable(&spec.key), spec.value.len())?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  tensors")?;
        for (index, value) in method.values.iter().enumerate() {
            if let Some(tensor) = value.as_tensor() {
                self.tensor(f, index, tensor)?;
            }
        }
        writeln!(f, "  instructions")?;
        for (index, instruction) in method.instructions.iter().enumerate() {
            writeln!(f, "    {index}: {}", Line { method, instruction })?;
        }
        Ok(())
    }

    fn tensor(&self, f: &mut Formatter<'_>, index: usize, tensor: &TensorDef) -> fmt::Result {
        write!(f, "    %{index}: {}", SpecText(&tensor.spec))?;
        match &tensor.placement {
            Placement::Constant(_) => write!(f, ",")?,
            Placement::Unplanned => write!(f, ", unplanned")?,
            Placement::Planned { arena, offset, initial } => {
                let from = if initial.is_some() { " from" } else { "" };
                write!(f, ", arena {arena} at {offset}{from}")?;
            }
        }
        match tensor.stored() {
            Some(StoredBytes::InFile(range)) => {
                write!(f, " constant {}", self.constants.get(range).copied().unwrap_or_default())?;
            }
            Some(StoredBytes::External(name)) => write!(f, " external '{}'", printable(name))?,
            None => {}
        }
        write!(f, "{}", OnDevice(tensor.device))?;
        match &tensor.name {
            Some(name) => writeln!(f, ", '{}'", printable(name)),
            None => writeln!(f),
        }
    }
}

/// A device that is not the CPU, behind what is on it.
struct OnDevice(Device);

impl Display for OnDevice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_cpu() { Ok(()) } else { write!(f, " on {}", self.0) }
    }
}

/// A tensor's dtype, shape and memory order as text: `float32[<=8, 4] order [0, 2, 1]`.
pub struct SpecText<'a>(pub &'a TensorSpec);

impl Display for SpecText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let spec = self.0;
        let bound = if spec.is_dynamic() { "<=" } else { "" };
        write!(f, "{}[", spec.dtype)?;
        for (at, extent) in spec.shape.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{bound}{extent}")?;
        }
        write!(f, "]")?;
        if !spec.dim_order.is_contiguous() {
            write!(f, " order {:?}", spec.dim_order)?;
        }
        Ok(())
    }
}

/// Several values, separated by commas.
struct Refs<'a> {
    method: &'a MethodDef,
    ids: &'a [ValueId],
}

impl Display for Refs<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, id) in self.ids.iter().enumerate() {
            if at != 0 {
                write!(f, ", ")?;
            }
            write!(f, "{}", Ref { method: self.method, id: *id })?;
        }
        Ok(())
    }
}

/// One value, with what is known of it besides its number.
struct Ref<'a> {
    method: &'a MethodDef,
    id: ValueId,
}

impl Display for Ref<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let method = self.method;
        write!(f, "%{}", self.id.0)?;
        match method.values.get(self.id.index()) {
            None | Some(ValueDef::Tensor(_)) => Ok(()),
            Some(ValueDef::None) => write!(f, "=None"),
            Some(ValueDef::Int(v)) => write!(f, "={v}"),
            Some(ValueDef::Bool(v)) => write!(f, "={v}"),
            Some(ValueDef::Double(v)) => write!(f, "={v:?}"),
            Some(ValueDef::String(v)) => write!(f, "='{}'", printable(v)),
            Some(ValueDef::DoubleList(v)) => write!(f, "={v:?}"),
            Some(ValueDef::BoolList(v)) => write!(f, "={v:?}"),
            // Members are numbers and tensors, so this nests once.
            Some(list) => {
                write!(f, "=[")?;
                for (at, id) in list.members().positions().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    match id {
                        Some(id) => write!(f, "{comma}{}", Ref { method, id })?,
                        None => write!(f, "{comma}None")?,
                    }
                }
                write!(f, "]")
            }
        }
    }
}

/// One instruction.
struct Line<'a> {
    method: &'a MethodDef,
    instruction: &'a Instruction,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let method = self.method;
        let one = |id: &ValueId| Ref { method, id: *id };
        match self.instruction {
            Instruction::Kernel { operator, args } => {
                let name = method.operators.get(*operator as usize).map_or("", String::as_str);
                write!(f, "{}({})", printable(name), Refs { method, ids: args })
            }
            Instruction::Delegate { delegate, args } => {
                write!(f, "delegate {delegate}({})", Refs { method, ids: args })
            }
            Instruction::Move { from, to } => write!(f, "move %{} to %{}", from.0, to.0),
            Instruction::JumpFalse { condition, destination } => {
                write!(f, "jump to {destination} unless {}", one(condition))
            }
            Instruction::Free { value } => write!(f, "free {}", one(value)),
        }
    }
}
