//! `fold_constants`: calls whose arguments are all known are made at load, once.
//!
//! *Before*: `m = full([8, 8], -inf); t = triu(m, 1); y = add(x, t)`. *After*: `y = add(x, T)` with a constant `T`.
//!
//! Masks, tables of positions and the like. Applies to the operators of a table: they depend on nothing but
//! their arguments and take time in proportion to the elements they read and write. The kernels are those
//! that would run at execution, so the bytes are the same. Arguments of more than [`MOST_INPUT`] bytes are
//! left alone, and a run gains at most [`MOST_RESULTS`] bytes of constants. A call that fails is left where
//! it is, to fail when it is executed.

use super::rule::Rule;
use crate::graph::{Argument, Graph, Host, Literal, Node, NodeId, Op, TensorId};
use pteron_core::Result;
use pteron_kernels::elementwise::function_table::is_elementwise;
use std::collections::HashMap;

pub(super) const RULE: Rule = Rule {
    name: "fold_constants",
    about: "calls whose arguments are all known, at load",
    // The table and the elementwise functions: nearly every method has one of them.
    needs: &[],
    apply,
};

/// Bytes of an argument at most.
const MOST_INPUT: usize = 4 << 20;
/// Bytes of all results of a run at most.
const MOST_RESULTS: usize = 4 << 20;

/// How often the same bytes are dequantised at most.
const MOST_WEIGHTS: usize = 4;

/// Calls that make floats of quantised constants, of any size: what reads them wants a constant weight, and without that
/// every call of the method makes the floats again.
pub(super) const DEQUANTISE: &[&str] =
    &["quantized_decomposed::dequantize_per_tensor.out", "quantized_decomposed::dequantize_per_channel.out"];

/// Operators that are evaluated, besides elementwise functions.
const TABLE: &[&str] = &[
    "aten::full.out",
    "aten::arange.start_out",
    "aten::arange.out",
    "aten::zeros.out",
    "aten::ones.out",
    "aten::scalar_tensor.out",
    "aten::permute_copy.out",
    "aten::transpose_copy.int_out",
    "aten::t_copy.out",
    "aten::expand_copy.out",
    "aten::slice_copy.Tensor_out",
    "aten::select_copy.int_out",
    "aten::unsqueeze_copy.out",
    "aten::squeeze_copy.dim_out",
    "aten::squeeze_copy.dims_out",
    "aten::view_copy.out",
    "aten::clone.out",
    "aten::alias_copy.out",
    "aten::detach_copy.out",
    "aten::lift_fresh_copy.out",
    "aten::cat.out",
    "aten::stack.out",
    "aten::repeat.out",
    "aten::constant_pad_nd.out",
    "aten::_to_copy.out",
    "dim_order_ops::_to_dim_order_copy.out",
    "dim_order_ops::_clone_dim_order.out",
    "aten::logical_not.out",
    "aten::logical_and.out",
    "aten::logical_or.out",
    "aten::logical_xor.out",
    "aten::bitwise_not.out",
    "aten::bitwise_and.Tensor_out",
    "aten::bitwise_or.Tensor_out",
    "aten::cumsum.out",
    "aten::tril.out",
    "aten::triu.out",
    "aten::sin.out",
    "aten::cos.out",
    "aten::pow.Scalar_out",
    "aten::pow.Tensor_Tensor_out",
    "aten::masked_fill.Scalar_out",
    "aten::any.out",
    "aten::all.out",
    "aten::sum.IntList_out",
    "aten::embedding.out",
    "aten::index.Tensor_out",
    "aten::index_select.out",
    "aten::gather.out",
];

/// `fold_weights`: calls that dequantise constants are made at load, once.
///
/// What reads them then has a constant weight, and with it another kernel, which sums in another order.
pub(super) const WEIGHTS: Rule = Rule {
    name: "fold_weights",
    about: "constants that are dequantised, at load",
    needs: &[DEQUANTISE],
    apply: apply_to_weights,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let (mut count, mut left) = (0, MOST_RESULTS);
    for id in graph.ids() {
        if is_dequantise(graph, id) {
            continue;
        }
        let Some((output, nbytes)) = known_call(graph, id, MOST_INPUT).filter(|(_, nbytes)| *nbytes <= left)
        else {
            continue;
        };
        if fold(graph, host, id, output)? {
            left -= nbytes;
            count += 1;
        }
    }
    Ok(count)
}

fn apply_to_weights(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    let mut weights: HashMap<usize, usize> = HashMap::new();
    for id in graph.ids() {
        let Some((output, _)) = known_call(graph, id, usize::MAX).filter(|_| is_dequantise(graph, id)) else {
            continue;
        };
        if is_new(graph, host, id, &mut weights) && fold(graph, host, id, output)? {
            count += 1;
        }
    }
    Ok(count)
}

