//! `convolve_before_resize`: a convolution of single pixels comes before the enlarging of what it reads.
//!
//! *Before*: `z = convolution(cat([a, upsample(b), upsample(c)]), W, bias)`, `W` of 1 x 1. *After*:
//! `z = add(add(convolution(a, W1, bias), upsample(convolution(b, W2))), upsample(convolution(c, W3)))`.
//!
//! Heads that segment lay maps of several sizes side by side that were enlarged to the largest one. Enlarging and
//! convolving are linear, one along the pixels, the other along the channels, so that their order does not matter: a map
//! of half the height and width takes a quarter of the products. Applies where that saves more than the sums cost, to
//! nearest and bilinear enlarging of images of known size. Sums are in another order: results differ by rounding (about
//! 1e-6 of the largest output), and what is infinite or NaN may come out NaN where it was infinite.

use super::pointwise::{BIAS, INPUT, Pointwise, WEIGHT, is_static_f32, pointwise};
use super::rule::Rule;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, Op, TensorId};
use pteron_core::{AlignedBuffer, ConstantView, DType, Dims, Result, TensorSpec};
use std::ops::Range;

pub(super) const RULE: Rule = Rule {
    name: "convolve_before_resize",
    about: "convolutions of single pixels before the enlarging of what they read",
    needs: &[&["aten::convolution.out"], &[CAT], ENLARGE],
    apply,
};

const CAT: &str = "aten::cat.out";
const ADD: &str = "aten::add.out";
/// Linear in every pixel, with weights that add up to one.
const ENLARGE: &[&str] = &[
    "aten::upsample_bilinear2d.vec_out",
    "aten::upsample_bilinear2d.out",
    "aten::upsample_nearest2d.vec_out",
    "aten::upsample_nearest2d.out",
];
const BILINEAR_VEC: &str = ENLARGE[0];

/// Multiply-adds that take as long as reading and adding one element.
const PRODUCTS_PER_SUM: usize = 32;

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let mut count = 0;
    for id in graph.ids() {
        if let Some(found) = find(graph, id) {
            count += usize::from(split(graph, host, id, &found)?);
        }
    }
    Ok(count)
}

/// One of the tensors side by side.
struct Part {
    /// What is convolved.
    image: TensorId,
    /// Its channels among those of all.
    channels: Range<usize>,
    /// What enlarged it, if that now comes behind the convolution.
    enlarged_by: Option<NodeId>,
}

struct Found {
    convolution: Pointwise,
    cat: NodeId,
    parts: Vec<Part>,
    /// Nodes that go, in execution order, the convolution last.
    nodes: Vec<NodeId>,
}

fn find(graph: &Graph, id: NodeId) -> Option<Found> {
    let node = graph.node(id);
    let convolution = graph.is_live(id).then(|| pointwise(graph, node)).flatten()?;
    let cat_id = graph.sole_producer(convolution.image)?;
    let cat = graph.node(cat_id);
    let is_of_channels = cat.operator == CAT && matches!(cat.number(1), Some(1.0 | -3.0));
    let Some(Argument::Tensors(list)) = cat.args.first().filter(|_| is_of_channels) else { return None };
    let mut nodes = vec![cat_id, id];
    let (mut parts, mut from) = (Vec::with_capacity(list.len()), 0usize);
    for tensor in list {
        let tensor = (*tensor)?;
        let to = from.checked_add(*graph.tensor(tensor).spec.shape.get(1)?)?;
        let mut part = Part { image: tensor, channels: from..to, enlarged_by: None };
        if let Some((node, image)) = enlarged(graph, tensor) {
            let size = |t: TensorId| graph.tensor(t).spec.shape.numel().unwrap_or(usize::MAX);
            if size(image).saturating_mul(2) <= size(tensor) {
                (part.image, part.enlarged_by) = (image, Some(node));
                nodes.push(node);
            } else if is_idle(graph, node, tensor) {
                part.image = image;
                nodes.push(node);
            }
        }
        parts.push(part);
        from = to;
    }
    let order = graph.tensor(convolution.out).spec.dim_order;
    let is_alike = |t: TensorId| graph.tensor(t).spec.dim_order == order && is_static_f32(graph, t);
    let is_fit = from == convolution.inputs
        && parts.iter().all(|p| is_alike(p.image) && graph.lasts_until(p.image, &[id]))
        && pays(graph, &convolution, &parts);
    graph.sort(&mut nodes);
    is_fit.then_some(Found { convolution, cat: cat_id, parts, nodes })
}

