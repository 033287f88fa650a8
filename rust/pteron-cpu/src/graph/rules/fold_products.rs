//! `fold_products`: a matrix product whose rows are the pixels of a convolution of single pixels goes into its weight.
//!
//! *Before*: `y = addmm(b1, x, W1); z = convolution(view(y), W2, b2)`, `W2` of 1 x 1. *After*:
//! `z = view(addmm(b, x, W1 · W2ᵀ))` with `b = W2 · b1 + b2`.
//!
//! Heads that segment bring maps of few channels to many, and convolve those: two products one behind the other are one.
//! Applies where nobody else reads `y` and the one product has fewer multiply-adds than the two. The weight is
//! computed in f64 and rounded once; it has to be finite. Runs behind `channels_last`, by which rows and image
//! are the same bytes. Sums are in another order: results differ by rounding (about 1e-6 of the largest output).

use super::pointwise::{Pointwise, is_row_major_constant, pointwise};
use super::rule::Rule;
use super::sink_views::sink_image_views;
use crate::graph::{Argument, Draft, Graph, Host, Node, NodeId, Op, TensorId};
use pteron_core::{AlignedBuffer, ConstantView, DType, Result, TensorSpec};

pub(super) const RULE: Rule = Rule {
    name: "fold_products",
    about: "a product of rows into the convolution of single pixels that reads them",
    needs: &[&["aten::convolution.out"], &[ADDMM, MM]],
    apply,
};

const ADDMM: &str = "aten::addmm.out";
const MM: &str = "aten::mm.out";
// Positions among the arguments of `addmm`.
const BETA: usize = 3;
const ALPHA: usize = 4;

/// Multiply-adds of a weight at most: loading computes them.
const MOST_PRODUCTS: usize = 1 << 26;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        if let Some(found) = find(graph, id) {
            count += usize::from(fold(graph, host, id, &found)?);
        }
    }
    if count > 0 {
        // Views behind products again.
        count += sink_image_views(graph);
    }
    Ok(count)
}

/// A product, the view of its rows as an image, and the convolution.
struct Found {
    product: NodeId,
    view: NodeId,
    weight: TensorId,
    bias: Option<TensorId>,
    input: TensorId,
    inputs: usize,
    convolution: Pointwise,
    /// Of the rows of the result.
    spec: TensorSpec,
}

fn find(graph: &Graph, id: NodeId) -> Option<Found> {
    let convolution = graph.is_live(id).then(|| pointwise(graph, graph.node(id))).flatten()?;
    let is_ours =
        |t: TensorId| graph.tensor(t).is_private() && graph.tensor(t).spec.dim_order.is_channels_last();
    if !is_ours(convolution.image) || !is_ours(convolution.out) {
        return None;
    }
    let view = graph.sole_producer(convolution.image).filter(|v| graph.node(*v).op == Op::View)?;
    let y = graph.node(view).input(0)?;
    let product = graph.sole_producer(y)?;
    let (input, weight, bias) = operands(graph, graph.node(product))?;
    let &[rows, between] = &*graph.tensor(y).spec.shape else { return None };
    let &[inputs, _] = &*graph.tensor(weight).spec.shape else { return None };
    let outputs = convolution.outputs;
    let together = inputs.checked_mul(between)?.checked_mul(outputs)?;
    let is_fit = graph.tensor(y).is_private()
        && graph.tensor(y).spec.dim_order.is_contiguous()
        && between == convolution.inputs
        && together <= MOST_PRODUCTS
        && inputs * outputs < inputs * between + between * outputs
        && graph.lasts_until(input, &[id]);
    let spec = TensorSpec::contiguous(DType::Float32, &[rows, outputs]).ok()?;
    is_fit.then_some(Found { product, view, weight, bias, input, inputs, convolution, spec })
}

