//! Checks every instruction against the kernel table: operators exist, arguments have the right number
//! and kinds, nothing writes to a constant. After this, calls differ from their schemas no more.

use crate::ir::{MethodIr, Placement, ValueIr};
use crate::load::custom_operators::{CustomOperators, missing_kernels, schema_of_call};
use crate::load::kernel_registry::{KernelRegistry, OperatorKernels};
use pteron_core::{DType, Error, Instruction, Result, Schema, ValueId, ValueKind};
use std::sync::Arc;

/// An operator of a method, resolved.
#[derive(Clone)]
pub(crate) struct ResolvedOperator {
    pub kernels: Arc<OperatorKernels>,
    pub schema: Arc<Schema>,
}

/// Operators of a method by their index in its table; `None` for those that no instruction calls.
pub(crate) type ResolvedOperators = Vec<Option<ResolvedOperator>>;

/// Resolves the operators that instructions call; all that are missing are reported together. `custom`: what the file
/// says of operators that are not PyTorch's.
pub(crate) fn resolve_operators(
    ir: &MethodIr,
    registry: &KernelRegistry,
    custom: &CustomOperators<'_>,
) -> Result<ResolvedOperators> {
    let mut resolved: ResolvedOperators = vec![None; ir.operators.len()];
    let mut missing: Vec<(usize, &str)> = Vec::new();
    for (i, instruction) in ir.instructions.iter().enumerate() {
        let Instruction::Kernel { operator, args } = instruction else { continue };
        let Some(name) = ir.operators.get(*operator as usize) else { continue };
        let Some(slot) = resolved.get_mut(*operator as usize) else { continue };
        if slot.is_some() || missing.iter().any(|(_, m)| m == name) {
            continue;
        }
        match registry.get(name) {
            Some(kernels) => {
                let schema = match kernels.schema()? {
                    Some(schema) => schema,
                    None => Arc::new(
                        schema_of_call(ir, name, args)
                            .map_err(|e| e.method(ir.name.as_str()).instruction(i).operator(name.as_str()))?,
                    ),
                };
                *slot = Some(ResolvedOperator { kernels, schema });
            }
            None => missing.push((i, name)),
        }
    }
    match missing.is_empty() {
        true => Ok(resolved),
        false => Err(missing_kernels(&missing, custom).method(ir.name.as_str())),
    }
}

/// Checks all instructions of a method.
pub(crate) fn check_instructions(ir: &MethodIr, operators: &ResolvedOperators) -> Result<()> {
    for (i, instruction) in ir.instructions.iter().enumerate() {
        let at = |e: Error| e.method(ir.name.as_str()).instruction(i);
        match instruction {
            Instruction::Kernel { operator, args } => {
                if let Some(Some(op)) = operators.get(*operator as usize) {
                    check_call(ir, &op.schema, args).map_err(|e| at(e.operator(op.schema.name.as_str())))?;
                }
            }
            Instruction::Delegate { args, .. } => check_delegate_call(ir, args).map_err(at)?,
            Instruction::Move { from, to } => check_move(ir, *from, *to).map_err(at)?,
            Instruction::JumpFalse { condition, .. } => check_condition(ir, *condition).map_err(at)?,
            Instruction::Free { .. } => {}
        }
    }
    Ok(())
}

fn value(ir: &MethodIr, id: ValueId) -> Result<&ValueIr> {
    ir.value(id).ok_or_else(|| Error::internal("a checked value index is out of range"))
}

fn check_call(ir: &MethodIr, schema: &Schema, args: &[ValueId]) -> Result<()> {
    if args.len() != schema.instruction_arity() {
        return Err(Error::program("a call has the wrong number of arguments")
            .expected(format!("{} (the schema's, then its return)", schema.instruction_arity()))
            .got(args.len().to_string()));
    }
    for (arg, id) in schema.args.iter().zip(args) {
        let found = value(ir, *id)?;
        if !arg.kind.accepts(found.kind()) {
            return Err(Error::program("an argument of a call has the wrong kind")
                .argument(arg.name.as_str())
                .expected(arg.kind.name())
                .got(format!("{} (value {})", found.kind(), id.0)));
        }
        if arg.is_output {
            check_writable(ir, *id).map_err(|e| e.argument(arg.name.as_str()))?;
        }
    }
    let (Some(last), true) = (args.last(), args.len() > schema.args.len()) else { return Ok(()) };
    check_return(ir, schema, args, *last).map_err(|e| e.argument("return"))
}