/// The call that enlarged an image into `tensor`, which nobody else reads.
fn enlarged(graph: &Graph, tensor: TensorId) -> Option<(NodeId, TensorId)> {
    let producer = graph.sole_producer(tensor)?;
    let node = graph.node(producer);
    let is_enlarging =
        node.op == Op::Opaque && ENLARGE.contains(&node.operator.as_str()) && node.read_values.is_empty();
    let image = node.input(0).filter(|_| is_enlarging)?;
    let are_alike = graph.tensor(image).spec.dim_order == graph.tensor(tensor).spec.dim_order;
    (are_alike && is_static_f32(graph, image) && is_static_f32(graph, tensor)).then_some((producer, image))
}

/// Does an enlarging change nothing: to the same size, by no factor of its own?
fn is_idle(graph: &Graph, id: NodeId, enlarged: TensorId) -> bool {
    let node = graph.node(id);
    let image = node.input(0).map(|t| &graph.tensor(t).spec.shape);
    let has_factor = if node.operator == BILINEAR_VEC { !node.is_none(3) } else { true };
    image == Some(&graph.tensor(enlarged).spec.shape) && !has_factor
}

/// Are the products that are saved worth more than the sums that are new?
fn pays(graph: &Graph, convolution: &Pointwise, parts: &[Part]) -> bool {
    let pixels = |t: TensorId| {
        let shape = &graph.tensor(t).spec.shape;
        shape.numel().unwrap_or(0) / shape.get(1).copied().unwrap_or(1).max(1)
    };
    let (mut saved, mut new) = (0usize, 0usize);
    for part in parts.iter().filter(|p| p.enlarged_by.is_some()) {
        let fewer = pixels(convolution.out).saturating_sub(pixels(part.image));
        saved = saved
            .saturating_add(fewer.saturating_mul(part.channels.len()).saturating_mul(convolution.outputs));
        // Written, read and added; and as many channels are enlarged as there are outputs.
        let more = convolution.outputs.saturating_mul(2).saturating_sub(part.channels.len());
        new = new.saturating_add(pixels(convolution.out).saturating_mul(more));
    }
    saved > new.saturating_mul(PRODUCTS_PER_SUM)
}

fn split(graph: &mut Graph, host: &mut dyn Host, id: NodeId, found: &Found) -> Result<bool> {
    let Found { cat, convolution: of, .. } = *found;
    let mut new = Split { graph, host, id, cat, of, drafts: Vec::new() };
    if !new.draft(found)? {
        return Ok(false);
    }
    let mut drafts = new.drafts;
    let Some((last, origin)) = drafts.pop() else { return Ok(false) };
    let mut inserted = Vec::with_capacity(drafts.len());
    for (draft, origin) in drafts {
        let node = graph.insert_before(id, draft);
        graph.cover(node, &[origin]);
        inserted.push(node);
    }
    let Some(sum) = graph.replace(&found.nodes, last) else {
        inserted.iter().rev().for_each(|node| {
            graph.remove(*node);
        });
        return Ok(false);
    };
    graph.cover(sum, &[origin]);
    Ok(true)
}

/// The calls that take the place of a convolution.
struct Split<'a> {
    graph: &'a mut Graph,
    host: &'a mut dyn Host,
    id: NodeId,
    cat: NodeId,
    of: Pointwise,
    /// In order, each with the call that it comes from; the last one writes what the convolution wrote.
    drafts: Vec<(Draft, NodeId)>,
}

