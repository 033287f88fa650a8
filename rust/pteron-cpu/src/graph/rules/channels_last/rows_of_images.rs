//! Permutes between an image and the rows of its pixels, which are the same bytes where the image is channels-last.
//!
//! Transformers over images go from `[n, c, h, w]` to tokens `[n, h · w, c]` and back around their convolutions, and
//! layer norms over channels go to `[n, h, w, c]`. Before orders are chosen, permutes of flattened images are
//! brought into the form of those of images ([`unflatten`]); behind it, permutes of images that are channels-last
//! become views ([`into_views`]). Signals, `[n, c, l]`, and the rows of their samples are treated alike, where a
//! convolution tells which is which ([`reads_signal`]).

use crate::graph::{Argument, Draft, Graph, Node, NodeId, Op, TensorId};
use pteron_core::TensorSpec;
use pteron_kernels::elementwise::function_table::is_elementwise;
use smallvec::SmallVec;

const PERMUTE: &str = "aten::permute_copy.out";

/// Views behind each other that are looked through: a file may have any number, and each is asked.
const MOST_VIEWS: usize = 8;

/// A permute between an image and rows of its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowPermute {
    pub image: TensorId,
    pub rows: TensorId,
    /// Is the image what it reads?
    pub reads_image: bool,
}

/// The dimensions that are asked of an image or volume with `rank` to have its channels last.
pub(super) fn to_rows(rank: usize) -> SmallVec<[i64; 5]> {
    let mut dims: SmallVec<[i64; 5]> = (0..rank as i64).collect();
    dims.get_mut(1..).unwrap_or_default().rotate_left(1);
    dims
}

/// The dimensions that are asked of rows of pixels to be an image again.
pub(super) fn to_image(rank: usize) -> SmallVec<[i64; 5]> {
    let mut dims: SmallVec<[i64; 5]> = (0..rank as i64).collect();
    dims.get_mut(1..).unwrap_or_default().rotate_right(1);
    dims
}

/// Of images and volumes. Signals of rank 3 look like flattened ones.
pub(super) fn is_image_rank(rank: usize) -> bool {
    matches!(rank, 4 | 5)
}

/// The dimensions of a permute that is as the file has it, none of them negative.
pub(super) fn permuted(graph: &Graph, node: &Node) -> Option<SmallVec<[i64; 5]>> {
    let is_permute = node.op == Op::Opaque && node.operator == PERMUTE && node.epilogue.is_none();
    let rank = graph.tensor(node.input(0).filter(|_| is_permute)?).spec.shape.len() as i64;
    Some(node.ints(1)?.iter().map(|d| if *d < 0 { *d + rank } else { *d }).collect())
}

/// What `node` permutes, if it goes between an image and rows of row-major order.
pub(super) fn row_permute(graph: &Graph, node: &Node) -> Option<RowPermute> {
    let dims = permuted(graph, node)?;
    let (input, output) = (node.input(0)?, node.output()?);
    let rank = dims.len();
    let is_row_major = |t: TensorId| graph.tensor(t).spec.dim_order.is_contiguous();
    let found = match () {
        () if rank == 3 && dims == to_rows(rank) => {
            let reads_image = reads_signal(graph, input, output)?;
            let (image, rows) = if reads_image { (input, output) } else { (output, input) };
            RowPermute { image, rows, reads_image }
        }
        () if !is_image_rank(rank) => return None,
        () if dims == to_rows(rank) => RowPermute { image: input, rows: output, reads_image: true },
        () if dims == to_image(rank) => RowPermute { image: output, rows: input, reads_image: false },
        () => return None,
    };
    is_row_major(found.rows).then_some(found)
}

/// A permute that swaps the last two of three dimensions goes either way. Is `input` the signal, and `output` the rows
/// of its samples? `None` if neither is convolved nor known to have its channels last.
fn reads_signal(graph: &Graph, input: TensorId, output: TensorId) -> Option<bool> {
    let is_channels_last = |t: TensorId| graph.tensor(t).spec.dim_order.is_channels_last();
    match (is_channels_last(input), is_channels_last(output)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        (true, true) => None,
        (false, false) if is_convolved(graph, output) => Some(false),
        (false, false) => comes_from_convolution(graph, input).then_some(true),
    }
}

/// Calls between a permute and a convolution that are looked through.
const MOST_CALLS: usize = 16;

fn is_convolution(node: &Node) -> bool {
    matches!(node.op, Op::Convolution | Op::PaddedConvolution)
}

fn is_call_of_elements(node: &Node) -> bool {
    matches!(node.op, Op::Clamp { .. } | Op::Elementwise(_))
        || (node.op == Op::Opaque && is_elementwise(&node.operator))
}

