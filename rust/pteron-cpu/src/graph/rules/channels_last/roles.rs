//! What each operation asks of the memory order of images and volumes, in one table.

use super::rows_of_images::row_permute;
use crate::graph::{Graph, Node, NodeId, Op, TensorId};
use pteron_core::TensorSpec;
use pteron_kernels::elementwise::function_table::is_elementwise;
use smallvec::SmallVec;

/// How an operation sees the memory order of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Takes and gives either order, each at its own price.
    Prefers,
    /// As fast in either order, as long as all its images have the same.
    Agnostic,
    /// Reads either order; has no image as result.
    Reduces,
    /// Moves elements from any order into any other.
    Copies,
    /// Goes between an image and the rows of its pixels, which are the same bytes where the image is channels-last.
    Permutes,
    /// The same bytes under another shape: blind to the order of images that lie alike in both.
    Views,
    /// Needs its tensors as the file has them.
    Fixed,
}

/// Operators that are not [`Role::Fixed`], besides elementwise functions, convolutions and views.
const TABLE: &[(&str, Role)] = &[
    ("aten::_native_batch_norm_legit_no_training.out", Role::Agnostic),
    ("aten::cat.out", Role::Agnostic),
    ("aten::slice_copy.Tensor_out", Role::Agnostic),
    ("aten::constant_pad_nd.out", Role::Agnostic),
    ("aten::flip.out", Role::Agnostic),
    ("aten::roll.out", Role::Agnostic),
    ("pteron::fixed_point_add.out", Role::Agnostic),
    ("pteron::integer_mul.out", Role::Agnostic),
    ("aten::mean.out", Role::Reduces),
    ("aten::sum.IntList_out", Role::Reduces),
    ("aten::amax.out", Role::Reduces),
    ("aten::amin.out", Role::Reduces),
    ("aten::clone.out", Role::Copies),
    ("aten::alias_copy.out", Role::Copies),
    ("aten::detach_copy.out", Role::Copies),
    ("aten::lift_fresh_copy.out", Role::Copies),
    ("dim_order_ops::_clone_dim_order.out", Role::Copies),
    ("dim_order_ops::_to_dim_order_copy.out", Role::Copies),
];

/// Those of images and volumes alone: of rank 3 they take a single image without its batch.
const OF_IMAGES: &[(&str, Role)] = &[
    ("aten::max_pool2d_with_indices.out", Role::Agnostic),
    ("aten::max_pool3d_with_indices.out", Role::Agnostic),
    ("aten::avg_pool2d.out", Role::Agnostic),
    ("aten::avg_pool3d.out", Role::Agnostic),
    ("aten::_adaptive_avg_pool2d.out", Role::Agnostic),
    ("aten::_adaptive_avg_pool3d.out", Role::Agnostic),
    ("aten::upsample_bilinear2d.vec_out", Role::Agnostic),
    ("aten::upsample_bilinear2d.out", Role::Agnostic),
    ("aten::upsample_nearest2d.vec_out", Role::Agnostic),
    ("aten::upsample_nearest2d.out", Role::Agnostic),
    ("aten::upsample_nearest3d.out", Role::Agnostic),
    ("aten::upsample_bicubic2d.out", Role::Agnostic),
    ("aten::upsample_trilinear3d.out", Role::Agnostic),
    ("aten::adaptive_max_pool2d.out", Role::Agnostic),
    ("aten::adaptive_max_pool3d.out", Role::Agnostic),
    ("aten::reflection_pad2d.out", Role::Agnostic),
    ("aten::reflection_pad3d.out", Role::Agnostic),
    ("aten::replication_pad2d.out", Role::Agnostic),
    ("aten::replication_pad3d.out", Role::Agnostic),
    ("aten::pixel_shuffle.out", Role::Copies),
    ("aten::pixel_unshuffle.out", Role::Copies),
];

/// Tensors of a node that have one order, and what the other orders cost.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub inputs: SmallVec<[TensorId; 2]>,
    pub outputs: SmallVec<[TensorId; 1]>,
    /// Nanoseconds that channel planes cost more than channels-last.
    pub planes_ns: u64,
    /// Nanoseconds that channels-last costs more than channel planes.
    pub interleaved_ns: u64,
}

/// Nanoseconds that a copy costs whatever its size.
const COPY_NS: u64 = 500;

