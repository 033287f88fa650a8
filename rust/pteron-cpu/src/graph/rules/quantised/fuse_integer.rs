//! `fuse_integer`: a convolution or linear layer between calls that dequantise and quantise is computed in integers.
//!
//! *Before*: `y = relu(convolution(dequantise(q), dequantise(W), b)); p = quantise(y)`. *After*:
//! `p = integer convolution + clamp(q, W, scales, b)`; where `y` is not quantised again, it is written in f32.
//!
//! Applies where the weight is a symmetric int8 constant with one scale per output channel or one for all, and the bias
//! is constant. The sum of products is exact and rounded once, where the separate calls round every sum: results differ
//! by at most one quantised step, where a number lies between two.

use super::rows::{QuantisedRows, viewed};
use super::{
    DEQUANTISE, DEQUANTISE_CHANNELS, Dequantised, Scheme, dequantised, is_plain_call,
    margins_of_zeros::without_padding, quantised,
};
use crate::epilogue::Epilogue;
use crate::graph::rules::remove_dead::remove_dead;
use crate::graph::rules::rule::{Rule, WEIGHTED};
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use crate::integer::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec};
use pteron_core::{AlignedBuffer, ConstantView, DType, Result, TensorSpec};
use smallvec::smallvec;

pub(in crate::graph::rules) const RULE: Rule = Rule {
    name: "fuse_integer",
    about: "convolutions and linear layers of quantised tensors in integers",
    needs: &[WEIGHTED, &[DEQUANTISE, DEQUANTISE_CHANNELS]],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        let Some(layer) = layer(graph, host, id) else { continue };
        count += usize::from(fuse(graph, host, id, &layer)?);
    }
    if count > 0 {
        // Or the weights would be folded into floats that nobody reads.
        remove_dead(graph);
    }
    Ok(count)
}

/// A layer whose input and weight are dequantised.
struct Layer {
    operation: IntegerOperation,
    input: IntegerInput,
    x: TensorId,
    /// A view between the calls that quantise rows and the layer.
    view: Option<NodeId>,
    weight: Weight,
    bias: Option<TensorId>,
    channels: usize,
}

/// An int8 weight, by the call that dequantises it.
#[derive(Clone, Copy)]
struct Weight {
    integers: TensorId,
    scales: Scales,
}

#[derive(Clone, Copy)]
enum Scales {
    One(f64),
    PerChannel { scales: TensorId, zeros: Option<TensorId> },
}

/// What comes behind a layer and is computed with it.
struct Tail {
    nodes: Vec<NodeId>,
    clamp: Option<(f32, f32)>,
    output: IntegerOutput,
    out: TensorId,
}

fn layer(graph: &Graph, host: &dyn Host, id: NodeId) -> Option<Layer> {
    let node = graph.node(id);
    if !graph.is_live(id) || !is_plain_call(node) {
        return None;
    }
    let ((x, weight, bias), operation) = match node.op {
        Op::Convolution => (operands(node, [0, 1, 2])?, convolution(node)?),
        Op::Linear => linear(graph, node)?,
        _ => return None,
    };
    let (weight, operation) = (weight_of(graph, weight, &operation)?, operation);
    let (weight, operation) = match (weight, operation) {
        ((weight, is_turned), IntegerOperation::Linear { is_weight_transposed }) => {
            (weight, IntegerOperation::Linear { is_weight_transposed: is_weight_transposed != is_turned })
        }
        ((weight, _), operation) => (weight, operation),
    };
    let (input, x, view) = input_of(graph, host, x, &operation)?;
    let (x, operation) = match without_padding(graph, &input, x, &operation) {
        Some((image, operation)) => (image, operation),
        None => (x, operation),
    };
    let shape = &graph.tensor(weight.integers).spec.shape;
    let channels = match operation {
        IntegerOperation::Linear { is_weight_transposed: true } => shape.get(1),
        _ => shape.first(),
    };
    Some(Layer { operation, input, x, view, weight, bias, channels: *channels? })
}

