//! An expansion as text: its weights, then a line for each call.

use crate::expansion::{ConstantBytes, ExpandedConstant, ExpandedTensor, Expansion, OperatorCall};
use pteron_core::error::printable;
use pteron_core::{TensorSpec, Value};
use std::fmt;

impl fmt::Display for Expansion {
    /// `w3` is value 3, a constant; `t5` an intermediate; `arg0` argument 0 of the delegate call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.values.iter().enumerate() {
            if let Some(ExpandedTensor::Constant(constant)) = value.as_tensor() {
                write!(f, "w{index} = ")?;
                write_constant(f, constant)?;
            }
        }
        for call in &self.calls {
            self.write_call(f, call)?;
        }
        Ok(())
    }
}

impl Expansion {
    fn write_call(&self, f: &mut fmt::Formatter<'_>, call: &OperatorCall) -> fmt::Result {
        for (position, output) in call.outputs.iter().enumerate() {
            f.write_str(if position > 0 { ", " } else { "" })?;
            self.write_value(f, *output)?;
            if let Some(ExpandedTensor::Intermediate(spec)) =
                self.values.get(*output).and_then(Value::as_tensor)
            {
                write!(f, ": {}", SpecText(spec))?;
            }
        }
        write!(f, " = {}(", call.operator)?;
        for (position, input) in call.inputs.iter().enumerate() {
            f.write_str(if position > 0 { ", " } else { "" })?;
            self.write_value(f, *input)?;
        }
        writeln!(f, ")  # node {}, debug handle {}", call.node, call.debug_handle)
    }

    fn write_value(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        match self.values.get(index) {
            Some(Value::None) => f.write_str("none"),
            Some(Value::Int(v)) => write!(f, "{v}"),
            Some(Value::Bool(v)) => write!(f, "{v}"),
            Some(Value::Double(v)) => write!(f, "{v:?}"),
            Some(Value::String(v)) => write!(f, "\"{}\"", printable(v)),
            Some(Value::Tensor(tensor)) => match &**tensor {
                ExpandedTensor::Argument(argument) => write!(f, "arg{argument}"),
                ExpandedTensor::Constant(_) => write!(f, "w{index}"),
                ExpandedTensor::Intermediate(_) => write!(f, "t{index}"),
            },
            Some(list) => {
                f.write_str("[")?;
                for (position, member) in list.members().iter().enumerate() {
                    f.write_str(if position > 0 { ", " } else { "" })?;
                    self.write_value(f, member)?;
                }
                f.write_str("]")
            }
            None => f.write_str("?"),
        }
    }
}

fn write_constant(f: &mut fmt::Formatter<'_>, constant: &ExpandedConstant) -> fmt::Result {
    write!(f, "{} {} strides {}, ", constant.dtype, constant.shape, constant.strides)?;
    match &constant.bytes {
        ConstantBytes::Named(key) => writeln!(f, "named '{}'", printable(key)),
        ConstantBytes::Payload(range) => writeln!(f, "payload bytes {}..{}", range.start, range.end),
        ConstantBytes::Computed(bytes) => writeln!(f, "{} computed bytes", bytes.as_slice().len()),
    }
}

/// Dtype and extents of an intermediate.
struct SpecText<'a>(&'a TensorSpec);

impl fmt::Display for SpecText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.0.is_dynamic() { " at most" } else { "" };
        write!(f, "{}{bound} {}", self.0.dtype, self.0.shape)
    }
}
