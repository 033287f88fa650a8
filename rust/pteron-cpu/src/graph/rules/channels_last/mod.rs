//! `channels_last`: images stay channels-last between the convolutions of a run.
//!
//! *Before*: `y = relu(convolution(x)); z = convolution(max_pool(y))`, all in channel planes. *After*: the same
//! with `y` and the pool's result channels-last; the first convolution reads planes and writes pixels.
//!
//! Convolutions, above all depthwise ones, are faster over pixels than over planes ([`roles`] has the table of
//! what each operation asks for, and the prices). Every tensor that only the run sees gets the order that
//! makes the whole cheapest, which is a minimal cut ([`min_cut`]): where two operations want a tensor in
//! different orders, a copy stands between them, once for all that want the other one. Tensors at the border
//! keep the file's order; constants are reordered at load. Permutes between images and rows of their pixels cost
//! nothing where the image is channels-last ([`rows_of_images`]), and those that cut it into patches move whole pixels
//! ([`patches`]).
//!
//! Exact where kernels sum in the same order whatever the layout; convolutions, pools and means do not, so
//! results differ by rounding (about 1e-7 of the largest). Runs before the rules that fuse, since those ask
//! for tensors that lie alike.

mod min_cut;
mod patches;
mod roles;
mod rows_of_images;
#[cfg(test)]
mod tests;

use super::remove_copies::remove_copies;
use super::rule::Rule;
use super::sink_views::sink_image_views;
use crate::graph::{Argument, Draft, Graph, Host, NodeId, TensorId};
use min_cut::{NEVER, Network, SINK, SOURCE};
use patches::by_pixels;
use pteron_core::{AlignedBuffer, ConstantView, DimOrder, Dynamism, Result, TensorSpec};
use roles::{Group, Role, copy_ns, groups, is_neutral, order_of, role};
use rows_of_images::{into_views, row_permute, unflatten};
use std::collections::HashMap;

pub(super) const RULE: Rule = Rule {
    name: "channels_last",
    about: "images stay channels-last between convolutions",
    needs: &[&["aten::convolution.out"]],
    apply,
};

fn apply(graph: &mut Graph, host: &mut dyn Host) -> Result<usize> {
    let is_convolution = |(id, _): (NodeId, &crate::graph::Node)| role(graph, id) == Role::Prefers;
    if !graph.live().any(is_convolution) {
        return Ok(0);
    }
    let unflattened = unflatten(graph) + by_pixels(graph);
    let demands = Demands::new(graph);
    let orders = demands.cheapest(graph);
    let count = demands.apply(graph, host, &orders)?;
    Ok(count + unflattened + into_views(graph) + sink_image_views(graph))
}

/// Channels-last for a rank.
fn channels_last(rank: usize) -> DimOrder {
    let order: &[u8] = match rank {
        3 => &[0, 2, 1],
        4 => &[0, 2, 3, 1],
        _ => &[0, 2, 3, 4, 1],
    };
    DimOrder::new(order).unwrap_or_else(|_| DimOrder::contiguous(rank))
}

/// Who decides about the order of a tensor, as it is written or as it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The group with this index.
    Of(usize),
    /// Nobody: channels-last or not.
    Is(bool),
}

/// Every group of the run, and where each image comes from and goes to.
struct Demands {
    groups: Vec<Group>,
    /// Images with the order that they are written in.
    sources: Vec<(TensorId, Order)>,
    /// What each of them is read in.
    readers: HashMap<TensorId, Vec<(NodeId, Order)>>,
}

