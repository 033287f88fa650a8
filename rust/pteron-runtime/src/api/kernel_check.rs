//! One call of an operator, checked as load checks it but outside any program: does some kernel take these
//! arguments? Exporters ask this before they write a file.

use crate::Runtime;
use crate::ir::{MethodIr, ValueIr};
use crate::load::call_check::{check_instructions, resolve_operators};
use crate::load::constants::Constants;
use crate::load::custom_operators::CustomOperators;
use crate::load::prepare::Preparer;
use pteron_core::{Error, Instruction, PackStore, Result, ValueId};
use std::collections::HashSet;

/// A call: values, which of them are its arguments, and which numbers are known only at run time.
pub struct CallToCheck {
    /// Full name of the operator, `aten::add.out`.
    pub operator: String,
    /// Values that the arguments and the lists among them refer to. Tensors need no memory.
    pub values: Vec<ValueIr>,
    /// Arguments, as an instruction has them: the schema's, then the return.
    pub args: Vec<ValueId>,
    /// Values whose contents vary from run to run.
    pub varying: HashSet<ValueId>,
}

/// Finds and prepares a kernel for `call`, and drops it again.
///
/// Errors are those of load: an operator without kernel, arguments of a wrong number or kind, element types
/// or shapes that no kernel takes, a value index outside `values`.
pub fn check_call(runtime: &Runtime, call: CallToCheck) -> Result<()> {
    let outside = |id: &ValueId| id.index() >= call.values.len();
    let has_strangers = |v: &ValueIr| v.members().iter().any(|id| outside(&id));
    if call.args.iter().any(outside) || call.values.iter().any(has_strangers) {
        return Err(Error::program("a value index of a call is out of range")
            .expected(format!("less than {}", call.values.len())));
    }
    let ir = MethodIr {
        values: call.values,
        operators: vec![call.operator],
        instructions: vec![Instruction::Kernel { operator: 0, args: call.args.into() }],
        ..MethodIr::default()
    };
    let operators = resolve_operators(&ir, &*runtime.kernels()?, &CustomOperators::default())?;
    check_instructions(&ir, &operators)?;
    let preparer = Preparer {
        ir: &ir,
        constants: Constants::NONE,
        written: &call.varying,
        packs: &PackStore::new(),
        cpu: runtime.cpu(),
    };
    for (instruction, operator) in ir.instructions.iter().zip(operators.iter().flatten()) {
        if let Instruction::Kernel { args, .. } = instruction {
            preparer.call(operator, args)?;
        }
    }
    Ok(())
}
