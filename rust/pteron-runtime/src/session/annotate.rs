//! Says where a run failed: method, instruction, operator, the arguments with dtype and shape, and the
//! line of the model that the instruction came from.

use crate::load::expand::delegate_place;
use crate::load::method_code::MethodCode;
use crate::load::step::{Action, Step};
use pteron_core::error::printable;
use pteron_core::{Error, ErrorKind, Value, ValueId};

/// Most arguments that a message lists.
const MOST_ARGUMENTS: usize = 16;

/// Most characters of the name of one of them.
const LONGEST_NAME: usize = 40;

/// Adds the place of `step` to an error.
#[cold]
pub(crate) fn step_error(code: &MethodCode, step: &Step, values: &[Value], error: Error) -> Error {
    let kind = error.kind();
    let mut error = match &step.action {
        Action::Kernel(k) => {
            let names = k.schema.args.iter().map(|a| Some(a.name.as_str()));
            with_arguments(error, names, values, &step.args).operator(&*k.operator)
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
    let names = step.args.iter().map(|id| name_of(code, *id));
    with_arguments(error, names, values, &step.args)
}

/// What the program calls a value: the parameter or the result of the method that it is, or the model's tensor.
fn name_of(code: &MethodCode, id: ValueId) -> Option<&str> {
    let inputs = code.ir.inputs.iter().zip(code.inputs.iter());
    let outputs = code.ir.outputs.iter().zip(code.outputs.iter());
    let found = inputs.chain(outputs).find(|(of, _)| **of == id);
    match (found, code.ir.value(id)) {
        (Some((_, spec)), _) => Some(&spec.name),
        (None, Some(Value::Tensor(tensor))) => tensor.name.as_deref(),
        _ => None,
    }
}

/// Puts the arguments behind the message, as many as there are names for.
fn with_arguments<'a>(
    error: Error,
    names: impl Iterator<Item = Option<&'a str>>,
    values: &[Value],
    args: &[ValueId],
) -> Error {
    let mut list: Vec<String> = args
        .iter()
        .zip(names)
        .take(MOST_ARGUMENTS)
        .map(|(id, name)| match name {
            Some(name) => format!("{} {}", shown(name), describe(values, *id)),
            None => describe(values, *id),
        })
        .collect();
    if args.len() > MOST_ARGUMENTS {
        list.push("...".into());
    }
    let message = format!("{} [arguments: {}]", error.detail().message, list.join(", "));
    error.with_message(message)
}

/// A name made fit for a list of many: the end of it, where modules' names go from large to small.
fn shown(name: &str) -> String {
    let name = printable(name);
    match name.char_indices().rev().nth(LONGEST_NAME - 1) {
        Some((at, _)) if at > 0 => format!("…{}", name.get(at..).unwrap_or_default()),
        _ => name,
    }
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

#[cfg(test)]
mod tests {
    use super::{LONGEST_NAME, shown};

    #[test]
    fn long_names_keep_their_end_and_evil_ones_are_escaped() {
        assert_eq!(shown("model.layer.weight"), "model.layer.weight");
        let longest = "w".repeat(LONGEST_NAME);
        assert_eq!(shown(&longest), longest);
        assert_eq!(shown(&format!("model.{longest}")), format!("…{longest}"));
        assert_eq!(shown("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(shown(&"\u{202e}".repeat(300)).chars().count(), LONGEST_NAME + 1);
    }
}
