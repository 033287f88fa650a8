//! Nodes read what was written before, and no value is written twice. So a walk in order meets no circle.

use crate::node_place::in_node;
use crate::payload::{Node, Operation, Source, Value};
use pteron_core::memory_reserve::filled;
use pteron_core::{Error, Result};

/// Checks the order of `nodes`, and that every output is written.
pub(super) fn check(values: &[Value], nodes: &[Node]) -> Result<()> {
    let mut written = filled(false, values.len())?;
    for (slot, value) in written.iter_mut().zip(values) {
        *slot = matches!(value.source, Source::Input(_) | Source::Constant(_));
    }
    for (number, node) in nodes.iter().enumerate() {
        let (inputs, outputs) = node.operation.operands();
        for input in inputs {
            if written.get(input) != Some(&true) {
                return Err(in_node(
                    Error::program("the node reads a value that no node before it writes"),
                    number,
                    node,
                )
                .got(format!("value {}", id(values, input))));
            }
        }
        for output in outputs {
            match written.get_mut(output) {
                Some(slot @ false) => *slot = true,
                _ => {
                    return Err(in_node(
                        Error::program(
                            "the node writes a value that is an input, a constant, or written before",
                        ),
                        number,
                        node,
                    )
                    .got(format!("value {}", id(values, output))));
                }
            }
        }
    }
    for (value, written) in values.iter().zip(&written) {
        if let (Source::Output(argument), false) = (&value.source, written) {
            return Err(Error::program("no node of the XNNPACK payload writes an output")
                .got(format!("value {}, argument {argument}", value.id)));
        }
    }
    Ok(())
}

fn id(values: &[Value], index: usize) -> String {
    values.get(index).map_or_else(|| "?".to_owned(), |value| value.id.to_string())
}

impl Operation {
    /// Values that the node reads, and those that it writes.
    pub(crate) fn operands(&self) -> (Vec<usize>, Vec<usize>) {
        match self {
            Operation::Unary { input, output, .. }
            | Operation::MaxPooling { input, output, .. }
            | Operation::AveragePooling { input, output, .. }
            | Operation::GlobalAveragePooling { input, output, .. }
            | Operation::Transpose { input, output, .. }
            | Operation::Reshape { input, output, .. }
            | Operation::Slice { input, output, .. }
            | Operation::Pad { input, output, .. }
            | Operation::ResizeBilinear { input, output, .. } => (vec![*input], vec![*output]),
            Operation::Binary { inputs, output, .. } | Operation::BatchMatrixMultiply { inputs, output } => {
                (inputs.to_vec(), vec![*output])
            }
            Operation::FullyConnected { input, filter, bias, output, .. }
            | Operation::Convolution { input, filter, bias, output, .. } => {
                ([Some(*input), Some(*filter), *bias].into_iter().flatten().collect(), vec![*output])
            }
            Operation::ArgMaxPooling { input, values, indices, .. } => {
                (vec![*input], vec![*values, *indices])
            }
            Operation::Concatenate { inputs, output, .. } => (inputs.clone(), vec![*output]),
        }
    }
}