/// The appended return: a scalar to overwrite, the output once more, or a list of all outputs.
fn check_return(ir: &MethodIr, schema: &Schema, args: &[ValueId], last: ValueId) -> Result<()> {
    let found = value(ir, last)?;
    let wrong = |expected: &str| {
        Error::program("the return of a call has the wrong kind").expected(expected).got(format!(
            "{} (value {})",
            found.kind(),
            last.0
        ))
    };
    if schema.has_scalar_return {
        return match found.kind() {
            ValueKind::Int | ValueKind::Bool | ValueKind::Double | ValueKind::None => Ok(()),
            _ => Err(wrong("a number")),
        };
    }
    // Kernels write their outputs; the return only names them again.
    let outputs: Vec<ValueId> =
        schema.outputs().filter_map(|i| args.get(i)).flat_map(|out| ir.leaves(*out)).collect();
    let is_list = found.kind() == ValueKind::TensorList;
    match found.kind() {
        ValueKind::TensorList => {}
        ValueKind::Tensor if schema.returns <= 1 => {}
        _ => return Err(wrong(if schema.returns > 1 { "Tensor[]" } else { "Tensor" })),
    }
    let returned: Vec<ValueId> = ir.leaves(last).collect();
    let names_outputs = if is_list || outputs.len() == 1 {
        returned == outputs
    } else {
        outputs.is_empty() || outputs.contains(&last)
    };
    match names_outputs {
        true => Ok(()),
        false => Err(Error::program("the return of a call is not its output")
            .expected(listed(&outputs))
            .got(listed(&returned))),
    }
}

/// `value 3`, or `values 3, 4`; a few of many.
fn listed(ids: &[ValueId]) -> String {
    const MOST: usize = 16;
    let numbers: Vec<String> = ids.iter().take(MOST).map(|id| id.0.to_string()).collect();
    let rest = if ids.len() > MOST { ", ..." } else { "" };
    format!("value{} {}{rest}", if ids.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

fn check_writable(ir: &MethodIr, id: ValueId) -> Result<()> {
    let is_constant =
        |id: &ValueId| ir.tensor(*id).is_some_and(|t| matches!(t.placement, Placement::Constant(_)));
    match ir.leaves(id).find(is_constant) {
        None => Ok(()),
        Some(v) => Err(Error::program("an instruction writes to a constant")
            .expected("planned memory or an output")
            .got(format!("value {}, a constant", v.0))),
    }
}

fn check_delegate_call(ir: &MethodIr, args: &[ValueId]) -> Result<()> {
    for (i, id) in args.iter().enumerate() {
        let kind = value(ir, *id)?.kind();
        if !is_single(kind) && kind != ValueKind::String {
            return Err(Error::program("an argument of a delegate call is a list")
                .argument(format!("{i}"))
                .expected("a tensor, number, str or None")
                .got(format!("{kind} (value {})", id.0)));
        }
    }
    Ok(())
}

fn is_single(kind: ValueKind) -> bool {
    is_scalar(kind) || kind == ValueKind::Tensor
}

fn is_scalar(kind: ValueKind) -> bool {
    matches!(kind, ValueKind::Int | ValueKind::Bool | ValueKind::Double | ValueKind::None)
}

fn check_move(ir: &MethodIr, from: ValueId, to: ValueId) -> Result<()> {
    let (source, target) = (value(ir, from)?, value(ir, to)?);
    let wrong = |what: &str, expected: String, got: String| {
        Err(Error::program(format!("a move changes the {what} of its target"))
            .argument("to")
            .expected(expected)
            .got(got))
    };
    match (source, target) {
        (ValueIr::Tensor(from), ValueIr::Tensor(into)) => {
            check_writable(ir, to).map_err(|e| e.argument("to"))?;
            let (a, b) = (&from.spec, &into.spec);
            if a.dtype != b.dtype {
                return wrong("dtype", b.dtype.to_string(), a.dtype.to_string());
            }
            if a.shape.len() != b.shape.len() {
                return wrong("rank", b.shape.len().to_string(), a.shape.len().to_string());
            }
            if a.dim_order != b.dim_order {
                return wrong("memory order", format!("{:?}", b.dim_order), format!("{:?}", a.dim_order));
            }
            if !b.is_dynamic() && (a.is_dynamic() || a.shape != b.shape) {
                return wrong("shape", b.shape.to_string(), a.shape.to_string());
            }
            Ok(())
        }
        (a, b) if is_scalar(a.kind()) && is_scalar(b.kind()) => Ok(()),
        (a, b) => wrong("kind", b.kind().to_string(), a.kind().to_string()),
    }
}

fn check_condition(ir: &MethodIr, condition: ValueId) -> Result<()> {
    match value(ir, condition)? {
        ValueIr::Bool(_) => Ok(()),
        ValueIr::Tensor(t) if t.spec.dtype == DType::Bool => Ok(()),
        ValueIr::Tensor(t) => Err(Error::program("the condition of a jump is not a bool")
            .argument("condition")
            .expected("bool or a bool tensor")
            .got(format!("a tensor of {}", t.spec.dtype))),
        other => Err(Error::program("the condition of a jump is not a bool")
            .argument("condition")
            .expected("bool or a bool tensor")
            .got(other.kind().to_string())),
    }
}
