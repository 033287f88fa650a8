//! What tests of rules share: products in integers.

use crate::graph::testing::Builder;
use crate::graph::{Draft, Op, TensorId};
use crate::integer::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec};
use pteron_core::DType;

/// Bytes of scale 1/4 and zero point 3.
pub const BYTES: IntegerOutput =
    IntegerOutput::Quantised { scale: 0.25, zero_point: 3, low: -128, high: 127 };

/// An integer product `[4, 16]` of bytes that the builder's run reads.
pub fn integer_product(b: &mut Builder, output: IntegerOutput) -> TensorId {
    let (q, w, scales) = (b.border(&[4, 8]), b.constant(&[16, 8]), b.constant(&[16]));
    b.cast(q, DType::Int8);
    b.cast(w, DType::Int8);
    let y = b.call("aten::mm.out", &[q, w, scales], &[4, 16]);
    if output != IntegerOutput::Float {
        b.cast(y, DType::Int8);
    }
    let id = b.graph.producer(y).expect("a call");
    let spec = IntegerSpec {
        operation: IntegerOperation::Linear { is_weight_transposed: false },
        input: IntegerInput::PerTensor { scale: 0.5, zero_point: 3 },
        has_bias: false,
        clamp: None,
        output,
        sum: None,
    };
    let op = Op::Integer(Box::new(spec));
    let draft = Draft { op, operator: String::new(), ..b.graph.node(id).draft() };
    b.graph.replace(&[id], draft).expect("can be replaced");
    y
}
