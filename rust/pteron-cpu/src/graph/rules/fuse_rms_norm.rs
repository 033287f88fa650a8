//! `fuse_rms_norm`: the calls that an RMS norm was written as become one.
//!
//! *Before*: `m = mean(pow(x, 2), -1); n = mul(x, rsqrt(add(m, eps))); y = mul(w, n)`. *After*: `y = rms norm(x, w)`.
//!
//! Models in 16-bit floats compute the norm in f32: a cast in front of it goes, too, and one behind it, in front of the weight
//! (Llama) or behind it (Gemma). A norm without weight is one, too. Exact: the kernel gives the bytes of the separate calls.

use super::rule::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use pteron_core::{DType, Result};
use pteron_kernels::ops::normalization::rms_norm::RmsNorm;
use smallvec::smallvec;

pub(super) const RULE: Rule = Rule {
    name: "fuse_rms_norm",
    about: "the calls of an RMS norm into one step, with the casts around it",
    needs: &[&["aten::rsqrt.out", POWER], &["aten::mean.out"], &[PRODUCT]],
    apply,
};

const PRODUCT: &str = "aten::mul.out";
const POWER: &str = "aten::pow.Tensor_Scalar_out";
/// Operators that change the element type.
const CASTS: &[&str] = &["dim_order_ops::_to_dim_order_copy.out", "aten::_to_copy.out"];

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        if !graph.is_live(id) {
            continue;
        }
        let Some(found) = find(graph, host, id) else { continue };
        // First with everything that can be taken in.
        for (nodes, draft) in ends(graph, &found).into_iter().rev() {
            if host.can_prepare(graph, &draft)? && graph.replace(&nodes, draft).is_some() {
                count += 1;
                break;
            }
        }
    }
    Ok(count)
}

/// `mul(x, rsqrt(mean(pow(x, 2)) + eps))`, in f32.
struct Normalised {
    nodes: Vec<NodeId>,
    x: TensorId,
    eps: f32,
    out: TensorId,
}

fn find(graph: &Graph, host: &dyn Host, id: NodeId) -> Option<Normalised> {
    let node = graph.node(id);
    if node.operator != PRODUCT || !node.epilogue.is_none() {
        return None;
    }
    [(0, 1), (1, 0)].into_iter().find_map(|(row, factor)| {
        let (x, factor, out) = (node.input(row)?, node.input(factor)?, node.output()?);
        let (root_id, root) = producer(graph, factor)?;
        let is_root = root.operator == "aten::rsqrt.out" || is_power(root, -0.5);
        let (sum_id, sum) = producer(graph, root.input(0)?).filter(|_| is_root)?;
        let (mean, eps) = shifted(graph, host, sum)?;
        let (mean_id, mean) = producer(graph, mean)?;
        let (square_id, square) = producer(graph, mean.input(0)?).filter(|_| is_mean_of_rows(graph, mean))?;
        let is_product = square.operator == PRODUCT && square.input(1) == square.input(0);
        let is_square = is_power(square, 2.0) || is_product;
        let all = [x, square.output()?, mean.output()?, sum.output()?, root.output()?, out];
        let is_f32 = |t: &TensorId| graph.tensor(*t).spec.dtype == DType::Float32;
        let is_norm = is_square
            && square.input(0) == Some(x)
            && all.iter().all(is_f32)
            && graph.tensor(x).spec.shape == graph.tensor(out).spec.shape;
        let nodes = vec![square_id, mean_id, sum_id, root_id, id];
        is_norm.then_some(Normalised { nodes, x, eps, out })
    })
}

/// The node behind `tensor`, if nothing was fused into it.
fn producer(graph: &Graph, tensor: TensorId) -> Option<(NodeId, &Node)> {
    let id = graph.producer(tensor)?;
    Some((id, graph.node(id))).filter(|(_, node)| node.epilogue.is_none())
}

fn is_power(node: &Node, exponent: f64) -> bool {
    node.operator == POWER && node.number(1) == Some(exponent)
}

/// The mean and the number that `node` adds to it.
fn shifted(graph: &Graph, host: &dyn Host, node: &Node) -> Option<(TensorId, f32)> {
    if node.number(2) != Some(1.0) {
        return None;
    }
    match node.operator.as_str() {
        "aten::add.Scalar_out" => Some((node.input(0)?, node.number(1)? as f32)),
        "aten::add.out" => {
            let (a, b) = (node.input(0)?, node.input(1)?);
            [(a, b), (b, a)].into_iter().find_map(|(mean, eps)| Some((mean, number(graph, host, eps)?)))
        }
        _ => None,
    }
}