impl Split<'_> {
    /// False where a call has no kernel or a constant cannot be made.
    fn draft(&mut self, found: &Found) -> Result<bool> {
        let (enlarged, kept): (Vec<&Part>, Vec<&Part>) =
            found.parts.iter().partition(|p| p.enlarged_by.is_some());
        let (mut terms, mut bias) = (Vec::new(), self.of.bias);
        if !kept.is_empty() {
            let Some(image) = self.beside(&kept) else { return Ok(false) };
            let channels: Vec<Range<usize>> = kept.iter().map(|p| p.channels.clone()).collect();
            let Some(y) = self.convolve(image, &channels, bias.take())? else { return Ok(false) };
            terms.push(y);
        }
        for part in enlarged {
            let channels = [part.channels.clone()];
            let Some(y) = self.convolve(part.image, &channels, bias.take())? else { return Ok(false) };
            let Some(u) = self.enlarge(part, y) else { return Ok(false) };
            terms.push(u);
        }
        self.sum(&terms);
        Ok(true)
    }

    fn tensor(&mut self, like: TensorId, channels: usize) -> Option<TensorId> {
        let like = &self.graph.tensor(like).spec;
        let &[n, _, h, w] = &*like.shape else { return None };
        let spec = TensorSpec { shape: Dims::new(&[n, channels, h, w]).ok()?, ..like.clone() };
        Some(self.graph.new_tensor(spec))
    }

    fn push(&mut self, operator: &str, args: Vec<Argument>, out: TensorId) {
        self.drafts.push((Draft::call(operator, args, out), self.cat));
    }

    /// The images of `parts` side by side; one alone is there already.
    fn beside(&mut self, parts: &[&Part]) -> Option<TensorId> {
        if let [one] = parts {
            return Some(one.image);
        }
        let all = self.tensor(parts.first()?.image, parts.iter().map(|p| p.channels.len()).sum())?;
        let list = parts.iter().map(|p| Some(p.image)).collect();
        self.push(CAT, vec![Argument::Tensors(list), Argument::int(1)], all);
        Some(all)
    }

    /// The convolution of `image` with what the filters have for `channels`.
    fn convolve(
        &mut self,
        image: TensorId,
        channels: &[Range<usize>],
        bias: Option<TensorId>,
    ) -> Result<Option<TensorId>> {
        let Some(weight) = self.filters_of(channels)? else { return Ok(None) };
        let Some(y) = self.tensor(image, self.of.outputs) else { return Ok(None) };
        let mut draft = self.graph.node(self.id).draft();
        draft.rename(self.of.out, y);
        draft.args[INPUT] = Argument::Tensor(image);
        draft.args[WEIGHT] = Argument::Tensor(weight);
        draft.args[BIAS] = bias.map_or(Argument::none(), Argument::Tensor);
        let is_possible = self.host.can_prepare(self.graph, &draft)?;
        self.drafts.push((draft, self.id));
        Ok(is_possible.then_some(y))
    }

    fn filters_of(&mut self, channels: &[Range<usize>]) -> Result<Option<TensorId>> {
        let count: usize = channels.iter().map(Range::len).sum();
        let (outputs, inputs) = (self.of.outputs, self.of.inputs);
        let spec = TensorSpec::contiguous(DType::Float32, &[outputs, count, 1, 1])?;
        let mut make = |views: &[ConstantView<'_>]| match views {
            [view] => columns(view, inputs, channels, spec.nbytes()?),
            _ => Ok(None),
        };
        let recipe = format!("columns.{channels:?}");
        self.host.add_constant(self.graph, &recipe, &[self.of.weight], spec.clone(), &mut make)
    }

    /// What enlarged `part`, over `y`.
    fn enlarge(&mut self, part: &Part, y: TensorId) -> Option<TensorId> {
        let node = part.enlarged_by?;
        let (mut draft, whole) = (self.graph.node(node).draft(), self.graph.node(node).output()?);
        let u = self.tensor(whole, self.of.outputs)?;
        draft.rename(part.image, y);
        draft.rename(whole, u);
        self.drafts.push((draft, node));
        Some(u)
    }

    /// Adds up `terms`, from the first one on, into the result of the convolution.
    fn sum(&mut self, terms: &[TensorId]) {
        let out = self.of.out;
        let Some((first, rest)) = terms.split_first() else { return };
        if rest.is_empty()
            && let Some((last, _)) = self.drafts.last_mut()
        {
            last.rename(*first, out);
        }
        let mut sum = *first;
        for (i, term) in rest.iter().enumerate() {
            let is_last = i + 1 == rest.len();
            let next = if is_last { out } else { self.graph.new_tensor(self.graph.tensor(out).spec.clone()) };
            let args = vec![Argument::Tensor(sum), Argument::Tensor(*term), Argument::int(1)];
            self.push(ADD, args, next);
            sum = next;
        }
    }
}