impl Demands {
    fn new(graph: &Graph) -> Self {
        let mut demands = Demands { groups: Vec::new(), sources: Vec::new(), readers: HashMap::new() };
        let mut written: HashMap<TensorId, usize> = HashMap::new();
        for (id, node) in graph.live() {
            match groups(graph, id) {
                Some(of) => {
                    for group in of {
                        let at = demands.groups.len();
                        for input in &group.inputs {
                            demands.reads(*input, id, Order::Of(at));
                        }
                        written.extend(group.outputs.iter().map(|t| (*t, at)));
                        demands.groups.push(group);
                    }
                    if let Some(found) = row_permute(graph, node).filter(|found| !found.reads_image) {
                        demands.needs(graph, found.rows, id);
                    }
                    if role(graph, id) == Role::Views
                        && let Some(input) = node.input(0)
                        && (graph.tensor(input).spec.is_dynamic() || !is_neutral(&graph.tensor(input).spec))
                    {
                        demands.needs(graph, input, id);
                    }
                }
                None => node.inputs().for_each(|input| demands.needs(graph, input, id)),
            }
        }
        let mut images: Vec<TensorId> = demands.readers.keys().chain(written.keys()).copied().collect();
        images.sort_unstable();
        images.dedup();
        for image in images {
            let Some(is) = order_of(&graph.tensor(image).spec) else { continue };
            let order = written.get(&image).map_or(Order::Is(is), |group| Order::Of(*group));
            demands.sources.push((image, order));
        }
        demands
    }

    fn reads(&mut self, tensor: TensorId, by: NodeId, order: Order) {
        let list = self.readers.entry(tensor).or_default();
        if !list.contains(&(by, order)) {
            list.push((by, order));
        }
    }

    /// `by` reads an image as the file has it.
    fn needs(&mut self, graph: &Graph, tensor: TensorId, by: NodeId) {
        if let Some(is) = order_of(&graph.tensor(tensor).spec) {
            self.reads(tensor, by, Order::Is(is));
        }
    }

    fn readers(&self, tensor: TensorId) -> &[(NodeId, Order)] {
        self.readers.get(&tensor).map_or(&[], Vec::as_slice)
    }

    /// For each group: channels-last?
    fn cheapest(&self, graph: &Graph) -> Vec<bool> {
        let mut network = Network::new();
        let first = SINK + 1;
        for group in &self.groups {
            let node = network.node();
            network.edge(SOURCE, node, group.planes_ns, 0);
            network.edge(node, SINK, group.interleaved_ns, 0);
        }
        let place = |order: Order| match order {
            Order::Of(group) => first + group,
            Order::Is(true) => SOURCE,
            Order::Is(false) => SINK,
        };
        for (image, order) in &self.sources {
            let tensor = graph.tensor(*image);
            let from = place(*order);
            if !tensor.is_private()
                && let (Order::Of(_), Some(is)) = (order, order_of(&tensor.spec))
            {
                // Written where others look for it.
                network.edge(from, place(Order::Is(is)), NEVER, NEVER);
            }
            if tensor.is_constant() {
                continue;
            }
            let price = copy_ns(&tensor.spec);
            let mut wanted: Vec<usize> = self.readers(*image).iter().map(|(_, o)| place(*o)).collect();
            wanted.sort_unstable();
            wanted.dedup();
            wanted.retain(|to| *to != from);
            match wanted.as_slice() {
                [] => {}
                [one] => network.edge(from, *one, price, price),
                many => {
                    // One copy serves all readers that want the order in which it is not written.
                    let (planes, pixels) = (network.node(), network.node());
                    network.edge(from, planes, price, 0);
                    network.edge(pixels, from, price, 0);
                    for to in many {
                        network.edge(planes, *to, NEVER, 0);
                        network.edge(*to, pixels, NEVER, 0);
                    }
                }
            }
        }
        let side = network.cut();
        side.get(first..first + self.groups.len()).unwrap_or_default().to_vec()
    }

