//! `sink_views`: a view between a matrix product (in floats or integers) or convolution and an elementwise call moves behind the call.
//!
//! *Before*: `y = linear(x, W); v = view(y, [b, l, n]); z = gelu(v)`. *After*: `t = gelu(y); z = view(t)`; with
//! `z = add(v, r)`: `t = add(y, view(r)); z = view(t)`.
//!
//! Behind `channels_last` ([`sink_image_views`]) the same is done with views between rows and images whose channels are
//! last, which are the same bytes: `y` is the result of a convolution, or `v` is the image.
//!
//! `mul(v, sigmoid(v))` moves as one.
//!
//! Other operands are constants, one number or one per column, which stay, or a summand like `r`. Applies when
//! nobody else reads `y` or `v` and `z` is seen by this run alone. Exact: the same numbers, in
//! the same order in memory. Views cost nothing; what is gained is that the other rules see the call
//! right behind the product.

use super::rule::{Rule, WEIGHTED};
use crate::graph::{Argument, Draft, ET_VIEW, Graph, Host, NodeId, Op, TensorId};
use pteron_core::{DType, Result, TensorSpec};

pub(super) const RULE: Rule = Rule {
    name: "sink_views",
    about: "a view behind a product moves behind the elementwise call that reads it",
    // Views need no instruction: some files leave them unsaid.
    needs: &[WEIGHTED, ELEMENTWISE],
    apply,
};

/// Calls with one operand or two.
const ELEMENTWISE: &[&str] = &[
    "aten::relu.out",
    "aten::gelu.out",
    "aten::sigmoid.out",
    "aten::tanh.out",
    "aten::hardtanh.out",
    "aten::clamp.out",
    "aten::leaky_relu.out",
    "aten::add.Scalar_out",
    "aten::sub.Scalar_out",
    "aten::mul.Scalar_out",
    "aten::div.Scalar_out",
    "aten::add.out",
    "aten::sub.out",
    "aten::mul.out",
    "aten::div.out",
];

/// Those with a second tensor: a constant row or number, or, of the first, a summand of the shape of the view.
const PAIRS: &[&str] = &["aten::add.out", "aten::sub.out", "aten::mul.out", "aten::div.out"];

/// Views whose argument 1 is the sizes of their result.
const NAMES_SIZES: &[&str] = &[ET_VIEW, "aten::view_copy.out"];

fn apply(graph: &mut Graph, _: &mut dyn Host) -> Result<usize> {
    Ok(sink_all(graph, Shows::Rows))
}

/// Views between rows and images: those that are the same bytes since images have their channels last.
pub(super) fn sink_image_views(graph: &mut Graph) -> usize {
    sink_all(graph, Shows::Image)
}

fn sink_all(graph: &mut Graph, shows: Shows) -> usize {
    let mut count = 0;
    for call in graph.ids() {
        let found = (0..2).find_map(|position| find(graph, call, position, shows));
        count += match found {
            Some(found) => usize::from(sink(graph, call, &found)),
            None => usize::from(sink_gate(graph, call, shows)),
        };
    }
    count
}

/// What a view is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// Rows, and rows with more dimensions.
    Rows,
    /// Rows of pixels, and an image: what is one for each row is no row of the other.
    Image,
}

impl Shows {
    fn is_fit(self, from: &TensorSpec, to: &TensorSpec) -> bool {
        let is_row_major = |s: &TensorSpec| s.dim_order.is_contiguous();
        let is_image = |s: &TensorSpec| {
            s.dim_order.is_channels_last() && matches!(s.shape.len(), 3..=5) && !s.is_dynamic()
        };
        let is_f32 = [from, to].iter().all(|s| s.dtype == DType::Float32);
        is_f32
            && match self {
                Shows::Rows => {
                    from.shape.len() == 2
                        && is_row_major(from)
                        && is_row_major(to)
                        && to.shape.last() == from.shape.last()
                }
                Shows::Image if is_image(to) => {
                    from.shape.len() == 2 && is_row_major(from) && from.shape.last() == to.shape.get(1)
                }
                Shows::Image => is_image(from) && is_row_major(to) && from.shape.get(1) == to.shape.last(),
            }
    }
}

/// `y`, `v`, the node between them, and the other summand if it has to be seen as rows, too.
struct Found {
    y: TensorId,
    v: TensorId,
    view: NodeId,
    other: Option<TensorId>,
}

fn find(graph: &Graph, call: NodeId, position: usize, shows: Shows) -> Option<Found> {
    let node = graph.node(call);
    if !graph.is_live(call) || !ELEMENTWISE.contains(&node.operator.as_str()) || !node.epilogue.is_none() {
        return None;
    }
    let (v, z) = (node.input(position)?, node.output()?);
    let view = graph.sole_producer(v)?;
    let y = graph.node(view).input(0).filter(|_| graph.node(view).op == Op::View)?;
    let (from, to) = (&graph.tensor(y).spec, &graph.tensor(v).spec);
    let is_fit = is_of_product(graph, y)
        && shows.is_fit(from, to)
        && graph.tensor(z).is_private()
        && graph.tensor(z).spec == *to;
    let other = node.input(1 - position).filter(|r| *r != v);
    if !is_fit || other.is_some() != PAIRS.contains(&node.operator.as_str()) {
        return None;
    }
    let other = match other {
        Some(r) if is_row(graph, r, to.shape.last().copied().filter(|_| shows == Shows::Rows)) => None,
        Some(r) if node.operator == PAIRS[0] && graph.tensor(r).spec == *to => Some(r),
        Some(_) => return None,
        None => None,
    };
    Some(Found { y, v, view, other })
}

