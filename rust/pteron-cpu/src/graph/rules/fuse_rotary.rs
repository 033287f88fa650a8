//! `fuse_rotary`: the calls that a rotary embedding was written as become one.
//!
//! *Before*: `a = slice(x, 0..n/2); b = slice(x, n/2..); y = x · cos + cat(neg(b), a) · sin`. *After*: `y = rotary(x, cos, sin)`.
//!
//! Where a row is turned in part (Phi), `x` is a slice of it and the rest is joined behind `y`: both go, too. So do the permute
//! that makes heads the second dimension, and a number that `y` is multiplied with. Exact: the kernel gives the bytes of the
//! separate calls.

use super::rule::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use crate::rotary::{RANK, Rotary};
use pteron_core::Result;
use smallvec::smallvec;
use std::cmp::Ordering;

pub(super) const RULE: Rule = Rule {
    name: "fuse_rotary",
    about: "the calls of a rotary embedding into one step, with the permute before and the factor behind it",
    needs: &[&[SLICE], &[JOIN], &["aten::neg.out"]],
    apply,
};

const SLICE: &str = "aten::slice_copy.Tensor_out";
const JOIN: &str = "aten::cat.out";
const PRODUCT: &str = "aten::mul.out";

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        if !graph.is_live(id) {
            continue;
        }
        let Some(found) = find(graph, id) else { continue };
        for (nodes, draft) in found.forms(graph, host) {
            if host.can_prepare(graph, &draft)? && graph.replace(&nodes, draft).is_some() {
                count += 1;
                break;
            }
        }
    }
    Ok(count)
}

/// `x · cos + cat(neg(b), a) · sin`, with what belongs to it.
struct Found {
    nodes: Vec<NodeId>,
    x: TensorId,
    cos: TensorId,
    sin: TensorId,
    out: TensorId,
}

/// The plain call of `operator` that makes `tensor`.
fn call<'a>(graph: &'a Graph, tensor: TensorId, operator: &str) -> Option<(NodeId, &'a Node)> {
    let id = graph.producer(tensor)?;
    let node = graph.node(id);
    (node.operator == operator && node.epilogue.is_none()).then_some((id, node))
}

fn find(graph: &Graph, id: NodeId) -> Option<Found> {
    let node = graph.node(id);
    if node.operator != "aten::add.out" || !node.epilogue.is_none() || node.number(2) != Some(1.0) {
        return None;
    }
    let (a, b) = (node.input(0)?, node.input(1)?);
    let found = [(a, b), (b, a)].into_iter().find_map(|(straight, turned)| {
        let (straight_id, straight) = call(graph, straight, PRODUCT)?;
        let (turned_id, turned) = call(graph, turned, PRODUCT)?;
        [(0, 1), (1, 0)].into_iter().find_map(|(join, sin)| {
            let (mut nodes, x) = halves(graph, turned.input(join)?)?;
            let (first, second) = (straight.input(0)?, straight.input(1)?);
            let cos = [(first, second), (second, first)].into_iter().find(|(from, _)| *from == x)?.1;
            nodes.extend([straight_id, turned_id, id]);
            Some(Found { nodes, x, cos, sin: turned.input(sin)?, out: node.output()? })
        })
    })?;
    let shape = |t: TensorId| &graph.tensor(t).spec.shape;
    let width = shape(found.x).last()?;
    let is_table = |t: TensorId| shape(t).last() == Some(width) && shape(t).len() <= RANK;
    let is_rotary = shape(found.x).len() == RANK
        && shape(found.out) == shape(found.x)
        && is_table(found.cos)
        && is_table(found.sin);
    is_rotary.then(|| found.of_whole_rows(graph))
}

/// The first and the last element that a slice of the last dimension by steps of one takes, and what it is taken from.
fn sliced(graph: &Graph, node: &Node) -> Option<(TensorId, i64, i64)> {
    let x = node.input(0)?;
    let shape = &graph.tensor(x).spec.shape;
    let width = i64::try_from(*shape.last()?).ok()?;
    let last = shape.len() as f64 - 1.0;
    let is_last = node.number(1).is_some_and(|d| d == -1.0 || d == last);
    let bound = |at: usize, absent: i64| match node.args.get(at) {
        Some(Argument::Literal(crate::graph::Literal::Int(v), _)) => Some(*v),
        Some(_) if node.is_none(at) => Some(absent),
        _ => None,
    };
    let wrapped = |v: i64| (if v < 0 { v.saturating_add(width) } else { v }).clamp(0, width);
    let (start, end) = (wrapped(bound(2, 0)?), wrapped(bound(3, width)?));
    (is_last && node.number(4) == Some(1.0) && node.operator == SLICE).then_some((x, start, end))
}