    /// Gives images the orders of their groups and copies them for readers that want another one.
    fn apply(&self, graph: &mut Graph, host: &mut dyn Host, orders: &[bool]) -> Result<usize> {
        let wanted = |order: Order| match order {
            Order::Of(group) => orders.get(group).copied().unwrap_or(false),
            Order::Is(is) => is,
        };
        let mut count = 0;
        for (image, order) in &self.sources {
            let spec = &graph.tensor(*image).spec;
            let (have, want) = (order_of(spec), wanted(*order));
            if graph.tensor(*image).is_private() && have != Some(want) {
                count += usize::from(graph.set_dim_order(*image, in_order(spec, want).dim_order));
            }
        }
        for (image, _) in &self.sources {
            let is = order_of(&graph.tensor(*image).spec);
            let mut others: Vec<NodeId> = self
                .readers(*image)
                .iter()
                .filter(|(_, order)| is != Some(wanted(*order)))
                .map(|(node, _)| *node)
                .collect();
            graph.sort(&mut others);
            if let (Some(first), Some(is)) = (others.first().copied(), is) {
                let copy = reordered(graph, host, *image, !is, first)?;
                graph.redirect(&others, *image, copy);
                count += 1;
            }
        }
        // Copies of the file into an order that their input has by now.
        remove_copies(graph);
        Ok(count)
    }
}

/// `spec` channels-last or in planes.
fn in_order(spec: &TensorSpec, is_channels_last: bool) -> TensorSpec {
    let rank = spec.shape.len();
    let dim_order = if is_channels_last { channels_last(rank) } else { DimOrder::contiguous(rank) };
    TensorSpec { dim_order, ..spec.clone() }
}

/// `image` in the other order, for `reader` and later ones.
fn reordered(
    graph: &mut Graph,
    host: &mut dyn Host,
    image: TensorId,
    is_channels_last: bool,
    reader: NodeId,
) -> Result<TensorId> {
    let spec = in_order(&graph.tensor(image).spec, is_channels_last);
    if graph.tensor(image).is_constant()
        && let Some(copy) = reordered_constant(graph, host, image, &spec)?
    {
        return Ok(copy);
    }
    let is_view = is_neutral(&spec) && !spec.is_dynamic();
    let sizes = Argument::extents(&spec.shape);
    let copy = graph.new_tensor(spec);
    let draft = match is_view {
        true => Draft::view(image, sizes, copy),
        false => Draft::call(COPY, vec![Argument::Tensor(image), Argument::none()], copy),
    };
    graph.insert_before(reader, draft);
    Ok(copy)
}

/// Copies elements in the memory order of its result.
const COPY: &str = "aten::clone.out";

fn reordered_constant(
    graph: &mut Graph,
    host: &mut dyn Host,
    image: TensorId,
    spec: &TensorSpec,
) -> Result<Option<TensorId>> {
    let spec = TensorSpec { dynamism: Dynamism::Static, ..spec.clone() };
    let recipe = format!("reorder.{:?}", spec.dim_order);
    let mut make = |views: &[ConstantView<'_>]| match views {
        [view] => elements_in_order(view, &spec),
        _ => Ok(None),
    };
    host.add_constant(graph, &recipe, &[image], spec.clone(), &mut make)
}

/// The elements of `view` in the memory order of `spec`; `None` for elements that are not of whole bytes.
fn elements_in_order(view: &ConstantView<'_>, spec: &TensorSpec) -> Result<Option<AlignedBuffer>> {
    let size = spec.dtype.size();
    let mut out = AlignedBuffer::zeroed(spec.nbytes()?)?;
    let mut index = vec![0usize; spec.shape.len()];
    if size == 0 || view.shape != spec.shape {
        return Ok(None);
    }
    for to in out.as_mut_slice().chunks_exact_mut(size) {
        let at: usize = index.iter().zip(&*view.strides).map(|(i, s)| i * s).sum::<usize>() + view.offset;
        let Some(from) = view.data.get(at * size..(at + 1) * size) else { return Ok(None) };
        to.copy_from_slice(from);
        for d in spec.dim_order.as_slice().iter().rev().map(|d| *d as usize) {
            index[d] += 1;
            if index[d] < spec.shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    Ok(Some(out))
}