/// What the integers of the input `x` come from: a quantised tensor, or floats whose rows are quantised at run time, seen
/// through a view.
fn input_of(
    graph: &Graph,
    host: &dyn Host,
    x: TensorId,
    operation: &IntegerOperation,
) -> Option<(IntegerInput, TensorId, Option<NodeId>)> {
    if let Some(Dequantised { quantised, scheme, .. }) = dequantised(graph, x) {
        let input = IntegerInput::PerTensor { scale: scheme.scale as f32, zero_point: scheme.zero };
        return Some((input, quantised, None));
    }
    matches!(operation, IntegerOperation::Linear { .. }).then_some(())?;
    let QuantisedRows { scheme, floats, view } = QuantisedRows::find(graph, host, x)?;
    Some((IntegerInput::Rows { scheme }, floats, view))
}

type Operands = (TensorId, TensorId, Option<TensorId>);

/// Input, weight and bias at these positions.
fn operands(node: &Node, [input, weight, bias]: [usize; 3]) -> Option<Operands> {
    let bias = match node.input(bias) {
        Some(bias) => Some(bias),
        None => node.is_none(bias).then_some(None)?,
    };
    Some((node.input(input)?, node.input(weight)?, bias))
}

fn convolution(node: &Node) -> Option<IntegerOperation> {
    const TRANSPOSED: usize = 6;
    const GROUPS: usize = 8;
    if node.number(TRANSPOSED)? != 0.0 {
        return None;
    }
    let list = |i: usize| node.ints(i).map(<[i64]>::to_vec);
    Some(IntegerOperation::Convolution {
        stride: list(3)?,
        padding: list(4)?,
        dilation: list(5)?,
        groups: node.number(GROUPS)? as i64,
    })
}

fn linear(graph: &Graph, node: &Node) -> Option<(Operands, IntegerOperation)> {
    let is_one = |i: usize| node.number(i) == Some(1.0);
    let (operands, is_weight_transposed) = match node.operator.as_str() {
        "aten::addmm.out" if is_one(3) && is_one(4) => (operands(node, [1, 2, 0])?, true),
        "aten::mm.out" => ((node.input(0)?, node.input(1)?, None), true),
        "aten::linear.out" => (operands(node, [0, 1, 2])?, false),
        _ => return None,
    };
    // A summand of the whole result is no bias.
    let is_row = operands.2.is_none_or(|bias| graph.tensor(bias).spec.shape.len() == 1);
    is_row.then_some((operands, IntegerOperation::Linear { is_weight_transposed }))
}

/// The int8 constant that `weight` is dequantised from, and whether it is turned round on the way.
fn weight_of(graph: &Graph, weight: TensorId, operation: &IntegerOperation) -> Option<(Weight, bool)> {
    let (call, is_turned) = match graph.producer(weight).map(|id| graph.node(id)) {
        Some(node) if is_transposition(graph, node) => (graph.node(graph.producer(node.input(0)?)?), true),
        Some(node) => (node, false),
        None => return None,
    };
    let integers = call.input(0)?;
    let tensor = &graph.tensor(integers);
    let is_fit = is_plain_call(call)
        && tensor.is_constant()
        && tensor.spec.dtype == DType::Int8
        && call.output().is_some_and(|t| graph.tensor(t).spec.dtype == DType::Float32);
    if !is_fit {
        return None;
    }
    let is_by_column = matches!(operation, IntegerOperation::Linear { is_weight_transposed: true });
    let axis = if is_by_column != is_turned { 1.0 } else { 0.0 };
    let scales = match call.operator.as_str() {
        DEQUANTISE => {
            let scheme = Scheme::of(graph, call, integers)?;
            (scheme.zero == 0).then_some(Scales::One(scheme.scale))?
        }
        DEQUANTISE_CHANNELS => {
            let given = call.number(3)?;
            let rank = tensor.spec.shape.len() as f64;
            let wrapped = if given < 0.0 { given + rank } else { given };
            let zeros = if call.is_none(2) { None } else { Some(call.input(2)?) };
            (wrapped == axis).then_some(Scales::PerChannel { scales: call.input(1)?, zeros })?
        }
        _ => return None,
    };
    Some((Weight { integers, scales }, is_turned))
}

/// Does it exchange the dimensions of a matrix?
fn is_transposition(graph: &Graph, node: &Node) -> bool {
    let is_matrix = node.input(0).is_some_and(|t| graph.tensor(t).spec.shape.len() == 2);
    let wrapped = |i: usize| node.number(i).map(|d| if d < 0.0 { d + 2.0 } else { d });
    let is_exchange = match node.operator.as_str() {
        "aten::t_copy.out" => true,
        "aten::permute_copy.out" => node.ints(1).is_some_and(|dims| matches!(dims, [1 | -1, 0 | -2])),
        "aten::transpose_copy.int_out" => match (wrapped(1), wrapped(2)) {
            (Some(a), Some(b)) => a != b,
            _ => false,
        },
        _ => false,
    };
    is_matrix && is_exchange
}