/// Two tensors that a call joins along the last dimension.
fn joined(graph: &Graph, node: &Node) -> Option<[TensorId; 2]> {
    let Some(Argument::Tensors(list)) = node.args.first() else { return None };
    let &[Some(first), Some(second)] = list.as_slice() else { return None };
    let last = graph.tensor(first).spec.shape.len() as f64 - 1.0;
    let is_last = node.number(1).is_some_and(|d| d == -1.0 || d == last);
    (is_last && node.operator == JOIN).then_some([first, second])
}

/// `x`, where `tensor` is its halves swapped and the one that is first then negated.
fn halves(graph: &Graph, tensor: TensorId) -> Option<(Vec<NodeId>, TensorId)> {
    let (join_id, join) = call(graph, tensor, JOIN)?;
    let [negated, first] = joined(graph, join)?;
    let (negated_id, negated) = call(graph, negated, "aten::neg.out")?;
    let (second_id, second) = call(graph, negated.input(0)?, SLICE)?;
    let (first_id, first) = call(graph, first, SLICE)?;
    let (x, from, end) = sliced(graph, second)?;
    let (other, start, to) = sliced(graph, first)?;
    let width = i64::try_from(*graph.tensor(x).spec.shape.last()?).ok()?;
    let are_halves =
        other == x && start == 0 && to == from && end == width && from.checked_mul(2) == Some(width);
    are_halves.then(|| (vec![first_id, second_id, negated_id, join_id], x))
}

impl Found {
    /// The same of whole rows, if `x` is their beginning and what is left of them is joined behind the result.
    fn of_whole_rows(self, graph: &Graph) -> Found {
        let whole = || {
            let (begin_id, begin) = call(graph, self.x, SLICE)?;
            let (x, start, middle) = sliced(graph, begin)?;
            let join_id = graph.only_reader(self.out)?;
            let join = graph.node(join_id);
            let [turned, kept] = joined(graph, join).filter(|_| join.epilogue.is_none())?;
            let (kept_id, kept) = call(graph, kept, SLICE)?;
            let (other, from, end) = sliced(graph, kept)?;
            let width = i64::try_from(*graph.tensor(x).spec.shape.last()?).ok()?;
            let is_whole = turned == self.out && other == x && start == 0 && from == middle && end == width;
            let out = join.output().filter(|_| is_whole)?;
            let mut nodes = self.nodes.clone();
            nodes.extend([begin_id, kept_id, join_id]);
            Some(Found { nodes, x, out, ..self })
        };
        whole().unwrap_or(self)
    }

    /// What can stand for it, the most first: with a permute before it and a factor behind it, without one, without both.
    fn forms(&self, graph: &Graph, host: &dyn Host) -> Vec<(Vec<NodeId>, Draft)> {
        let before = permuted(graph, self.x);
        let behind = multiplied(graph, host, self.out);
        let mut forms = Vec::new();
        for (has_before, has_behind) in [(true, true), (true, false), (false, true), (false, false)] {
            let (before, behind) = (before.filter(|_| has_before), behind.filter(|_| has_behind));
            if before.is_some() != has_before || behind.is_some() != has_behind {
                continue;
            }
            let mut nodes = self.nodes.clone();
            nodes.extend(before.iter().map(|b| b.0));
            nodes.extend(behind.iter().map(|b| b.0));
            nodes.sort_by(|a, b| match (a == b, graph.is_before(*a, *b)) {
                (true, _) => Ordering::Equal,
                (_, true) => Ordering::Less,
                (_, false) => Ordering::Greater,
            });
            nodes.dedup();
            let x = before.map_or(self.x, |(_, x, _)| x);
            let out = behind.map_or(self.out, |(_, out, _)| out);
            let order = before.map_or([0, 1, 2, 3], |(_, _, order)| order);
            let args = [x, self.cos, self.sin, out].into_iter().map(Argument::Tensor).collect();
            let draft = Draft {
                op: Op::Rotary(Rotary { order, factor: behind.map(|(_, _, factor)| factor) }),
                operator: String::new(),
                args,
                outputs: smallvec![out],
                epilogue: Epilogue::NONE,
            };
            forms.push((nodes, draft));
        }
        forms
    }
}

/// The permute that makes `x`, which keeps the last dimension: its source and its order.
fn permuted(graph: &Graph, x: TensorId) -> Option<(NodeId, TensorId, [u8; RANK])> {
    let (id, node) = call(graph, x, "aten::permute_copy.out")?;
    let wrap = |d: &i64| u8::try_from(if *d < 0 { d + RANK as i64 } else { *d }).ok();
    let order: Option<Vec<u8>> = node.ints(1)?.iter().map(wrap).collect();
    let order: [u8; RANK] = order?.try_into().ok()?;
    let is_permutation = (0..RANK as u8).all(|dim| order.contains(&dim));
    (is_permutation && order[RANK - 1] == RANK as u8 - 1).then_some((id, node.input(0)?, order))
}