/// Positions among the arguments of a convolution.
const WEIGHT: usize = 1;
const TRANSPOSED: usize = 6;
const GROUPS: usize = 8;
/// Input channels up to which a convolution reads planes as fast as anything.
const FEW_INPUTS: usize = 4;

/// A signal, image or volume with channels, in channel planes (false) or channels-last (true); `None` for tensors
/// of other ranks and in other orders.
pub(super) fn order_of(spec: &TensorSpec) -> Option<bool> {
    match spec.shape.len() {
        3..=5 if spec.dim_order.is_channels_last() => Some(true),
        3..=5 if spec.dim_order.is_contiguous() => Some(false),
        _ => None,
    }
}

/// Do both orders have the same bytes: a single channel, or a single pixel?
pub(super) fn is_neutral(spec: &TensorSpec) -> bool {
    let is_single = |n: &usize| *n <= 1;
    spec.shape.get(1).is_some_and(is_single) || spec.shape.iter().skip(2).all(is_single)
}

/// What a copy into the other order costs.
pub(super) fn copy_ns(spec: &TensorSpec) -> u64 {
    match (is_neutral(spec), spec.is_dynamic()) {
        (true, false) => 1,
        (true, true) => COPY_NS,
        _ => COPY_NS.saturating_add(spec.shape.numel().unwrap_or(0) as u64 / 2),
    }
}

/// The role of `id` in its graph.
pub(super) fn role(graph: &Graph, id: NodeId) -> Role {
    let node = graph.node(id);
    match node.op {
        Op::Convolution | Op::PaddedConvolution => {
            let is_constant = node.input(WEIGHT).is_some_and(|w| graph.tensor(w).is_constant());
            if is_constant { Role::Prefers } else { Role::Fixed }
        }
        Op::Integer(ref spec) if spec.is_convolution() => Role::Prefers,
        Op::View => Role::Views,
        Op::MaxPool if node.input(0).is_none_or(|t| graph.tensor(t).spec.shape.len() < 4) => Role::Fixed,
        Op::Clamp { .. } | Op::Elementwise(_) | Op::MaxPool => Role::Agnostic,
        Op::Opaque if is_elementwise(&node.operator) => Role::Agnostic,
        Op::Opaque if row_permute(graph, node).is_some() => Role::Permutes,
        Op::Opaque => match in_table(graph, node) {
            Some(Role::Reduces) if !reduces_pixels(graph, node) => Role::Fixed,
            role => role.unwrap_or(Role::Fixed),
        },
        _ => Role::Fixed,
    }
}

fn in_table(graph: &Graph, node: &Node) -> Option<Role> {
    let is_signal = node.input(0).is_none_or(|t| graph.tensor(t).spec.shape.len() < 4);
    let of_images = if is_signal { &[] } else { OF_IMAGES };
    let (_, role) = TABLE.iter().chain(of_images).find(|(name, _)| *name == node.operator)?;
    Some(*role)
}

/// Does it combine the pixels of every channel, and nothing else?
fn reduces_pixels(graph: &Graph, node: &Node) -> bool {
    let Some(rank) = node.input(0).map(|t| graph.tensor(t).spec.shape.len()) else { return false };
    let wrap = |d: &i64| if *d < 0 { d.saturating_add(rank as i64) } else { *d };
    let mut dims: Vec<i64> = node.ints(1).unwrap_or_default().iter().map(wrap).collect();
    dims.sort_unstable();
    dims == (2..rank as i64).collect::<Vec<i64>>()
}