/// The only element of a constant.
fn number(graph: &Graph, host: &dyn Host, tensor: TensorId) -> Option<f32> {
    let is_one = graph.tensor(tensor).spec.shape.numel().is_ok_and(|n| n == 1);
    let elements = host.constant(graph, tensor).filter(|_| is_one)?.to_vec::<f32>().ok()?;
    elements.first().copied()
}

/// Is it the mean over the last dimension, which stays with an extent of one?
fn is_mean_of_rows(graph: &Graph, node: &Node) -> bool {
    let rank = node.input(0).map_or(0, |t| graph.tensor(t).spec.shape.len() as i64);
    let is_last = matches!(node.ints(1), Some([dim]) if *dim == -1 || *dim == rank - 1);
    // No element type of its own, or f32, as its result has it.
    node.operator == "aten::mean.out" && is_last && node.number(2) == Some(1.0)
}

/// What can be replaced: the norm, then with what follows it, each with the nodes it stands for.
fn ends(graph: &Graph, found: &Normalised) -> Vec<(Vec<NodeId>, Draft)> {
    let mut norm = RmsNorm { eps: found.eps, has_weight: false, rounds: false };
    let (mut nodes, mut out, mut weight) = (found.nodes.clone(), found.out, None);
    let mut ends = vec![draft(found.x, weight, out, norm, nodes.clone())];
    // A cast in front: the row that a cast behind gives has the same type.
    let narrow = cast_of(graph, found.x);
    let mut is_narrow = false;
    for _ in 0..2 {
        let Some(next) = graph.only_reader(out) else { break };
        if let Some((cast, x)) = narrow.filter(|(_, x)| !is_narrow && is_cast_to(graph, next, *x)) {
            is_narrow = true;
            norm.rounds = weight.is_none();
            nodes.insert(0, cast);
            nodes.push(next);
            let Some(result) = graph.node(next).output() else { break };
            out = result;
            ends.push(draft(x, weight, out, norm, nodes.clone()));
        } else if let Some((w, result)) = weighted(graph, next, out).filter(|_| weight.is_none()) {
            (weight, out, norm.has_weight) = (Some(w), result, true);
            nodes.push(next);
            let x = narrow.filter(|_| is_narrow).map_or(found.x, |(_, x)| x);
            ends.push(draft(x, weight, out, norm, nodes.clone()));
        } else {
            break;
        }
    }
    ends
}

fn draft(
    x: TensorId,
    weight: Option<TensorId>,
    out: TensorId,
    norm: RmsNorm,
    nodes: Vec<NodeId>,
) -> (Vec<NodeId>, Draft) {
    let args = [Some(x), weight, Some(out)].into_iter().flatten().map(Argument::Tensor).collect();
    let op = Op::RmsNorm(norm);
    let (operator, outputs, epilogue) = (String::new(), smallvec![out], Epilogue::NONE);
    (nodes, Draft { op, operator, args, outputs, epilogue })
}

/// The cast to f32 that makes `x`, and the 16-bit floats it is made of.
fn cast_of(graph: &Graph, x: TensorId) -> Option<(NodeId, TensorId)> {
    let (id, node) = producer(graph, x)?;
    let from = node.input(0).filter(|_| CASTS.contains(&node.operator.as_str()))?;
    let is_half = matches!(graph.tensor(from).spec.dtype, DType::Float16 | DType::BFloat16);
    is_half.then_some((id, from))
}

/// Does `node` make what has the type and the shape of `like`?
fn is_cast_to(graph: &Graph, node: NodeId, like: TensorId) -> bool {
    let node = graph.node(node);
    let spec = &graph.tensor(like).spec;
    CASTS.contains(&node.operator.as_str())
        && node.output().is_some_and(|t| {
            let made = &graph.tensor(t).spec;
            made.dtype == spec.dtype && made.shape == spec.shape
        })
}