fn fuse(graph: &mut Graph, host: &mut dyn Host, id: NodeId, layer: &Layer) -> Result<bool> {
    let Some(y) = graph.node(id).output() else { return Ok(false) };
    let Some(scales) = scales(graph, host, layer)? else { return Ok(false) };
    let bias = match layer.bias {
        Some(bias) => match known(graph, host, bias)? {
            Some(bias) => Some(bias),
            None => return Ok(false),
        },
        None => None,
    };
    let x = match layer.view {
        Some(view) => viewed(graph, view, layer.x),
        None => layer.x,
    };
    // The longest tail first: a clamp and a call that quantises, one of them, nothing.
    for tail in tails(graph, id, y) {
        let spec = IntegerSpec {
            operation: layer.operation.clone(),
            input: layer.input,
            has_bias: bias.is_some(),
            clamp: tail.clamp,
            output: tail.output,
            sum: None,
        };
        let args = [Some(x), Some(layer.weight.integers), Some(scales), bias, Some(tail.out)];
        let draft = Draft {
            op: Op::Integer(Box::new(spec)),
            operator: String::new(),
            args: args.into_iter().flatten().map(Argument::Tensor).collect(),
            outputs: smallvec![tail.out],
            epilogue: Epilogue::NONE,
        };
        let is_possible = graph.can_replace(&tail.nodes, &draft) && host.can_prepare(graph, &draft)?;
        if is_possible && graph.replace(&tail.nodes, draft).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What may be computed with the layer `id`, whose result is `y`, the longest first.
fn tails(graph: &Graph, id: NodeId, y: TensorId) -> Vec<Tail> {
    let mut tails = vec![Tail { nodes: vec![id], clamp: None, output: IntegerOutput::Float, out: y }];
    let spec = |t: TensorId| &graph.tensor(t).spec;
    while let Some(last) = tails.last()
        && let Some(reader) = graph.only_reader(last.out)
    {
        let node = graph.node(reader);
        let Some(out) = node.output() else { break };
        let mut nodes = last.nodes.clone();
        nodes.push(reader);
        let next = if let Op::Clamp { min, max } = node.op
            && last.clamp.is_none()
            && spec(out) == spec(last.out)
        {
            Tail { nodes, clamp: Some((min, max)), output: IntegerOutput::Float, out }
        } else if let Some((Scheme { scale, zero, low, high, dtype }, ..)) = quantised(graph, reader)
            && *spec(out) == (TensorSpec { dtype, ..spec(last.out).clone() })
        {
            let output = IntegerOutput::Quantised { scale: scale as f32, zero_point: zero, low, high };
            Tail { nodes, clamp: last.clamp, output, out }
        } else {
            break;
        };
        let is_end = next.output != IntegerOutput::Float;
        tails.push(next);
        if is_end {
            break;
        }
    }
    tails.reverse();
    tails
}

/// `tensor` as a constant: one of the file, or what a call that dequantises one gives.
fn known(graph: &mut Graph, host: &mut dyn Host, tensor: TensorId) -> Result<Option<TensorId>> {
    let is_single = |graph: &Graph, t: TensorId| graph.tensor(t).spec.dtype == DType::Float32;
    if graph.tensor(tensor).is_constant() {
        return Ok(is_single(graph, tensor).then_some(tensor));
    }
    let Some(id) = graph.producer(tensor) else { return Ok(None) };
    let node = graph.node(id);
    let is_known = [DEQUANTISE, DEQUANTISE_CHANNELS].contains(&node.operator.as_str())
        && node.inputs().all(|t| graph.tensor(t).is_constant())
        && is_single(graph, tensor);
    if is_known { host.evaluate(graph, id) } else { Ok(None) }
}

/// The scales of the weight as an f32 constant; `None` where a zero point is not 0.
fn scales(graph: &mut Graph, host: &mut dyn Host, layer: &Layer) -> Result<Option<TensorId>> {
    let row = |n: usize| TensorSpec::contiguous(DType::Float32, &[n]);
    match layer.weight.scales {
        Scales::One(scale) => {
            let recipe = format!("scale.{:016x}", scale.to_bits());
            let mut make = |_: &[ConstantView<'_>]| buffer(&[scale as f32]).map(Some);
            host.add_constant(graph, &recipe, &[layer.weight.integers], row(1)?, &mut make)
        }
        Scales::PerChannel { scales, zeros } => {
            if let Some(zeros) = zeros
                && !is_zero(graph, host, zeros)?
            {
                return Ok(None);
            }
            let tensor = graph.tensor(scales);
            let n = tensor.spec.shape.numel()?;
            if !tensor.is_constant() || tensor.spec.shape.len() != 1 || ![1, layer.channels].contains(&n) {
                return Ok(None);
            }
            match tensor.spec.dtype {
                DType::Float32 => Ok(Some(scales)),
                DType::Float64 => {
                    let mut make = |views: &[ConstantView<'_>]| match views {
                        [view] => {
                            let rounded: Vec<f32> =
                                view.to_vec::<f64>()?.into_iter().map(|v| v as f32).collect();
                            buffer(&rounded).map(Some)
                        }
                        _ => Ok(None),
                    };
                    host.add_constant(graph, "scales.f32", &[scales], row(n)?, &mut make)
                }
                _ => Ok(None),
            }
        }
    }
}

fn buffer(values: &[f32]) -> Result<AlignedBuffer> {
    let mut out = AlignedBuffer::zeroed(size_of_val(values))?;
    out.as_mut_elements::<f32>().copy_from_slice(values);
    Ok(out)
}

fn is_zero(graph: &Graph, host: &dyn Host, zeros: TensorId) -> Result<bool> {
    let Some(view) = host.constant(graph, zeros) else { return Ok(false) };
    Ok(match graph.tensor(zeros).spec.dtype {
        DType::Int64 => view.row_major::<i64>()?.iter().all(|v| *v == 0),
        DType::Int32 => view.row_major::<i32>()?.iter().all(|v| *v == 0),
        DType::Int8 => view.row_major::<i8>()?.iter().all(|v| *v == 0),
        DType::Float32 => view.row_major::<f32>()?.iter().all(|v| *v == 0.0),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::{BY_TENSOR, BY_TOKEN};
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};
    use crate::integer::RowScheme;

    /// x → linear → relu → quantise, all of it in [`Builder`].
    fn quantised_linear(weight_scale: f64) -> (Builder, [TensorId; 3]) {
        let mut b = Builder::new();
        let q = b.border(&[4, 8]);
        b.cast(q, DType::Int8);
        let w = b.constant(&[16, 8]);
        b.cast(w, DType::Int8);
        let x = b.dequantise(q, 0.5, &[4, 8]);
        let one = |v: f64| Argument::Literal(crate::graph::Literal::Double(v), None);
        let mut args = vec![Argument::Tensor(w), one(weight_scale), Argument::int(0), Argument::int(-127)];
        args.extend([Argument::int(127), Argument::int(i64::from(DType::Int8.code())), Argument::none()]);
        let floats = b.call_with(DEQUANTISE, args, &[16, 8]);
        let turned = vec![Argument::Tensor(floats), Argument::ints(&[1, 0])];
        let turned = b.call_with("aten::permute_copy.out", turned, &[8, 16]);
        let bias = b.constant(&[16]);
        let args =
            [bias, x, turned].map(Argument::Tensor).into_iter().chain([Argument::int(1), Argument::int(1)]);
        let y = b.call_with("aten::addmm.out", args.collect(), &[4, 16]);
        let z = b.call("aten::relu.out", &[y], &[4, 16]);
        let r = b.quantise(z, 0.25, &[4, 16]);
        // Not a call that goes where nobody reads its result.
        b.call("aten::multinomial.out", &[r], &[4, 16]);
        (b, [q, z, r])
    }

    fn only_integer(b: &Builder) -> (&IntegerSpec, &Node) {
        let mut found = b.graph.live().filter_map(|(_, n)| match &n.op {
            Op::Integer(spec) => Some((&**spec, n)),
            _ => None,
        });
        found.next().unwrap()
    }

    #[test]
    fn a_layer_between_both_calls_is_of_integers() {
        let (mut b, [q, _, r]) = quantised_linear(0.125);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let (spec, node) = only_integer(&b);
        let operation = IntegerOperation::Linear { is_weight_transposed: false };
        let output = IntegerOutput::Quantised { scale: 0.25, zero_point: 3, low: -128, high: 127 };
        assert_eq!((&spec.operation, spec.output), (&operation, output));
        assert_eq!(spec.input, IntegerInput::PerTensor { scale: 0.5, zero_point: 3 });
        assert_eq!((spec.clamp, spec.has_bias), (Some((0.0, f32::INFINITY)), true));
        assert_eq!((node.input(0), node.output(), node.args.len()), (Some(q), Some(r), 5));
    }

    #[test]
    fn what_others_read_is_written_in_floats() {
        let (mut b, [_, z, _]) = quantised_linear(0.125);
        b.call("aten::multinomial.out", &[z], &[4, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let (spec, node) = only_integer(&b);
        assert_eq!((spec.output, node.output()), (IntegerOutput::Float, Some(z)));
    }

    /// x, quantised by what it holds and dequantised, → linear; the result.
    fn quantised_at_run_time(
        operators: [&str; 3],
        numbers: &[f64],
        quantise_low: i64,
    ) -> (Builder, TensorId) {
        let mut b = Builder::new();
        let x = b.border(&[4, 8]);
        let [scale, zero] = b.results(&[1]);
        b.cast(scale, DType::Float64);
        b.cast(zero, DType::Int64);
        let number = |v: &f64| Argument::Literal(crate::graph::Literal::Double(*v), None);
        let mut args = vec![Argument::Tensor(x)];
        args.extend(numbers.iter().map(number));
        args.extend([scale, zero].map(Argument::Tensor));
        b.graph.push(Node::call(operators[0], args, smallvec![scale, zero], 100));
        let code = i64::from(DType::Int8.code());
        let parameters = |t: TensorId| {
            let mut args = [t, scale, zero].map(Argument::Tensor).to_vec();
            args.extend([quantise_low, 127, code].map(Argument::int));
            args
        };
        let q = b.call_with(operators[1], parameters(x), &[4, 8]);
        b.cast(q, DType::Int8);
        let back = b.call_with(operators[2], [parameters(q), vec![Argument::none()]].concat(), &[4, 8]);
        let w = b.constant(&[16, 8]);
        b.cast(w, DType::Int8);
        let scales = b.constant(&[16]);
        let mut args = vec![Argument::Tensor(w), Argument::Tensor(scales), Argument::none()];
        args.extend([0, -127, 127, code].map(Argument::int));
        args.push(Argument::none());
        let floats = b.call_with(DEQUANTISE_CHANNELS, args, &[16, 8]);
        let args = vec![Argument::Tensor(back), Argument::Tensor(floats), Argument::none()];
        let y = b.call_with("aten::linear.out", args, &[4, 16]);
        b.call("aten::multinomial.out", &[y], &[4, 16]);
        (b, y)
    }

    #[test]
    fn rows_are_quantised_in_the_step_of_their_layer() {
        let code = f64::from(DType::Int8.code());
        let by_tensor = RowScheme::PerTensor { least_scale: 0.25 };
        for (operators, numbers, scheme) in [
            (BY_TOKEN, vec![code], RowScheme::PerToken),
            (BY_TENSOR, vec![-128.0, 127.0, 0.25, code], by_tensor),
        ] {
            let (mut b, y) = quantised_at_run_time(operators, &numbers, -128);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
            let (spec, node) = only_integer(&b);
            assert_eq!((spec.input, spec.output), (IntegerInput::Rows { scheme }, IntegerOutput::Float));
            assert_eq!(node.output(), Some(y));
            // The layer and what reads it.
            assert_eq!(b.graph.live().count(), 2);
        }
    }

    #[test]
    fn other_ranges_at_run_time_stay() {
        let code = f64::from(DType::Int8.code());
        for (numbers, low) in [
            ([-127.0, 127.0, 0.25, code], -128),
            ([-128.0, 127.0, 0.25, code], -127),
            ([-128.0, 127.0, 0.0, code], -128),
            ([-128.0, 127.0, f64::NAN, code], -128),
        ] {
            let (mut b, _) = quantised_at_run_time(BY_TENSOR, &numbers, low);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0, "{numbers:?} {low}");
        }
    }

    #[test]
    fn scales_that_are_no_numbers_stay() {
        let (mut b, _) = quantised_linear(f64::NAN);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