/// The groups of `id`; `None` where it needs everything as the file has it.
pub(super) fn groups(graph: &Graph, id: NodeId) -> Option<SmallVec<[Group; 2]>> {
    let node = graph.node(id);
    let spec = |t: &TensorId| &graph.tensor(*t).spec;
    let is_image = |t: &TensorId| order_of(spec(t)).is_some();
    let rank = |t: &TensorId| spec(t).shape.len();
    match role(graph, id) {
        Role::Fixed => None,
        Role::Prefers => convolution(graph, node),
        Role::Reduces => {
            let input = node.input(0).filter(is_image)?;
            let output = node.output().filter(|t| rank(t) < 3 || is_image(t))?;
            let read = Group { inputs: [input].into_iter().collect(), ..Group::default() };
            let written =
                Group { outputs: [output].into_iter().filter(is_image).collect(), ..Group::default() };
            Some([read, written].into_iter().collect())
        }
        Role::Copies => {
            let (input, output) = (node.input(0).filter(is_image)?, node.output().filter(is_image)?);
            (spec(&input).dtype == spec(&output).dtype).then_some(())?;
            let read = Group { inputs: [input].into_iter().collect(), ..Group::default() };
            let written = Group { outputs: [output].into_iter().collect(), ..Group::default() };
            Some([read, written].into_iter().collect())
        }
        Role::Views => {
            let is_blind = |t: &TensorId| is_image(t) && is_neutral(spec(t)) && !spec(t).is_dynamic();
            let output = node.output().filter(is_blind);
            Some([Group { outputs: output.into_iter().collect(), ..Group::default() }].into_iter().collect())
        }
        Role::Permutes => {
            let found = row_permute(graph, node).filter(|found| is_image(&found.image))?;
            let mut group = Group { planes_ns: copy_ns(spec(&found.image)), ..Group::default() };
            match found.reads_image {
                true => group.inputs.push(found.image),
                false => group.outputs.push(found.image),
            }
            Some([group].into_iter().collect())
        }
        Role::Agnostic => {
            let of = rank(node.outputs.first()?);
            let is_member = |t: &TensorId| rank(t) == of;
            let inputs: SmallVec<[TensorId; 2]> = node.inputs().filter(is_member).collect();
            let outputs: SmallVec<[TensorId; 1]> = node.outputs.iter().copied().filter(is_member).collect();
            let is_known = inputs.iter().chain(&outputs).all(is_image);
            is_known.then(|| [Group { inputs, outputs, ..Group::default() }].into_iter().collect())
        }
    }
}

/// Prices are rough and of one core: a multiply-add takes 1/64 ns where vectors are full, reordering an
/// element in scratch 1/2 ns.
fn convolution(graph: &Graph, node: &Node) -> Option<SmallVec<[Group; 2]>> {
    let (input, output) = (node.input(0)?, node.output()?);
    let spec = |t: TensorId| &graph.tensor(t).spec;
    if order_of(spec(input)).is_none() || order_of(spec(output)).is_none() {
        return None;
    }
    let weight = &spec(node.input(WEIGHT)?).shape;
    if weight.len() != spec(input).shape.len() {
        return None;
    }
    let size = |t: TensorId| spec(t).shape.numel().unwrap_or(0) as u64;
    let (groups, is_transposed) = match &node.op {
        Op::Integer(spec) => (spec.groups()?, false),
        _ => (node.number(GROUPS)? as usize, node.number(TRANSPOSED)? != 0.0),
    };
    let filter = weight.iter().skip(1).product::<usize>() as u64;
    let multiply_adds = filter.saturating_mul(size(if is_transposed { input } else { output }));
    let is_depthwise = groups > 1 && weight.get(1) == Some(&1) && !is_transposed;
    let channels = spec(input).shape.get(1).copied().unwrap_or(0);
    let is_integer = matches!(node.op, Op::Integer(_));
    let (read, written) = match () {
        // Over planes, vectors run along rows and lose most of their lanes at the borders.
        () if is_depthwise => (multiply_adds / 16, multiply_adds / 16),
        // Integers are summed along the channels of a pixel.
        () if is_integer => (size(input), size(output)),
        () if channels <= FEW_INPUTS => (0, size(output) / 4),
        () => (size(input) / 2, size(output) / 4 + multiply_adds / 512),
    };
    let one = |planes_ns: u64| planes_ns.saturating_add(10);
    let read = if channels <= FEW_INPUTS && !is_integer { 0 } else { one(read) };
    let reads = Group { inputs: [input].into_iter().collect(), planes_ns: read, ..Group::default() };
    let writes =
        Group { outputs: [output].into_iter().collect(), planes_ns: one(written), ..Group::default() };
    Some([reads, writes].into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_operator_once() {
        let names: Vec<&str> = TABLE.iter().chain(OF_IMAGES).map(|(name, _)| *name).collect();
        for (i, name) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| other != name), "{name} twice");
            assert!(!is_elementwise(name), "{name} is an elementwise function");
        }
    }
}