/// The weight that `node` multiplies each row of `rows` with, and its result.
fn weighted(graph: &Graph, node: NodeId, rows: TensorId) -> Option<(TensorId, TensorId)> {
    let node = graph.node(node);
    let (a, b, result) = (node.input(0)?, node.input(1)?, node.output()?);
    let weight = if a == rows { b } else { a };
    let (given, spec) = (&graph.tensor(weight).spec, &graph.tensor(rows).spec);
    let n = spec.shape.last().copied()?;
    let is_row = given.shape.last() == Some(&n)
        && given.shape.numel().is_ok_and(|count| count == n)
        && given.shape.len() <= spec.shape.len();
    let made = &graph.tensor(result).spec;
    let is_product = node.operator == PRODUCT && node.epilogue.is_none() && weight != rows;
    let is_alike = made.dtype == spec.dtype && made.shape == spec.shape && !given.is_dynamic();
    (is_product && is_row && is_alike).then_some((weight, result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Literal;
    use crate::graph::testing::{AnyKernel, Builder};

    const SHAPE: &[usize] = &[4, 16];

    fn cast(b: &mut Builder, x: TensorId, dtype: DType) -> TensorId {
        let y = b.call(CASTS[0], &[x], SHAPE);
        b.cast(y, dtype)
    }

    fn normalised(b: &mut Builder, x: TensorId, dim: i64) -> TensorId {
        let two = Argument::Literal(Literal::Double(2.0), None);
        let square = b.call_with(POWER, vec![Argument::Tensor(x), two], SHAPE);
        let dims = vec![Argument::Tensor(square), Argument::ints(&[dim]), Argument::int(1), Argument::none()];
        let mean = b.call_with("aten::mean.out", dims, &[4, 1]);
        let eps = Argument::Literal(Literal::Double(1e-5), None);
        let sum = vec![Argument::Tensor(mean), eps, Argument::int(1)];
        let sum = b.call_with("aten::add.Scalar_out", sum, &[4, 1]);
        let root = b.call("aten::rsqrt.out", &[sum], &[4, 1]);
        b.call(PRODUCT, &[x, root], SHAPE)
    }

    fn norm(b: &Builder, result: TensorId) -> Option<(RmsNorm, usize)> {
        let node = b.graph.node(b.graph.producer(result).unwrap());
        match node.op {
            Op::RmsNorm(norm) => Some((norm, node.covers.len())),
            _ => None,
        }
    }

    fn rounded(eps: f32, has_weight: bool, rounds: bool) -> RmsNorm {
        RmsNorm { eps, has_weight, rounds }
    }

    #[test]
    fn a_norm_in_f32_with_and_without_weight() {
        let mut b = Builder::new();
        let x = b.border(SHAPE);
        let w = b.constant(&[16]);
        let n = normalised(&mut b, x, -1);
        let y = b.call(PRODUCT, &[w, n], SHAPE);
        let alone = normalised(&mut b, y, 1);
        b.name("alone", alone).pin("alone", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 2);
        assert_eq!(norm(&b, y), Some((rounded(1e-5, true, false), 6)));
        assert_eq!(norm(&b, alone), Some((rounded(1e-5, false, false), 5)));
    }

    #[test]
    fn casts_go_with_the_norm() {
        for is_early in [true, false] {
            let mut b = Builder::new();
            let x = b.border(SHAPE);
            b.cast(x, DType::BFloat16);
            let w = b.constant(&[16]);
            let wide = cast(&mut b, x, DType::Float32);
            let mut y = normalised(&mut b, wide, -1);
            if is_early {
                b.cast(w, DType::BFloat16);
                y = cast(&mut b, y, DType::BFloat16);
                y = b.call(PRODUCT, &[y, w], SHAPE);
                b.cast(y, DType::BFloat16);
            } else {
                y = b.call(PRODUCT, &[y, w], SHAPE);
                y = cast(&mut b, y, DType::BFloat16);
            }
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
            assert_eq!(norm(&b, y), Some((rounded(1e-5, true, is_early), 8)));
            assert_eq!(b.graph.live().count(), 1);
        }
    }

    #[test]
    fn what_others_read_or_another_mean_stays() {
        let mut b = Builder::new();
        let x = b.border(SHAPE);
        let y = normalised(&mut b, x, 0);
        assert_eq!((apply(&mut b.graph, &mut AnyKernel).unwrap(), norm(&b, y)), (0, None));
        let mut b = Builder::new();
        let x = b.border(SHAPE);
        let y = normalised(&mut b, x, -1);
        let root = b.graph.node(b.graph.producer(y).unwrap()).input(1).unwrap();
        b.call("aten::neg.out", &[root], &[4, 1]);
        assert_eq!((apply(&mut b.graph, &mut AnyKernel).unwrap(), norm(&b, y)), (0, None));
    }
}