fn is_dequantise(graph: &Graph, id: NodeId) -> bool {
    DEQUANTISE.contains(&graph.node(id).operator.as_str())
}

/// Puts the constant that `id` gives in the place of its result.
fn fold(graph: &mut Graph, host: &mut dyn Host, id: NodeId, output: TensorId) -> Result<bool> {
    let Some(constant) = host.evaluate(graph, id)? else { return Ok(false) };
    let readers: Vec<NodeId> = graph.readers(output).to_vec();
    graph.redirect(&readers, output, constant);
    graph.remove(id);
    Ok(true)
}

/// Are the bytes that `id` dequantises not among those that were dequantised [`MOST_WEIGHTS`] times? Few bytes must not
/// become much memory because many tensors show them.
fn is_new(graph: &Graph, host: &dyn Host, id: NodeId, weights: &mut HashMap<usize, usize>) -> bool {
    let Some(bytes) = graph.node(id).input(0).and_then(|t| host.constant(graph, t)) else { return false };
    let times = weights.entry(bytes.data.as_ptr() as usize).or_default();
    *times += 1;
    *times <= MOST_WEIGHTS && bytes.shape.numel().is_ok_and(|n| n <= bytes.data.len())
}

/// The result of a call whose arguments are all known, and its bytes.
fn known_call(graph: &Graph, id: NodeId, most_input: usize) -> Option<(TensorId, usize)> {
    let node = graph.node(id);
    let is_call = graph.is_live(id)
        && matches!(node.op, Op::Opaque | Op::Clamp { .. })
        && node.instruction.is_some()
        && node.epilogue.is_none()
        && node.written_values.is_empty()
        && node.read_values.is_empty();
    let operator = node.operator.as_str();
    let is_listed = TABLE.contains(&operator) || DEQUANTISE.contains(&operator) || is_elementwise(operator);
    if !is_call || !is_listed {
        return None;
    }
    let output = node.output()?;
    let (tensor, nbytes) = (graph.tensor(output), graph.tensor(output).spec.nbytes().ok()?);
    let is_ours = tensor.is_private() && !tensor.spec.is_dynamic() && nbytes > 0;
    // A constant has no steps of its own that views and steps that stay could name.
    let is_replaceable = graph.readers(output).iter().all(|reader| can_read_constant(graph.node(*reader)));
    (is_ours && is_replaceable && node.args.iter().all(|a| is_known(graph, node, a, most_input)))
        .then_some((output, nbytes))
}

fn can_read_constant(node: &Node) -> bool {
    !matches!(node.op, Op::Fixed | Op::View)
}

fn is_known(graph: &Graph, node: &Node, argument: &Argument, most_input: usize) -> bool {
    let is_small = |t: &TensorId| graph.tensor(*t).spec.nbytes().is_ok_and(|n| n <= most_input);
    let is_constant = |t: &TensorId| graph.tensor(*t).is_constant() && is_small(t);
    match argument {
        Argument::Tensor(t) => node.outputs.contains(t) || is_constant(t),
        Argument::Tensors(list) => list.iter().flatten().all(is_constant),
        Argument::Literal(literal, _) => !matches!(literal, Literal::String(_)),
        Argument::Value(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};

    fn full(b: &mut Builder, shape: &[usize]) -> TensorId {
        let sizes: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        let one = Argument::Literal(Literal::Double(1.0), None);
        b.call_with("aten::full.out", vec![Argument::ints(&sizes), one], shape)
    }

    #[test]
    fn a_chain_of_known_calls_goes() {
        let mut b = Builder::new();
        let m = full(&mut b, &[8, 8]);
        let t = b.call_with("aten::triu.out", vec![Argument::Tensor(m), Argument::int(1)], &[8, 8]);
        let x = b.border(&[8, 8]);
        let y = b.call("aten::mul.out", &[x, t], &[8, 8]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 2);
        let node = b.graph.node(b.graph.producer(y).unwrap());
        assert!(b.graph.tensor(node.input(1).unwrap()).is_constant());
        assert_eq!(b.graph.live().count(), 1);
    }

    #[test]
    fn what_depends_on_an_input_or_on_chance_stays() {
        let mut b = Builder::new();
        let x = b.border(&[8, 8]);
        b.call("aten::neg.out", &[x], &[8, 8]);
        let m = b.constant(&[8, 8]);
        b.call("aten::multinomial.out", &[m], &[8, 8]);
        let seen = full(&mut b, &[8, 8]);
        b.name("seen", seen).pin("seen", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn results_have_a_limit_in_all() {
        let mut b = Builder::new();
        for _ in 0..3 {
            let m = full(&mut b, &[MOST_RESULTS / 8]);
            b.call("aten::multinomial.out", &[m], &[4]);
        }
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 2);
    }
}
