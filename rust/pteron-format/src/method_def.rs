//! Methods of a program as a file declares them, checked.

use crate::{StoredBytes, TensorDef};
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{CompileSpec, Device, Error, Instruction, Members, Result, Value, ValueId};
use std::ops::Range;

/// One method. Every index in it is in range: values of instructions, inputs and outputs, operators,
/// delegates, jump destinations (at most the length of `instructions`). `C` as in [`TensorDef`].
#[derive(Debug, Clone, PartialEq)]
pub struct MethodDef<C = StoredBytes> {
    /// Name, unique within the program.
    pub name: String,
    /// Value table.
    pub values: Vec<Value<TensorDef<C>>>,
    /// Values that callers set, in flat order: tensors, ints, bools, floats, strings, `None`.
    pub inputs: Vec<ValueId>,
    /// Values that callers get, in flat order; kinds as for inputs.
    pub outputs: Vec<ValueId>,
    /// Full operator names, `aten::add.out`.
    pub operators: Vec<String>,
    /// Delegates.
    pub delegates: Vec<DelegateDef>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
    /// Bytes of each arena of planned memory.
    pub arenas: Vec<usize>,
    /// The arenas that are not in the CPU's memory, each once, in order of their index into `arenas`.
    pub arena_devices: Vec<(u32, Device)>,
    /// How nested inputs flatten: a pytree spec in JSON, or empty.
    pub input_tree: String,
    /// How outputs unflatten: a pytree spec in JSON, or empty.
    pub output_tree: String,
}

/// A part of a method that a backend took.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegateDef {
    /// Name of the backend.
    pub backend: String,
    /// The backend's blob: a byte range of the file. Equal ranges are the same blob.
    pub blob: Range<usize>,
    /// Settings of the exporter, in order.
    pub specs: Vec<CompileSpec>,
}

impl<C> Default for MethodDef<C> {
    fn default() -> Self {
        MethodDef {
            name: String::new(),
            values: vec![],
            inputs: vec![],
            outputs: vec![],
            operators: vec![],
            delegates: vec![],
            instructions: vec![],
            arenas: vec![],
            arena_devices: vec![],
            input_tree: String::new(),
            output_tree: String::new(),
        }
    }
}

impl<C> MethodDef<C> {
    /// The value `id`.
    pub fn value(&self, id: ValueId) -> Option<&Value<TensorDef<C>>> {
        self.values.get(id.index())
    }

    /// The tensor `id`, if it is one.
    pub fn tensor(&self, id: ValueId) -> Option<&TensorDef<C>> {
        self.value(id).and_then(Value::as_tensor)
    }

    /// The device whose memory an arena is.
    pub fn arena_device(&self, arena: u32) -> Device {
        let found = self.arena_devices.binary_search_by_key(&arena, |(at, _)| *at).ok();
        found.and_then(|at| self.arena_devices.get(at)).map_or(Device::Cpu, |(_, device)| *device)
    }

    /// The members of the list `id`; none where it is no list.
    pub fn members(&self, id: ValueId) -> Members<'_> {
        self.value(id).map_or(Members::All(&[]), Value::members)
    }

    /// What an argument `id` stands for: the members of a list, or the value itself.
    pub fn leaves(&self, id: ValueId) -> impl Iterator<Item = ValueId> + '_ {
        let list = self.value(id).and_then(Value::as_list);
        Some(id).filter(|_| list.is_none()).into_iter().chain(list.unwrap_or(Members::All(&[])).iter())
    }

    /// All tensors, with their values.
    pub fn tensors(&self) -> impl Iterator<Item = (ValueId, &TensorDef<C>)> {
        (0..).map(ValueId).zip(&self.values).filter_map(|(id, value)| Some((id, value.as_tensor()?)))
    }

    /// The same method with what `stored` makes of the places of stored bytes.
    ///
    /// # Errors
    /// Those of `stored`; memory that cannot be had.
    pub fn try_map<D>(&self, mut stored: impl FnMut(&C) -> Result<D, Error>) -> Result<MethodDef<D>> {
        let mut values = try_with_capacity(self.values.len())?;
        for value in &self.values {
            values.push(value.try_map(|tensor| tensor.try_map(&mut stored))?);
        }
        Ok(MethodDef {
            name: self.name.clone(),
            values,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            operators: self.operators.clone(),
            delegates: self.delegates.clone(),
            instructions: self.instructions.clone(),
            arenas: self.arenas.clone(),
            arena_devices: self.arena_devices.clone(),
            input_tree: self.input_tree.clone(),
            output_tree: self.output_tree.clone(),
        })
    }
}