/// Rows, weight and bias of a product with constants.
fn operands(graph: &Graph, node: &Node) -> Option<(TensorId, TensorId, Option<TensorId>)> {
    let is_plain = node.op == Op::Linear && node.epilogue.is_none();
    let (input, weight, bias) = match node.operator.as_str() {
        _ if !is_plain => return None,
        ADDMM if node.number(BETA) == Some(1.0) && node.number(ALPHA) == Some(1.0) => {
            (node.input(1)?, node.input(2)?, Some(node.input(0)?))
        }
        MM => (node.input(0)?, node.input(1)?, None),
        _ => return None,
    };
    let columns = graph.tensor(weight).spec.shape.get(1).copied()?;
    let is_row = |t: TensorId| *graph.tensor(t).spec.shape == [columns] && is_row_major_constant(graph, t);
    (is_row_major_constant(graph, weight) && bias.is_none_or(is_row)).then_some((input, weight, bias))
}

fn fold(graph: &mut Graph, host: &mut dyn Host, id: NodeId, found: &Found) -> Result<bool> {
    let Found { weight, bias, convolution, inputs, .. } = found;
    let (outputs, between) = (convolution.outputs, convolution.inputs);
    let spec = TensorSpec::contiguous(DType::Float32, &[*inputs, outputs])?;
    let mut make = |views: &[ConstantView<'_>]| match views {
        [first, second] => products(&first.row_major()?, &second.row_major()?, between, None),
        _ => Ok(None),
    };
    let sources = [*weight, convolution.weight];
    let Some(weight) = host.add_constant(graph, "products.weight", &sources, spec, &mut make)? else {
        return Ok(false);
    };
    let (has_first, has_second) = (bias.is_some(), convolution.bias.is_some());
    let mut made = None;
    if has_first || has_second {
        let mut make = |views: &[ConstantView<'_>]| {
            let (Some(filters), biases) = (views.first(), views.get(1..).unwrap_or_default()) else {
                return Ok(None);
            };
            let first = match biases.first().filter(|_| has_first) {
                Some(first) => first.to_vec()?,
                None => vec![0.0; between],
            };
            let second = biases.last().filter(|_| has_second).map(|b| b.to_vec()).transpose()?;
            products(&first, &filters.row_major()?, between, second.as_deref())
        };
        let spec = TensorSpec::contiguous(DType::Float32, &[outputs])?;
        let sources: Vec<TensorId> =
            [convolution.weight].into_iter().chain(*bias).chain(convolution.bias).collect();
        let recipe = format!("products.bias.{}{}", u8::from(has_first), u8::from(has_second));
        let Some(bias) = host.add_constant(graph, &recipe, &sources, spec, &mut make)? else {
            return Ok(false);
        };
        made = Some(bias);
    }
    let rows = graph.new_tensor(found.spec.clone());
    let product = product(found.input, weight, made, rows);
    if !host.can_prepare(graph, &product)? {
        return Ok(false);
    }
    let sizes = Argument::extents(&graph.tensor(convolution.out).spec.shape);
    let view = Draft::view(rows, sizes, convolution.out);
    let inserted = graph.insert_before(id, product);
    graph.cover(inserted, &[found.product, id]);
    let is_replaced = graph.replace(&[found.product, found.view, id], view).is_some();
    if !is_replaced {
        graph.remove(inserted);
    }
    Ok(is_replaced)
}

fn product(input: TensorId, weight: TensorId, bias: Option<TensorId>, rows: TensorId) -> Draft {
    let (operator, args) = match bias {
        Some(bias) => {
            let mut args: Vec<Argument> = [bias, input, weight].map(Argument::Tensor).into();
            args.extend([Argument::int(1), Argument::int(1)]);
            (ADDMM, args)
        }
        None => (MM, [input, weight].map(Argument::Tensor).into()),
    };
    Draft { op: Op::Linear, ..Draft::call(operator, args, rows) }
}

