//! `write_as_shown`: a product of rows writes the copy by which its result gets more dimensions.
//!
//! *Before*: `y = mm(x, W); z = view_copy(y, [b, l, n])`. *After*: `z = row product(view(x, [b, l, k]), W)`, also with the
//! addend of `addmm` and with what was fused behind the product.
//!
//! A result that the caller sees cannot be a view of memory that the run keeps to itself, so the last layer of a model
//! over tokens is copied, which for a vocabulary is the largest tensor of all. Applies where nobody else reads `y` and
//! all shapes are known. Exact: the same product. Runs behind the rules that fuse.

use super::rule::Rule;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use pteron_core::{DType, Result, TensorSpec};

pub(super) const RULE: Rule = Rule {
    name: "write_as_shown",
    about: "a product writes the copy that has more dimensions",
    needs: &[&[ADDMM, MM], &[VIEW_COPY]],
    apply,
};

const ADDMM: &str = "aten::addmm.out";
const MM: &str = "aten::mm.out";
const VIEW_COPY: &str = "aten::view_copy.out";

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for copy in graph.ids() {
        if let Some(found) = find(graph, copy)
            && host.can_prepare(graph, &graph.node(found.product).draft())?
        {
            count += usize::from(write(graph, host, copy, found)?);
        }
    }
    Ok(count)
}

/// The product, its arguments, and the rows in the dimensions of the copy.
struct Found {
    product: NodeId,
    x: TensorId,
    weight: TensorId,
    addend: Option<TensorId>,
    z: TensorId,
    rows: TensorSpec,
}

fn find(graph: &Graph, copy: NodeId) -> Option<Found> {
    let node = graph.node(copy);
    let is_copy = graph.is_live(copy) && node.operator == VIEW_COPY && node.epilogue.is_none();
    let (y, z) = (node.input(0).filter(|_| is_copy)?, node.output()?);
    let product = graph.sole_producer(y)?;
    let (x, weight, addend) = operands(graph.node(product))?;
    let is_plain = |t: TensorId| {
        let spec = &graph.tensor(t).spec;
        spec.dtype == DType::Float32 && spec.dim_order.is_contiguous() && !spec.is_dynamic()
    };
    let shape = |t: TensorId| &graph.tensor(t).spec.shape;
    let (&[_, k], &[rows, n]) = (&**shape(x), &**shape(y)) else { return None };
    let (last, leading) = shape(z).split_last()?;
    // A row that is added is the same for all others; a matrix is not a bias.
    let is_row = |t: TensorId| is_plain(t) && **shape(t) == [n];
    let is_fit = graph.tensor(y).is_private()
        && [x, y, z].into_iter().all(is_plain)
        && *last == n
        // A file may say anything: what does not fit fails where it is executed.
        && leading.iter().try_fold(1usize, |m, d| m.checked_mul(*d)) == Some(rows)
        && addend.is_none_or(is_row);
    let all: Vec<usize> = leading.iter().copied().chain([k]).collect();
    let rows = TensorSpec::contiguous(DType::Float32, &all).ok()?;
    is_fit.then_some(Found { product, x, weight, addend, z, rows })
}

/// Rows, matrix and addend of a product without factors, and without a residual behind it.
fn operands(node: &Node) -> Option<(TensorId, TensorId, Option<TensorId>)> {
    let is_one = |position: usize| node.number(position) == Some(1.0);
    match node.operator.as_str() {
        _ if node.op != Op::Linear || node.epilogue.residual.is_some() => None,
        ADDMM if is_one(3) && is_one(4) => Some((node.input(1)?, node.input(2)?, node.input(0))),
        MM => Some((node.input(0)?, node.input(1)?, None)),
        _ => None,
    }
}

fn write(graph: &mut Graph, host: &mut dyn Host, copy: NodeId, found: Found) -> Result<bool> {
    let Found { product, x, weight, addend, z, rows } = found;
    let sizes = Argument::extents(&rows.shape);
    let shown = graph.new_tensor(rows);
    let args = [shown, weight].into_iter().chain(addend).map(Argument::Tensor).collect();
    let epilogue = graph.node(product).epilogue.clone();
    let draft = Draft { op: Op::RowProduct, epilogue, ..Draft::call("", args, z) };
    if !host.can_prepare(graph, &draft)? {
        return Ok(false);
    }
    let view = graph.insert_before(copy, Draft::view(x, sizes, shown));
    let is_replaced = graph.replace(&[product, copy], draft).is_some();
    if !is_replaced {
        graph.remove(view);
    }
    Ok(is_replaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ET_VIEW;
    use crate::graph::testing::{AnyKernel, Builder};

    /// `z = view_copy(mm(x, W))` or of `addmm`, `z` at the border.
    fn head(bias: Option<&[usize]>) -> Builder {
        let mut b = Builder::new();
        let x = b.border(&[6, 8]);
        let w = b.constant(&[8, 16]);
        let y = match bias {
            Some(shape) => {
                let bias = b.constant(shape);
                let mut args: Vec<Argument> = [bias, x, w].map(Argument::Tensor).into();
                args.extend([Argument::int(1), Argument::int(1)]);
                b.call_with(ADDMM, args, &[6, 16])
            }
            None => b.call_with(MM, [x, w].map(Argument::Tensor).into(), &[6, 16]),
        };
        let z = b.call_with(VIEW_COPY, vec![Argument::Tensor(y), Argument::ints(&[2, 3, 16])], &[2, 3, 16]);
        b.name("x", x).name("y", y).name("z", z).pin("z", 4096);
        b
    }

    fn operators(b: &Builder) -> Vec<&str> {
        b.graph.live().map(|(_, n)| n.operator.as_str()).collect()
    }

    #[test]
    fn the_product_writes_the_copy() {
        for bias in [None, Some(&[16][..])] {
            let mut b = head(bias);
            assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
            assert_eq!(operators(&b), [ET_VIEW, ""]);
            let product = b.graph.live().last().unwrap().1;
            assert_eq!(*b.graph.tensor(product.input(0).unwrap()).spec.shape, [2, 3, 8]);
            assert_eq!((&product.op, product.output()), (&Op::RowProduct, Some(b.get("z"))));
            assert_eq!(product.inputs().count(), 2 + usize::from(bias.is_some()));
        }
    }

    #[test]
    fn what_others_read_and_matrices_that_are_added_stay() {
        let mut b = head(None);
        let y = b.get("y");
        b.call("aten::exp.out", &[y], &[6, 16]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = head(Some(&[6, 16]));
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn a_copy_of_another_number_of_rows_is_left_to_fail() {
        let mut b = Builder::new();
        let (x, w) = (b.border(&[6, 8]), b.constant(&[8, 16]));
        let y = b.call_with(MM, [x, w].map(Argument::Tensor).into(), &[6, 16]);
        let sizes = Argument::ints(&[2, 2, 16]);
        let z = b.call_with(VIEW_COPY, vec![Argument::Tensor(y), sizes], &[2, 2, 16]);
        b.name("z", z).pin("z", 4096);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn rows_that_the_copy_overwrites_stay_apart() {
        let mut b = head(None);
        // The rows lie where the copy will.
        b.pin("z", 0);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        assert_eq!(operators(&b), [MM, VIEW_COPY]);
    }
}
