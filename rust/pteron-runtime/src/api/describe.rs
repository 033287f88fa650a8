//! A program and its plans as data, for tools: JSON with the numbers that the text listings leave out.

use crate::ir::ConstantRef;
use crate::load::method_code::MethodCode;
use crate::load::step::{Action, Step};
use crate::step_effects::tensor_roles;
use pteron_core::{Instruction, Value as Argument, ValueId};
use pteron_format::{MethodDef, Placement, ProgramFile, StoredBytes, TensorDef};
use serde_json::{Value, json};

/// A JSON object, written field by field: values and calls of large files are never in memory as a tree.
struct Object(String);

impl Object {
    fn new() -> Self {
        Object(String::from("{"))
    }

    fn key(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&Value::from(name).to_string());
        self.0.push(':');
    }

    fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.key(name);
        self.0.push_str(&value.into().to_string());
        self
    }

    fn list<T: ToString>(mut self, name: &str, items: impl Iterator<Item = T>) -> Self {
        self.key(name);
        self.0.push('[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            self.0.push_str(&item.to_string());
        }
        self.0.push(']');
        self
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A program file: sizes in bytes, byte ranges of the file, every value and instruction of every method.
pub(crate) fn program(file: &ProgramFile) -> String {
    let named = file.named_data.iter().map(|n| json!({ "key": n.key, "nbytes": n.range.len() }));
    let stored = |bytes: &StoredBytes| match bytes {
        StoredBytes::InFile(range) => json!({ "range": [range.start, range.end] }),
        StoredBytes::External(name) => json!({ "external": name }),
    };
    Object::new()
        .field("program_bytes", file.program_size)
        .field("constant_bytes", file.constants.len())
        .list("segments", file.segments.iter().map(|s| json!([s.start, s.end])))
        .list("named_data", named)
        .list("methods", file.methods.iter().map(|m| method(m, &stored).end()))
        .end()
}

/// What load made of a method: its values and calls with delegates opened, and the steps with what they stand for.
pub(crate) fn plan(code: &MethodCode) -> String {
    let stored = |constant: &ConstantRef| match constant {
        ConstantRef::Stored(key) => json!({ "offset": key.offset, "nbytes": key.nbytes }),
        ConstantRef::Folded(index) => json!({ "folded": index }),
    };
    method(&code.ir, &stored)
        .list("steps", code.steps.iter().enumerate().map(|(at, one)| step(code, at, one)))
        .field("session_bytes", code.layout.nbytes)
        .end()
}

fn method<C>(def: &MethodDef<C>, stored: &dyn Fn(&C) -> Value) -> Object {
    let delegates = def.delegates.iter().map(|d| {
        let specs = d.specs.iter().map(|s| json!({ "key": s.key, "nbytes": s.value.len() }));
        json!({
            "backend": d.backend,
            "blob": [d.blob.start, d.blob.end],
            "specs": specs.collect::<Value>(),
        })
    });
    Object::new()
        .field("name", def.name.as_str())
        .list("inputs", def.inputs.iter().map(|id| id.0))
        .list("outputs", def.outputs.iter().map(|id| id.0))
        .list("arenas", def.arenas.iter())
        .list("delegates", delegates)
        .list("values", def.values.iter().map(|v| value(v, stored)))
        .list("calls", def.instructions.iter().map(|i| call(def, i)))
}

fn ids(values: &[ValueId]) -> Vec<u32> {
    values.iter().map(|id| id.0).collect()
}

fn value<C>(value: &Argument<TensorDef<C>>, stored: &dyn Fn(&C) -> Value) -> String {
    let json = match value {
        Argument::Tensor(t) => return tensor(t, stored),
        Argument::None => Value::Null,
        Argument::Int(v) => json!(v),
        Argument::Bool(v) => json!(v),
        // JSON has no infinities and no NaN.
        Argument::Double(v) if v.is_finite() => json!(v),
        Argument::Double(v) => json!({ "double": v.to_string() }),
        Argument::String(v) => json!({ "string": &**v }),
        Argument::IntList(list) => json!({ "ints": ids(list) }),
        Argument::DoubleList(list) => {
            json!({ "doubles": list.iter().map(ToString::to_string).collect::<Vec<_>>() })
        }
        Argument::BoolList(list) => json!({ "bools": list.to_vec() }),
        Argument::TensorList(list) => json!({ "tensors": ids(list) }),
        Argument::OptionalTensorList(list) => {
            json!({ "tensors": list.iter().map(|v| v.map(|v| v.0)).collect::<Vec<_>>() })
        }
    };
    json.to_string()
}

fn tensor<C>(tensor: &TensorDef<C>, stored: &dyn Fn(&C) -> Value) -> String {
    let spec = &tensor.spec;
    let mut out = Object::new()
        .field("dtype", spec.dtype.to_string())
        .list("shape", spec.shape.iter())
        .field("is_dynamic", spec.is_dynamic())
        .field("nbytes", spec.nbytes().unwrap_or(usize::MAX))
        .field("is_state", tensor.is_state());
    if !spec.dim_order.is_contiguous() {
        out = out.list("dim_order", spec.dim_order.as_slice().iter());
    }
    if let Placement::Planned { arena, offset, .. } = &tensor.placement {
        out = out.field("arena", *arena).field("offset", *offset);
    }
    if let Some(bytes) = tensor.stored() {
        out = out.field("stored", stored(bytes));
    }
    if let Some(name) = &tensor.name {
        out = out.field("name", name.as_str());
    }
    out.end()
}

fn call<C>(def: &MethodDef<C>, instruction: &Instruction) -> Value {
    match instruction {
        Instruction::Kernel { operator, args } => {
            json!({ "operator": def.operators.get(*operator as usize), "args": ids(args) })
        }
        Instruction::Delegate { delegate, args } => json!({ "delegate": delegate, "args": ids(args) }),
        Instruction::Move { from, to } => json!({ "move": [from.0, to.0] }),
        Instruction::JumpFalse { condition, destination } => {
            json!({ "jump": destination, "unless": condition.0 })
        }
        Instruction::Free { value } => json!({ "free": value.0 }),
    }
}

fn step(code: &MethodCode, at: usize, step: &Step) -> String {
    let place = code.place(at);
    let out = Object::new()
        .field("name", step.name(&code.ir.delegates))
        .list("args", step.args.iter().map(|id| id.0))
        .list("calls", step.covers.iter())
        .list("instructions", place.instructions.iter())
        .list("handles", place.handles.iter())
        .list("parts", place.parts.iter().map(|p| json!([p.delegate, p.node, p.handle])));
    let Action::Kernel(kernel) = &step.action else { return out.end() };
    let (mut reads, mut writes, mut written) = (0usize, 0usize, vec![]);
    for role in tensor_roles(&code.ir, &kernel.schema, &step.args) {
        let nbytes = code.ir.tensor(role.value).and_then(|t| t.spec.nbytes().ok()).unwrap_or_default();
        let sum = if role.is_output { &mut writes } else { &mut reads };
        *sum = sum.saturating_add(nbytes);
        if role.is_output {
            written.push(role.value.0);
        }
    }
    out.field("operator", &*kernel.operator)
        .field("reads", reads)
        .field("writes", writes)
        .list("written", written.iter())
        .list("declined", kernel.declined.iter().map(|d| json!([&*d.variant, d.why])))
        .end()
}