/// Rows of `between` numbers, each multiplied by every filter of as many, plus `added`: rows of as many numbers as there
/// are filters. `None` where one is not finite.
fn products(
    rows: &[f32],
    filters: &[f32],
    between: usize,
    added: Option<&[f32]>,
) -> Result<Option<AlignedBuffer>> {
    let outputs = filters.len().checked_div(between).unwrap_or(0);
    if outputs == 0 || added.is_some_and(|a| a.len() != outputs) {
        return Ok(None);
    }
    // Filters side by side, so that many sums grow at once.
    let mut turned = vec![0.0f64; filters.len()];
    for (o, filter) in filters.chunks_exact(between).enumerate() {
        for (m, value) in filter.iter().enumerate() {
            turned[m * outputs + o] = f64::from(*value);
        }
    }
    let mut out = AlignedBuffer::zeroed_to_keep(rows.len() / between * outputs * size_of::<f32>())?;
    let mut sums = vec![0.0f64; outputs];
    let to = out.as_mut_slice().chunks_exact_mut(outputs * size_of::<f32>());
    for (row, to) in rows.chunks_exact(between).zip(to) {
        match added {
            Some(added) => sums.iter_mut().zip(added).for_each(|(sum, a)| *sum = f64::from(*a)),
            None => sums.fill(0.0),
        }
        for (factor, filters) in row.iter().zip(turned.chunks_exact(outputs)) {
            let factor = f64::from(*factor);
            sums.iter_mut().zip(filters).for_each(|(sum, f)| *sum += factor * f);
        }
        for (sum, to) in sums.iter().zip(to.chunks_exact_mut(size_of::<f32>())) {
            let rounded = *sum as f32;
            if !rounded.is_finite() {
                return Ok(None);
            }
            to.copy_from_slice(&rounded.to_ne_bytes());
        }
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{AnyKernel, Builder};
    use crate::graph::{ET_VIEW, Literal};
    use pteron_core::DimOrder;

    fn head(b: &mut Builder, filters: &[usize]) -> TensorId {
        let x = b.border(&[64, 8]);
        let (w, bias) = (b.constant(&[8, 32]), b.constant(&[32]));
        let args = [bias, x, w].map(Argument::Tensor).into_iter();
        let args = args.chain([Argument::int(1), Argument::int(1)]).collect();
        let y = b.call_with(ADDMM, args, &[64, 32]);
        let image =
            b.call_with(ET_VIEW, vec![Argument::Tensor(y), Argument::ints(&[1, 32, 8, 8])], &[1, 32, 8, 8]);
        let ints = |v: i64| Argument::ints(&[v, v]);
        let flag = Argument::Literal(Literal::Bool(false), None);
        let filters = b.constant(filters);
        let mut args: Vec<Argument> = [image, filters].map(Argument::Tensor).into();
        args.extend([Argument::none(), ints(1), ints(0), ints(1), flag, ints(0), Argument::int(1)]);
        let z = b.call_with("aten::convolution.out", args, &[1, 48, 8, 8]);
        for image in [image, z] {
            assert!(b.graph.set_dim_order(image, DimOrder::new(&[0, 2, 3, 1]).unwrap()));
        }
        b.name("x", x).name("y", y);
        z
    }

    #[test]
    fn two_products_become_one() {
        let mut b = Builder::new();
        let z = head(&mut b, &[48, 32, 1, 1]);
        b.call("aten::exp.out", &[z], &[1, 48, 8, 8]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let operators: Vec<&str> = b.graph.live().map(|(_, n)| n.operator.as_str()).collect();
        assert_eq!(operators, [ADDMM, ET_VIEW, "aten::exp.out"]);
        let product = b.graph.live().next().unwrap().1;
        assert_eq!(product.input(1), Some(b.get("x")));
        assert_eq!(*b.graph.tensor(product.input(2).unwrap()).spec.shape, [8, 48]);
    }

    #[test]
    fn windows_and_rows_that_others_read_stay() {
        let mut b = Builder::new();
        head(&mut b, &[48, 32, 3, 3]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
        let mut b = Builder::new();
        head(&mut b, &[48, 32, 1, 1]);
        let y = b.get("y");
        b.call("aten::exp.out", &[y], &[64, 32]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn sums_are_exact_in_f64_and_finite() {
        let row = [1e8f32, 1.0, -1e8];
        let filters = [1.0f32, 0.5, 1.0, 0.0, 2.0, 0.0];
        let made = products(&row, &filters, 3, Some(&[0.25, 1.0])).unwrap().unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, f32>(made.as_slice()), [0.75, 3.0]);
        assert!(products(&[f32::MAX, 0.0, f32::MAX], &filters, 3, None).unwrap().is_none());
    }
}