/// `z = mul(v, sigmoid(v))`, which reads the view twice: both calls move behind the product, the view behind them.
fn sink_gate(graph: &mut Graph, mul: NodeId, shows: Shows) -> bool {
    let Some(Gate { view, call, v, s, y }) = find_gate(graph, mul, shows) else { return false };
    let Some(z) = graph.node(mul).output() else { return false };
    let Some(sizes) = named_sizes(graph, view, v) else { return false };
    let spec = graph.tensor(y).spec.clone();
    let (t, u) = (graph.new_tensor(spec.clone()), graph.new_tensor(spec));
    let (mut inner, mut outer) = (graph.node(call).draft(), graph.node(mul).draft());
    for (from, to) in [(v, y), (s, t), (z, u)] {
        inner.rename(from, to);
        outer.rename(from, to);
    }
    let after = Draft::view(u, sizes, z);
    if !graph.can_replace(&[view, call, mul], &after) {
        return false;
    }
    let inserted = graph.insert_before(mul, inner);
    graph.cover(inserted, &[call]);
    graph.insert_before(mul, outer);
    graph.replace(&[view, call, mul], after).is_some()
}

struct Gate {
    view: NodeId,
    call: NodeId,
    v: TensorId,
    s: TensorId,
    y: TensorId,
}

fn find_gate(graph: &Graph, mul: NodeId, shows: Shows) -> Option<Gate> {
    let node = graph.node(mul);
    if !graph.is_live(mul) || node.operator != "aten::mul.out" || !node.epilogue.is_none() {
        return None;
    }
    let z = node.output().filter(|z| graph.tensor(*z).is_private())?;
    (0..2).find_map(|position| {
        let (v, s) = (node.input(position)?, node.input(1 - position)?);
        let call = graph.sole_producer(s)?;
        let gate = graph.node(call);
        let is_gate = gate.operator == "aten::sigmoid.out"
            && gate.epilogue.is_none()
            && gate.input(0) == Some(v)
            && graph.readers(v).iter().all(|reader| [call, mul].contains(reader));
        let view = graph.producer(v).filter(|p| is_gate && graph.node(*p).op == Op::View)?;
        let y = graph.node(view).input(0)?;
        let to = &graph.tensor(v).spec;
        let is_alike = [s, z].iter().all(|t| graph.tensor(*t).spec == *to);
        let is_fit = graph.tensor(v).is_private()
            && is_alike
            && is_of_product(graph, y)
            && shows.is_fit(&graph.tensor(y).spec, to);
        is_fit.then_some(Gate { view, call, v, s, y })
    })
}

/// Calls behind a product that are looked at: more than a tail of a product takes in.
const MOST_CALLS: usize = 16;

/// A product that nobody else reads, or one that went through calls with constants and sums?
fn is_of_product(graph: &Graph, y: TensorId) -> bool {
    let mut left = vec![y];
    for _ in 0..MOST_CALLS {
        let Some(tensor) = left.pop() else { return false };
        let Some(node) = graph.sole_producer(tensor).map(|p| graph.node(p)) else { continue };
        if node.op.takes_epilogue() || matches!(node.op, Op::Integer(_)) {
            return true;
        }
        if ELEMENTWISE.contains(&node.operator.as_str()) && node.epilogue.is_none() {
            left.extend(node.inputs().filter(|t| !graph.tensor(*t).is_constant()));
        }
    }
    false
}

/// A constant that is the same for every row of so many columns, or everywhere?
fn is_row(graph: &Graph, tensor: TensorId, columns: Option<usize>) -> bool {
    let t = graph.tensor(tensor);
    t.is_constant()
        && match &*t.spec.shape {
            [] => true,
            [n] | [1, n] => *n == 1 || Some(*n) == columns,
            _ => false,
        }
}

/// The sizes that the node `view` gives its result `v`, as an argument. A view that names its sizes hands them on: those
/// of a dynamic tensor are known in the call alone.
pub(super) fn named_sizes(graph: &Graph, view: NodeId, v: TensorId) -> Option<Argument> {
    let (shown, spec) = (graph.node(view), &graph.tensor(v).spec);
    match shown.args.get(1) {
        Some(sizes) if NAMES_SIZES.contains(&shown.operator.as_str()) => Some(sizes.clone()),
        _ if spec.is_dynamic() => None,
        _ => Some(Argument::extents(&spec.shape)),
    }
}