/// The product of `y` with a number that is all that reads `y`, and the number.
fn multiplied(graph: &Graph, host: &dyn Host, y: TensorId) -> Option<(NodeId, TensorId, f32)> {
    let id = graph.only_reader(y)?;
    let node = graph.node(id);
    let out = node.output().filter(|_| node.epilogue.is_none())?;
    let factor = match node.operator.as_str() {
        "aten::mul.Scalar_out" => node.number(1)? as f32,
        PRODUCT => {
            let (a, b) = (node.input(0)?, node.input(1)?);
            let other = if a == y { b } else { a };
            let is_one = graph.tensor(other).spec.shape.numel().is_ok_and(|n| n == 1);
            *host.constant(graph, other).filter(|_| is_one)?.to_vec::<f32>().ok()?.first()?
        }
        _ => return None,
    };
    let is_alike = graph.tensor(out).spec.shape == graph.tensor(y).spec.shape;
    is_alike.then_some((id, out, factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Literal;
    use crate::graph::testing::{AnyKernel, Builder};

    const HEADS: &[usize] = &[1, 2, 5, 8];

    fn slice(b: &mut Builder, x: TensorId, from: i64, to: i64, width: usize) -> TensorId {
        let numbers = [3, from, to, 1].map(Argument::int);
        let args = std::iter::once(Argument::Tensor(x)).chain(numbers).collect();
        b.call_with(SLICE, args, &[1, 2, 5, width])
    }

    fn join(b: &mut Builder, list: [TensorId; 2], width: usize) -> TensorId {
        let args = vec![Argument::Tensors(list.map(Some).into()), Argument::int(-1)];
        b.call_with(JOIN, args, &[1, 2, 5, width])
    }

    fn turned(b: &mut Builder, x: TensorId, width: usize, middle: i64) -> TensorId {
        let tables = [b.constant(&[1, 1, 5, width]), b.constant(&[1, 1, 5, width])];
        let shape = [1, 2, 5, width];
        let first = slice(b, x, 0, middle, width / 2);
        let second = slice(b, x, middle, i64::MAX, width / 2);
        let negated = b.call("aten::neg.out", &[second], &[1, 2, 5, width / 2]);
        let swapped = join(b, [negated, first], width);
        let straight = b.call(PRODUCT, &[x, tables[0]], &shape);
        let crossed = b.call(PRODUCT, &[swapped, tables[1]], &shape);
        let args = vec![Argument::Tensor(straight), Argument::Tensor(crossed), Argument::int(1)];
        b.call_with("aten::add.out", args, &shape)
    }

    fn rotary(b: &Builder, y: TensorId) -> Option<(Rotary, usize)> {
        let node = b.graph.node(b.graph.producer(y).unwrap());
        match node.op {
            Op::Rotary(rotary) => Some((rotary, node.covers.len())),
            _ => None,
        }
    }

    #[test]
    fn with_the_permute_before_and_the_factor_behind() {
        let mut b = Builder::new();
        let rows = b.border(&[1, 5, 2, 8]);
        let order = vec![Argument::Tensor(rows), Argument::ints(&[0, 2, 1, 3])];
        let x = b.call_with("aten::permute_copy.out", order, HEADS);
        let y = turned(&mut b, x, 8, 4);
        let half = Argument::Literal(Literal::Double(0.5), None);
        let z = b.call_with("aten::mul.Scalar_out", vec![Argument::Tensor(y), half], HEADS);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let want = Rotary { order: [0, 2, 1, 3], factor: Some(0.5) };
        assert_eq!((rotary(&b, z), b.graph.live().count()), (Some((want, 9)), 1));
    }

    #[test]
    fn a_part_of_a_row() {
        let mut b = Builder::new();
        let x = b.border(HEADS);
        let begin = slice(&mut b, x, 0, 6, 6);
        let kept = slice(&mut b, x, 6, 8, 2);
        let y = turned(&mut b, begin, 6, 3);
        let whole = join(&mut b, [y, kept], 8);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let want = Rotary { order: [0, 1, 2, 3], factor: None };
        assert_eq!((rotary(&b, whole), b.graph.live().count()), (Some((want, 10)), 1));
    }

    #[test]
    fn parts_that_are_no_halves_and_what_others_read_stay() {
        let mut b = Builder::new();
        let x = b.border(HEADS);
        let y = turned(&mut b, x, 8, 3);
        assert_eq!((apply(&mut b.graph, &mut AnyKernel).unwrap(), rotary(&b, y)), (0, None));
        let mut b = Builder::new();
        let x = b.border(HEADS);
        let y = turned(&mut b, x, 8, 4);
        let straight = b.graph.node(b.graph.producer(y).unwrap()).input(0).unwrap();
        b.call("aten::neg.out", &[straight], HEADS);
        assert_eq!((apply(&mut b.graph, &mut AnyKernel).unwrap(), rotary(&b, y)), (0, None));
    }
}