/// Does a convolution read `signal`, or what calls of elements make of it?
fn is_convolved(graph: &Graph, signal: TensorId) -> bool {
    let mut left: SmallVec<[TensorId; 8]> = [signal].into_iter().collect();
    for _ in 0..MOST_CALLS {
        let Some(tensor) = left.pop() else { return false };
        for reader in graph.readers(tensor).iter().take(MOST_CALLS).map(|r| graph.node(*r)) {
            if is_convolution(reader) && reader.input(0) == Some(tensor) {
                return true;
            }
            if is_call_of_elements(reader) {
                left.extend(reader.output());
            }
        }
    }
    false
}

/// Does a convolution make `signal`, or what calls of elements make it of?
fn comes_from_convolution(graph: &Graph, signal: TensorId) -> bool {
    let mut left: SmallVec<[TensorId; 8]> = [signal].into_iter().collect();
    for _ in 0..MOST_CALLS {
        let Some(tensor) = left.pop() else { return false };
        match graph.producer(tensor).map(|p| graph.node(p)) {
            Some(node) if is_convolution(node) => return true,
            Some(node) if is_call_of_elements(node) => left.extend(node.inputs().take(MOST_CALLS)),
            _ => {}
        }
    }
    false
}

/// Brings permutes of flattened images into the form of those of images; returns how many.
///
/// *Before*: `f = view(x, [n, c, h · w]); y = permute(f, [0, 2, 1])`. *After*: `r = permute(x, [0, 2, 3, 1]);
/// y = view(r, [n, h · w, c])`, and the other way round.
pub(super) fn unflatten(graph: &mut Graph) -> usize {
    let ids: Vec<NodeId> = graph.ids().collect();
    let mut count = 0;
    for id in ids {
        count += usize::from(graph.is_live(id) && (permute_image(graph, id) || permute_rows(graph, id)));
    }
    count
}

/// Row-major, of the same shape in every call.
pub(super) fn is_plain(spec: &TensorSpec) -> bool {
    spec.dim_order.is_contiguous() && !spec.is_dynamic()
}

/// A permute that swaps the channels and the pixels of a flattened image.
fn is_swap(graph: &Graph, id: NodeId) -> bool {
    permuted(graph, graph.node(id)).is_some_and(|dims| *dims == [0, 2, 1])
}

/// The image of which `flat`, `[n, c, pixels]`, is a view.
fn image_of(graph: &Graph, flat: TensorId) -> Option<TensorId> {
    let [n, c, _] = *graph.tensor(flat).spec.shape else { return None };
    let mut tensor = flat;
    for _ in 0..MOST_VIEWS {
        let view = graph.node(graph.producer(tensor)?);
        tensor = view.input(0).filter(|_| view.op == Op::View)?;
        let spec = &graph.tensor(tensor).spec;
        if is_image_rank(spec.shape.len()) && spec.shape.starts_with(&[n, c]) && is_plain(spec) {
            return Some(tensor);
        }
    }
    None
}

/// Permutes the image instead of what `id` permutes, if that is an image flattened.
fn permute_image(graph: &mut Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let (Some(flat), Some(rows)) = (node.input(0), node.output()) else { return false };
    let spec = graph.tensor(rows).spec.clone();
    if !is_swap(graph, id) || !is_plain(&graph.tensor(flat).spec) || !is_plain(&spec) {
        return false;
    }
    let Some(image) = image_of(graph, flat).filter(|_| graph.tensor(rows).is_private()) else { return false };
    let shape = graph.tensor(image).spec.shape;
    let dims = to_rows(shape.len());
    let Some(pixels) = row_major(&spec, dims.iter().filter_map(|d| shape.get(*d as usize)).copied()) else {
        return false;
    };
    let permuted = graph.new_tensor(pixels);
    replace_by(graph, id, [permute(image, &dims, permuted)], view(permuted, &spec, rows))
}

/// Permutes rows into the image that `id` shows, if it views rows that were permuted when they were flat.
fn permute_rows(graph: &mut Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let (Some(flat), Some(image)) = (node.input(0), node.output()) else { return false };
    let spec = graph.tensor(image).spec.clone();
    let is_view = node.op == Op::View && is_image_rank(spec.shape.len()) && is_plain(&spec);
    if !is_view || !graph.tensor(image).is_private() {
        return false;
    }
    // Who else reads the flat image needs its permute: there would be two.
    let Some(swap) = only_maker(graph, flat).filter(|p| is_swap(graph, *p)) else { return false };
    let Some(flat) = graph.node(swap).output() else { return false };
    let Some(rows) = graph.node(swap).input(0) else { return false };
    let [n, c, _] = *graph.tensor(flat).spec.shape else { return false };
    let is_fit = spec.shape.starts_with(&[n, c])
        && is_plain(&graph.tensor(rows).spec)
        && is_plain(&graph.tensor(flat).spec)
        && graph.lasts_until(rows, &[id]);
    let dims = to_rows(spec.shape.len());
    let pixels = row_major(&spec, dims.iter().filter_map(|d| spec.shape.get(*d as usize)).copied());
    let Some(pixels) = pixels.filter(|_| is_fit) else { return false };
    let shown = graph.new_tensor(pixels.clone());
    let last = permute(shown, &to_image(spec.shape.len()), image);
    replace_by(graph, id, [view(rows, &pixels, shown)], last)
}