fn sink(graph: &mut Graph, call: NodeId, found: &Found) -> bool {
    let Found { y, v, view, other } = *found;
    let Some(z) = graph.node(call).output() else { return false };
    let spec = graph.tensor(y).spec.clone();
    let Some(sizes) = named_sizes(graph, view, v) else { return false };
    let t = graph.new_tensor(spec.clone());
    let after = Draft::view(t, sizes, z);
    let mut moved = graph.node(call).draft();
    moved.rename(v, y);
    moved.rename(z, t);
    if !graph.can_replace(&[view, call], &after) {
        return false;
    }
    if let Some(other) = other {
        // Of an image, its own sizes: it is as large in every call.
        let sizes = match *spec.shape {
            [_, columns] => Argument::ints(&[-1, columns as i64]),
            _ => Argument::extents(&spec.shape),
        };
        let flat = graph.new_tensor(spec);
        graph.insert_before(call, Draft::view(other, sizes, flat));
        moved.rename(other, flat);
    }
    graph.insert_before(call, moved);
    graph.replace(&[view, call], after).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};

    fn viewed(b: &mut Builder) -> TensorId {
        let x = b.border(&[6, 8]);
        let w = b.constant(&[8, 16]);
        let y = b.call("aten::mm.out", &[x, w], &[6, 16]);
        b.call_with(ET_VIEW, vec![Argument::Tensor(y), Argument::ints(&[2, 3, 16])], &[2, 3, 16])
    }

    #[test]
    fn a_call_moves_to_the_product() {
        let mut b = Builder::new();
        let v = viewed(&mut b);
        let z = b.call("aten::gelu.out", &[v], &[2, 3, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
        assert_eq!(operators, ["aten::mm.out", "aten::gelu.out", ET_VIEW]);
        assert_eq!(b.graph.node(b.graph.producer(z).unwrap()).op, Op::View);
    }

    #[test]
    fn the_other_summand_is_seen_flat() {
        let mut b = Builder::new();
        let v = viewed(&mut b);
        let r = b.border(&[2, 3, 16]);
        let args = vec![Argument::Tensor(r), Argument::Tensor(v), Argument::int(1)];
        b.call_with("aten::add.out", args, &[2, 3, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
        assert_eq!(operators, ["aten::mm.out", ET_VIEW, "aten::add.out", ET_VIEW]);
    }

    #[test]
    fn a_gate_moves_as_one() {
        for is_read_elsewhere in [false, true] {
            let mut b = Builder::new();
            let v = viewed(&mut b);
            let s = b.call("aten::sigmoid.out", &[v], &[2, 3, 16]);
            let z = b.call("aten::mul.out", &[v, s], &[2, 3, 16]);
            if is_read_elsewhere {
                b.call("aten::exp.out", &[v], &[2, 3, 16]);
            }
            b.call("aten::exp.out", &[z], &[2, 3, 16]);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), usize::from(!is_read_elsewhere));
            let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
            if !is_read_elsewhere {
                let moved = ["aten::mm.out", "aten::sigmoid.out", "aten::mul.out", ET_VIEW, "aten::exp.out"];
                assert_eq!(operators, moved);
            }
        }
    }

    #[test]
    fn of_images_a_call_and_a_sum_move_and_a_row_stays() {
        let mut b = Builder::new();
        let x = b.border(&[6, 8]);
        let w = b.constant(&[8, 16]);
        let y = b.call("aten::mm.out", &[x, w], &[6, 16]);
        let sizes = Argument::ints(&[1, 16, 2, 3]);
        let v = b.call_with(ET_VIEW, vec![Argument::Tensor(y), sizes], &[1, 16, 2, 3]);
        let s = b.call("aten::gelu.out", &[v], &[1, 16, 2, 3]);
        let r = b.call("aten::exp.out", &[x], &[1, 16, 2, 3]);
        let args = vec![Argument::Tensor(s), Argument::Tensor(r), Argument::int(1)];
        let z = b.call_with("aten::add.out", args, &[1, 16, 2, 3]);
        let row = b.constant(&[3]);
        b.call("aten::mul.out", &[z, row], &[1, 16, 2, 3]);
        let order = pteron_core::DimOrder::new(&[0, 2, 3, 1]).unwrap();
        for image in [v, s, r, z] {
            assert!(b.graph.set_dim_order(image, order));
        }
        assert_eq!(sink_image_views(&mut b.graph), 2);
        let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
        let moved = ["aten::mm.out", "aten::gelu.out", "aten::exp.out", ET_VIEW, "aten::add.out", ET_VIEW];
        assert_eq!(operators, [&moved[..], &["aten::mul.out"]].concat());
    }

    #[test]
    fn chains_of_any_length_are_looked_at_for_a_while() {
        let mut b = Builder::new();
        let mut y = b.border(&[6, 16]);
        for _ in 0..200_000 {
            y = b.call("aten::relu.out", &[y], &[6, 16]);
        }
        let v = b.call_with(ET_VIEW, vec![Argument::Tensor(y), Argument::ints(&[2, 3, 16])], &[2, 3, 16]);
        b.call("aten::gelu.out", &[v], &[2, 3, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn results_at_the_border_keep_their_shape() {
        let mut b = Builder::new();
        let v = viewed(&mut b);
        let z = b.call("aten::gelu.out", &[v], &[2, 3, 16]);
        b.name("z", z).pin("z", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }
}