/// The elements of `view`, rows of `inputs`, that lie in `channels`, row by row.
fn columns(
    view: &ConstantView<'_>,
    inputs: usize,
    channels: &[Range<usize>],
    nbytes: usize,
) -> Result<Option<AlignedBuffer>> {
    let values = view.row_major::<f32>()?;
    let mut out = AlignedBuffer::zeroed_to_keep(nbytes)?;
    let mut to = out.as_mut_slice().chunks_exact_mut(size_of::<f32>());
    for row in values.chunks_exact(inputs) {
        for range in channels {
            let Some(run) = row.get(range.clone()) else { return Ok(None) };
            for (value, to) in run.iter().zip(&mut to) {
                to.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Literal;
    use crate::graph::testing::{AnyKernel, Builder, Holds};

    fn convolution(
        b: &mut Builder,
        x: TensorId,
        weight: TensorId,
        bias: TensorId,
        out: &[usize],
    ) -> TensorId {
        let ints = |v: i64| Argument::ints(&[v, v]);
        let flag = Argument::Literal(Literal::Bool(false), None);
        let mut args: Vec<Argument> = [x, weight, bias].map(Argument::Tensor).into();
        args.extend([ints(1), ints(0), ints(1), flag, ints(0), Argument::int(1)]);
        b.call_with("aten::convolution.out", args, out)
    }

    fn enlarge(b: &mut Builder, x: TensorId, shape: &[usize]) -> TensorId {
        let sizes = Argument::ints(&[shape[2] as i64, shape[3] as i64]);
        let flag = Argument::Literal(Literal::Bool(false), None);
        b.call_with(BILINEAR_VEC, vec![Argument::Tensor(x), sizes, flag, Argument::none()], shape)
    }

    /// Two maps enlarged, one of them to its own size, and one that is not, side by side and convolved.
    fn head(b: &mut Builder) -> TensorId {
        const WHOLE: &[usize] = &[1, 32, 64, 64];
        let x = b.border(&[1, 4]);
        let (small, same, plain) = (
            b.call("aten::exp.out", &[x], &[1, 64, 16, 16]),
            b.call("aten::neg.out", &[x], WHOLE),
            b.call("aten::abs.out", &[x], WHOLE),
        );
        let (up, idle) = (enlarge(b, small, &[1, 64, 64, 64]), enlarge(b, same, WHOLE));
        let list = [up, idle, plain].map(Some).into();
        let all = b.call_with(CAT, vec![Argument::Tensors(list), Argument::int(1)], &[1, 128, 64, 64]);
        let (w, bias) = (b.constant(&[48, 128, 1, 1]), b.constant(&[48]));
        let z = convolution(b, all, w, bias, &[1, 48, 64, 64]);
        b.name("z", z).name("bias", bias).name("up", up);
        z
    }

    fn operators(b: &Builder) -> Vec<&str> {
        b.graph.live().map(|(_, n)| n.operator.as_str()).collect()
    }

    #[test]
    fn a_small_map_is_convolved_before_it_is_enlarged() {
        let mut b = Builder::new();
        let z = head(&mut b);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 1);
        let after = [CAT, "aten::convolution.out", "aten::convolution.out", BILINEAR_VEC, ADD];
        assert_eq!(operators(&b)[3..], after);
        let sum = b.graph.node(b.graph.producer(z).unwrap());
        let of = |position: usize| b.graph.node(b.graph.producer(sum.input(position).unwrap()).unwrap());
        // The bias counts once, in the term that is as large as the result.
        assert_eq!(of(0).input(BIAS), Some(b.get("bias")));
        let small = b.graph.node(b.graph.producer(of(1).input(0).unwrap()).unwrap());
        assert!(small.is_none(BIAS));
        assert_eq!(*b.graph.tensor(small.output().unwrap()).spec.shape, [1, 48, 16, 16]);
        assert_eq!(*b.graph.tensor(small.input(WEIGHT).unwrap()).spec.shape, [48, 64, 1, 1]);
    }

    #[test]
    fn what_others_read_and_what_saves_nothing_stays() {
        let mut b = Builder::new();
        head(&mut b);
        let up = b.get("up");
        b.call("aten::exp.out", &[up], &[1, 64, 64, 64]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);

        let mut b = Builder::new();
        let x = b.border(&[1, 4]);
        let small = b.call("aten::exp.out", &[x], &[1, 4, 16, 16]);
        let up = enlarge(&mut b, small, &[1, 4, 32, 32]);
        let list = vec![Some(up)];
        let all = b.call_with(CAT, vec![Argument::Tensors(list), Argument::int(1)], &[1, 4, 32, 32]);
        let (w, bias) = (b.constant(&[64, 4, 1, 1]), b.constant(&[64]));
        convolution(&mut b, all, w, bias, &[1, 64, 32, 32]);
        assert_eq!(apply(&mut b.graph, &mut AnyKernel).unwrap(), 0);
    }

    #[test]
    fn filters_are_cut_by_their_channels() {
        let numbers: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut b = Builder::new();
        let w = b.constant(&[12]);
        let host = Holds(numbers);
        let view = host.constant(&b.graph, w).unwrap();
        let cut = columns(&view, 6, &[1..3, 5..6], 24).unwrap().unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, f32>(cut.as_slice()), [1.0, 2.0, 5.0, 7.0, 8.0, 11.0]);
    }
}