/// What made `tensor`, through views, if nobody else reads it or one of them.
pub(super) fn only_maker(graph: &Graph, mut tensor: TensorId) -> Option<NodeId> {
    for _ in 0..MOST_VIEWS {
        let producer = graph.sole_producer(tensor)?;
        let node = graph.node(producer);
        if node.op != Op::View {
            return Some(producer);
        }
        tensor = node.input(0)?;
    }
    None
}

/// Replaces `id` by `before` and `last`, or changes nothing. What nobody reads any more goes, so that rules which ask for
/// an only reader find one.
pub(super) fn replace_by<const N: usize>(
    graph: &mut Graph,
    id: NodeId,
    before: [Draft; N],
    last: Draft,
) -> bool {
    let read = graph.node(id).input(0);
    let inserted = before.map(|draft| graph.insert_before(id, draft));
    let is_replaced = graph.replace(&[id], last).is_some();
    if is_replaced {
        remove_unread(graph, read);
    } else {
        for node in inserted.into_iter().rev() {
            graph.remove(node);
        }
    }
    is_replaced
}

/// Removes the views and the permute that made `tensor`, from the last one on, as long as nobody reads them.
fn remove_unread(graph: &mut Graph, mut tensor: Option<TensorId>) {
    while let Some(producer) = tensor.and_then(|t| graph.producer(t)) {
        let node = graph.node(producer);
        let is_rearranged = node.op == Op::View || node.operator == PERMUTE;
        tensor = node.input(0);
        if !is_rearranged || !graph.remove(producer) {
            return;
        }
    }
}

/// A spec with the elements of `like` and another shape, row-major.
pub(super) fn row_major(like: &TensorSpec, shape: impl Iterator<Item = usize>) -> Option<TensorSpec> {
    let shape: SmallVec<[usize; 5]> = shape.collect();
    TensorSpec::contiguous(like.dtype, &shape).ok()
}

pub(super) fn view(base: TensorId, spec: &TensorSpec, shown: TensorId) -> Draft {
    Draft::view(base, Argument::extents(&spec.shape), shown)
}

pub(super) fn permute(input: TensorId, dims: &[i64], output: TensorId) -> Draft {
    Draft::call(PERMUTE, vec![Argument::Tensor(input), Argument::ints(dims)], output)
}

/// Turns permutes of images that are channels-last into views; returns how many.
pub(super) fn into_views(graph: &mut Graph) -> usize {
    let ids: Vec<NodeId> = graph.ids().collect();
    let mut count = 0;
    for id in ids {
        let found = graph.is_live(id).then(|| row_permute(graph, graph.node(id))).flatten();
        count += usize::from(found.is_some_and(|found| into_view(graph, id, found)));
    }
    count
}

fn into_view(graph: &mut Graph, id: NodeId, found: RowPermute) -> bool {
    let (from, to) = match found.reads_image {
        true => (found.image, found.rows),
        false => (found.rows, found.image),
    };
    let (image, rows) = (&graph.tensor(found.image).spec, &graph.tensor(found.rows).spec);
    let is_static = |spec: &TensorSpec| !spec.is_dynamic();
    let is_same = image.dim_order.is_channels_last()
        && is_static(image)
        && is_static(rows)
        && is_static(&graph.tensor(graph.through_views(from)).spec);
    // A view at the border stays where the file has it, which is not where its base is.
    let is_ours = |t: TensorId| graph.tensor(t).is_private();
    let readers: Vec<NodeId> = graph.readers(to).to_vec();
    if !is_same || !is_ours(to) || !is_ours(graph.through_views(from)) || !graph.lasts_until(from, &readers) {
        return false;
    }
    let base = graph.through_views(from);
    let spec = graph.tensor(to).spec.clone();
    let Some(made) = graph.replace(&[id], view(base, &spec, to)) else { return false };
    // Views of the view show the same bytes: rules that look for what they show find it.
    let views: Vec<NodeId> = readers.into_iter().filter(|r| graph.node(*r).op == Op::View).collect();
    graph.redirect(&views, to, base);
    graph.remove(made);
    remove_unread(graph, Some(from));
    true
}
