//! The instructions of a method.

use super::place::{InPlace, index_below, required};
use crate::generated::wire;
use crate::{DelegateDef, ValueDef};
use flatbuffers::Vector;
use pteron_core::memory_reserve::try_with_capacity;
use pteron_core::{DType, Error, Instruction, Result, ValueId, ValueKind};

/// What instructions may refer to.
pub(super) struct InstructionContext<'a> {
    /// Values of the method.
    pub values: &'a [ValueDef],
    /// Its operators.
    pub operators: &'a [String],
    /// Its delegates.
    pub delegates: &'a [DelegateDef],
}

impl InstructionContext<'_> {
    /// Reads the only chain of `plan`.
    pub fn read(&self, plan: &wire::ExecutionPlan<'_>) -> Result<Vec<Instruction>> {
        let chains = required(plan.chains(), "chains")?;
        let mut chains_iter = chains.iter();
        let (Some(chain), None) = (chains_iter.next(), chains_iter.next()) else {
            return Err(Error::program("the method has an unexpected number of chains")
                .expected("exactly 1")
                .got(chains.len().to_string()));
        };
        let table = required(chain.instructions(), "instructions")?;
        let count = table.len();
        if i32::try_from(count).is_err() {
            return Err(Error::program("the chain is too long").got(count.to_string()));
        }
        let mut out = try_with_capacity(count)?;
        for (index, entry) in table.iter().enumerate() {
            out.push(self.instruction(&entry, count).map_err(|e| e.instruction(index))?);
        }
        Ok(out)
    }

    fn instruction(&self, entry: &wire::Instruction<'_>, count: usize) -> Result<Instruction> {
        use wire::InstructionArguments as Kind;
        match entry.instr_args_type() {
            Kind::KernelCall => {
                let call = required(entry.instr_args_as_kernel_call(), "instr_args")?;
                let operator = index_below(i64::from(call.op_index()), self.operators.len(), "operator")
                    .in_place(|| "kernel call")?;
                let args = self.args(required(call.args(), "args")?).map_err(|e| {
                    e.operator(self.operators.get(operator as usize).cloned().unwrap_or_default())
                })?;
                Ok(Instruction::Kernel { operator, args })
            }
            Kind::DelegateCall => {
                let call = required(entry.instr_args_as_delegate_call(), "instr_args")?;
                let delegate =
                    index_below(i64::from(call.delegate_index()), self.delegates.len(), "delegate")
                        .in_place(|| "delegate call")?;
                Ok(Instruction::Delegate { delegate, args: self.args(required(call.args(), "args")?)? })
            }
            Kind::MoveCall => self.move_call(&required(entry.instr_args_as_move_call(), "instr_args")?),
            Kind::JumpFalseCall => {
                self.jump(&required(entry.instr_args_as_jump_false_call(), "instr_args")?, count)
            }
            Kind::FreeCall => {
                let call = required(entry.instr_args_as_free_call(), "instr_args")?;
                let value = self.id(call.value_index()).in_place(|| "free")?;
                match self.kind(value) {
                    ValueKind::Tensor => Ok(Instruction::Free { value }),
                    other => Err(Error::program(format!("free of value {}, which has no memory", value.0))
                        .expected("Tensor")
                        .got(other.to_string())),
                }
            }
            Kind::NONE => Err(Error::program("the instruction has no kind")),
            other => Err(Error::program("unknown kind of instruction")
                .got(format!("code {}", other.0))
                .hint("the file may come from a newer exporter")),
        }
    }

    fn id(&self, index: i32) -> Result<ValueId> {
        index_below(i64::from(index), self.values.len(), "value").map(ValueId)
    }

    fn args(&self, table: Vector<'_, i32>) -> Result<Box<[ValueId]>> {
        let mut out = try_with_capacity(table.len())?;
        for (at, index) in table.iter().enumerate() {
            out.push(self.id(index).in_place(|| format!("argument {at}"))?);
        }
        Ok(out.into_boxed_slice())
    }

    fn kind(&self, id: ValueId) -> ValueKind {
        self.values.get(id.index()).map_or(ValueKind::None, ValueDef::kind)
    }

    /// A move changes what a value holds, never what kind of thing it is; kernels were chosen for that.
    fn move_call(&self, call: &wire::MoveCall<'_>) -> Result<Instruction> {
        let from = self.id(call.move_from()).in_place(|| "move, source")?;
        let to = self.id(call.move_to()).in_place(|| "move, target")?;
        let describe = |id: ValueId| match self.values.get(id.index()).and_then(ValueDef::as_tensor) {
            Some(t) => format!("Tensor of {} with {} dimensions", t.spec.dtype, t.spec.shape.len()),
            None => self.kind(id).to_string(),
        };
        let fits = match (self.values.get(from.index()), self.values.get(to.index())) {
            (Some(ValueDef::Tensor(a)), Some(ValueDef::Tensor(b))) => {
                a.spec.dtype == b.spec.dtype && a.spec.shape.len() == b.spec.shape.len()
            }
            (Some(a), Some(b)) => a.kind() == b.kind(),
            _ => false,
        };
        if !fits {
            return Err(Error::program(format!(
                "move of value {} into value {}, which differs",
                from.0, to.0
            ))
            .expected(describe(to))
            .got(describe(from)));
        }
        Ok(Instruction::Move { from, to })
    }

    fn jump(&self, call: &wire::JumpFalseCall<'_>, count: usize) -> Result<Instruction> {
        let condition = self.id(call.cond_value_index()).in_place(|| "jump, condition")?;
        let is_bool = match self.values.get(condition.index()) {
            Some(ValueDef::Bool(_)) => true,
            Some(ValueDef::Tensor(t)) => t.spec.dtype == DType::Bool,
            _ => false,
        };
        if !is_bool {
            let value = self.values.get(condition.index());
            let tensor = value.and_then(ValueDef::as_tensor).map(|t| format!("Tensor of {}", t.spec.dtype));
            return Err(Error::program(format!("value {} cannot be a condition", condition.0))
                .expected("a bool or a Tensor of bool")
                .got(tensor.unwrap_or_else(|| self.kind(condition).to_string())));
        }
        let destination = call.destination_instruction();
        match u32::try_from(destination) {
            Ok(d) if (d as usize) <= count => Ok(Instruction::JumpFalse { condition, destination: d }),
            _ => Err(Error::program("jump to an instruction that does not exist")
                .expected(format!("0 to {count}, where {count} ends the method"))
                .got(destination.to_string())),
        }
    }
}
