//! Says where a run failed: method, instruction, operator, the arguments with dtype and shape, and the
//! line of the model that the instruction came from.

use crate::load::expand::delegate_place;
use crate::load::method_code::MethodCode;
use crate::load::step::{Action, Step};
use pteron_core::error::printable;
use pteron_core::{Error, ErrorKind, Value, ValueId};

/// Most arguments that a message lists.
const MOST_ARGUMENTS: usize = 16;

/// Adds the place of `step` to an error.
#[cold]
pub(crate) fn step_error(code: &MethodCode, step: &Step, values: &[Value], error: Error) -> Error {
    let kind = error.kind();
    let mut error = match &step.action {
        Action::Kernel(k) => {
            let names: Vec<&str> = k.schema.args.iter().map(|a| a.name.as_str()).collect();
            with_arguments(error, &names, values, &step.args).operator(&*k.operator)
        }
        Action::Delegate { delegate } => delegate_error(code, *delegate, step, values, error),
        Action::Move { .. } | Action::JumpFalse { .. } | Action::Free => error,
    };
    error = error.method(code.ir.name.as_str()).instruction(code.instruction(step));
    if matches!(kind, ErrorKind::Cancelled | ErrorKind::DeadlineExceeded) {
        error = crate::session::cancel::explain(error);
    }
    if let Some(part) = step.covers.iter().find_map(|i| code.expanded.origins.of(*i).part) {
        error = error.debug_handle(i64::from(part.handle));
        error = delegate_place(error, &code.ir.delegates, code.data.debug(), &code.ir.name, part.delegate);
    }
    let debug = code.data.debug();
    let source = step
        .covers
        .iter()
        .flat_map(|i| debug.handles(&code.ir.name, code.expanded.origins.instruction(*i)))
        .find_map(|h| debug.source(&code.ir.name, h)?.source_line);
    match source {
        Some(line) => error.source_line(line),
        None => error,
    }
}

/// A delegate's handle is looked up in the delegate's own table.
fn delegate_error(code: &MethodCode, delegate: u32, step: &Step, values: &[Value], error: Error) -> Error {
    let error = match error.kind() {
        ErrorKind::Cancelled
        | ErrorKind::DeadlineExceeded
        | ErrorKind::LimitExceeded
        | ErrorKind::MethodBusy => error,
        _ => error.with_kind(ErrorKind::Delegate),
    };
    let error = delegate_place(error, &code.ir.delegates, code.data.debug(), &code.ir.name, delegate);
    with_arguments(error, &[], values, &step.args)
}

/// Puts the arguments behind the message.
fn with_arguments(error: Error, names: &[&str], values: &[Value], args: &[ValueId]) -> Error {
    let mut list: Vec<String> = args
        .iter()
        .take(MOST_ARGUMENTS)
        .take(if names.is_empty() { args.len() } else { names.len() })
        .enumerate()
        .map(|(i, id)| match names.get(i) {
            Some(name) => format!("{name} {}", describe(values, *id)),
            None => describe(values, *id),
        })
        .collect();
    if args.len() > MOST_ARGUMENTS {
        list.push("...".into());
    }
    let message = format!("{} [arguments: {}]", error.detail().message, list.join(", "));
    error.with_message(message)
}

/// One value: dtype and shape of a tensor, contents of a scalar.
fn describe(values: &[Value], id: ValueId) -> String {
    match values.get(id.index()) {
        None => "?".into(),
        Some(Value::None) => "None".into(),
        Some(Value::Int(v)) => v.to_string(),
        Some(Value::Bool(v)) => v.to_string(),
        Some(Value::Double(v)) => v.to_string(),
        Some(Value::String(s)) => format!("'{}'", printable(s)),
        Some(Value::Tensor(t)) => format!("{}{}", t.meta().dtype(), t.meta().shape()),
        Some(Value::DoubleList(l)) => shortened(l.iter().map(f64::to_string)),
        Some(Value::BoolList(l)) => shortened(l.iter().map(bool::to_string)),
        Some(list) => {
            shortened(list.members().positions().map(|v| v.map_or("None".into(), |v| describe(values, v))))
        }
    }
}

/// The first items of a list as text.
fn shortened(items: impl ExactSizeIterator<Item = String>) -> String {
    let count = items.len();
    let mut shown: Vec<String> = items.take(MOST_ARGUMENTS).collect();
    if count > MOST_ARGUMENTS {
        shown.push("...".into());
    }
    format!("[{}]", shown.join(", "))
}
