//! Changes of a graph that keep it a graph.

use super::argument::Argument;
use super::node::{Draft, Node, Op};
use super::tensor::{Tensor, TensorMemory};
use super::{Graph, NodeId, TensorId};
use pteron_core::{DimOrder, TensorSpec};
use smallvec::SmallVec;

impl Graph {
    /// A private tensor for the result of a new node.
    pub fn new_tensor(&mut self, spec: TensorSpec) -> TensorId {
        self.push_tensor(Tensor { spec, place: TensorMemory::Private, value: None, definition: None })
    }

    /// Replaces `nodes` (in execution order) by `draft`, at the place of the last one. Results of the
    /// replaced nodes must be the draft's outputs, or read by no other node and private. `None`, with
    /// nothing changed, where that does not hold, an input of the draft is not there yet, or a border tensor
    /// that it reads may be overwritten between its reader's place and the new one.
    pub fn replace(&mut self, nodes: &[NodeId], draft: Draft) -> Option<NodeId> {
        let last = *nodes.last()?;
        if !self.can_replace(nodes, &draft) {
            return None;
        }
        let mut read_values: SmallVec<[u32; 2]> =
            nodes.iter().flat_map(|n| self.node(*n).read_values.iter().copied()).collect();
        read_values.sort_unstable();
        read_values.dedup();
        for node in nodes {
            self.detach(*node);
        }
        let id = self.add(Node {
            op: draft.op,
            operator: draft.operator,
            args: draft.args,
            outputs: draft.outputs,
            returned: None,
            epilogue: draft.epilogue,
            covers: SmallVec::new(),
            instruction: None,
            read_values,
            written_values: SmallVec::new(),
            in_place_of: None,
            is_removed: false,
        });
        self.cover(id, nodes);
        // The new node takes the slot of the last one, which goes to the end, where it is never looked at.
        let position = self.positions[last.index()];
        self.order[position as usize] = id;
        self.positions.push(position);
        self.positions[last.index()] = self.order.len() as u32;
        self.order.push(last);
        Some(id)
    }

    /// Would [`Graph::replace`] do it?
    pub fn can_replace(&self, nodes: &[NodeId], draft: &Draft) -> bool {
        let Some(last) = nodes.last().copied() else { return false };
        let is_fixed = |n: &NodeId| {
            let node = self.node(*n);
            node.is_removed || node.op == Op::Fixed || !node.written_values.is_empty()
        };
        let is_in_order = nodes.windows(2).all(|pair| self.is_before(pair[0], pair[1]));
        if !is_in_order || nodes.iter().any(is_fixed) {
            return false;
        }
        let is_lost = |t: &TensorId| {
            !draft.outputs.contains(t)
                && (!self.tensor(*t).is_private() || self.readers(*t).iter().any(|r| !nodes.contains(r)))
        };
        if nodes.iter().flat_map(|n| &self.node(*n).outputs).any(is_lost) {
            return false;
        }
        // Only the last node's results are written where they were; an earlier one's would come late.
        let is_late = |t: &TensorId| {
            self.producer(*t).is_some_and(|p| p != last && nodes.contains(&p))
                && self.readers(*t).iter().any(|r| !nodes.contains(r) && self.is_before(*r, last))
        };
        let base = draft.args.first().and_then(Argument::tensor).filter(|_| draft.op == Op::View);
        let root = base.map(|t| self.through_views(t));
        let is_elsewhere = |t: &TensorId| !self.may_lie_at(*t, root, self.readers(*t));
        if draft.outputs.iter().any(|t| is_late(t) || self.must_stay(*t, last) || is_elsewhere(t)) {
            return false;
        }
        let inputs = || draft.args.iter().flat_map(Argument::tensors).filter(|t| !draft.outputs.contains(t));
        let is_there = |t: TensorId| {
            self.producer(t).is_none_or(|p| self.is_live(p) && !nodes.contains(&p) && self.is_before(p, last))
        };
        inputs().all(is_there) && self.is_intact(nodes, last, draft)
    }

    /// May `readers` find what the view `tensor` shows in the bytes of `root`, or of no other tensor? A view at the border is
    /// where the file has it, so its base stays there. What is no view is at the border itself if such a view shows it.
    fn may_lie_at(&self, tensor: TensorId, root: Option<TensorId>, readers: &[NodeId]) -> bool {
        let is_view = self.producer(tensor).is_some_and(|p| self.node(p).op == Op::View);
        !is_view
            || root == Some(self.through_views(tensor))
            || !readers.iter().any(|r| self.is_pinned_view(*r))
    }

    /// Is it a view at the border, or of which there is one?
    fn is_pinned_view(&self, node: NodeId) -> bool {
        // No recursion: files decide how many views follow each other.
        let mut left = vec![node];
        while let Some(node) = left.pop().map(|id| self.node(id)) {
            if node.op != Op::View {
                continue;
            }
            if node.outputs.iter().any(|t| !self.tensor(*t).is_private()) {
                return true;
            }
            left.extend(node.outputs.iter().flat_map(|t| self.readers(*t)));
        }
        false
    }

    /// A border tensor written by an earlier node keeps its time.
    fn must_stay(&self, tensor: TensorId, last: NodeId) -> bool {
        !self.tensor(tensor).is_private() && self.producer(tensor).is_some_and(|p| p != last)
    }

    /// Does everything that the draft reads still hold at `last`, and does its output spare it?
    fn is_intact(&self, nodes: &[NodeId], last: NodeId, draft: &Draft) -> bool {
        let outputs: SmallVec<[TensorMemory; 2]> =
            draft.outputs.iter().map(|t| self.tensor(*t).place).collect();
        let inputs = draft.args.iter().flat_map(Argument::tensors).filter(|t| !draft.outputs.contains(t));
        for input in inputs {
            let root = self.through_views(input);
            let place = self.tensor(root).place;
            if matches!(place, TensorMemory::Private | TensorMemory::Constant) {
                continue;
            }
            if outputs.iter().any(|o| o.overlaps(&place)) {
                return false;
            }
            // What the last node reads is there where it stands.
            let is_read_there = self.readers(input).contains(&last);
            let from = self.producer(root).map_or(0, |p| self.positions[p.index()] as usize + 1);
            let is_destroyed = |n: &Node| n.outputs.iter().any(|t| self.tensor(*t).place.overlaps(&place));
            if !is_read_there && self.between(from, nodes, last).any(is_destroyed) {
                return false;
            }
        }
        nodes.iter().all(|moved| {
            let values = &self.node(*moved).read_values;
            let is_overwritten = |n: &Node| n.written_values.iter().any(|v| values.contains(v));
            values.is_empty()
                || !self.between(self.positions[moved.index()] as usize, nodes, last).any(is_overwritten)
        })
    }

    /// Live nodes from position `from` up to `last` that are none of `nodes`.
    fn between<'a>(
        &'a self,
        from: usize,
        nodes: &'a [NodeId],
        last: NodeId,
    ) -> impl Iterator<Item = &'a Node> + 'a {
        let to = self.positions[last.index()] as usize;
        let range = if from < to { from..to } else { 0..0 };
        self.order[range]
            .iter()
            .filter(|n| !nodes.contains(n))
            .map(|n| self.node(*n))
            .filter(|n| !n.is_removed)
    }

    /// Puts a new node before `at`, which it serves: errors in it are reported at `at`'s instructions, and it may read
    /// the computed values that `at` reads.
    pub fn insert_before(&mut self, at: NodeId, draft: Draft) -> NodeId {
        let Node { covers, read_values, .. } = self.node(at).clone();
        let id = self.add(Node {
            op: draft.op,
            operator: draft.operator,
            args: draft.args,
            outputs: draft.outputs,
            returned: None,
            epilogue: draft.epilogue,
            covers,
            instruction: None,
            read_values,
            written_values: SmallVec::new(),
            in_place_of: None,
            is_removed: false,
        });
        let position = self.positions[at.index()] as usize;
        self.order.insert(position, id);
        self.positions.push(0);
        for (at, node) in self.order.iter().enumerate().skip(position) {
            self.positions[node.index()] = at as u32;
        }
        id
    }

    /// States which nodes' instructions `node` stands for, removed ones included, instead of what it stood for.
    pub fn cover(&mut self, node: NodeId, nodes: &[NodeId]) {
        let mut covers: SmallVec<[u32; 2]> =
            nodes.iter().flat_map(|n| self.node(*n).covers.iter().copied()).collect();
        covers.sort_unstable();
        covers.dedup();
        self.nodes[node.index()].covers = covers;
    }

    /// Changes the memory order of a private tensor. The caller sees to it that its producer and readers can
    /// live with that.
    ///
    /// Returns false, changing nothing, for tensors at the borders and orders of another rank.
    pub fn set_dim_order(&mut self, tensor: TensorId, order: DimOrder) -> bool {
        let t = &mut self.tensors[tensor.index()];
        let is_possible = t.is_private() && order.rank() == t.spec.shape.len();
        if is_possible {
            t.spec.dim_order = order;
        }
        is_possible
    }

    /// Lets `readers` of `from` read `to` instead. False, changing nothing, where `to` is, or looks at, a border tensor that
    /// a node overwrites until the last of them has run, their own results included; or where a view at the border shows
    /// `from`, which lies elsewhere.
    pub fn redirect(&mut self, readers: &[NodeId], from: TensorId, to: TensorId) -> bool {
        if !self.lasts_until(to, readers) || !self.may_lie_at(from, Some(self.through_views(to)), readers) {
            return false;
        }
        for node in readers {
            let before = self.readers[from.index()].len();
            self.readers[from.index()].retain(|r| r != node);
            let count = before - self.readers[from.index()].len();
            self.readers[to.index()].extend(std::iter::repeat_n(*node, count));
            let target = &mut self.nodes[node.index()];
            target.args.iter_mut().for_each(|a| a.rename(from, to));
            target.in_place_of = target.in_place_of.filter(|t| *t != from);
        }
        true
    }

    /// Do the bytes of `tensor` stay what they are until `readers`, and whoever reads views of theirs, have run?
    pub fn lasts_until(&self, tensor: TensorId, readers: &[NodeId]) -> bool {
        let root = self.through_views(tensor);
        let place = self.tensor(root).place;
        if matches!(place, TensorMemory::Private | TensorMemory::Constant) {
            return true;
        }
        let mut left: Vec<NodeId> = readers.to_vec();
        let mut end = 0;
        while let Some(id) = left.pop() {
            end = end.max(self.positions[id.index()] as usize + 1);
            let node = self.node(id);
            if node.op == Op::View {
                left.extend(node.outputs.iter().flat_map(|view| self.readers(*view)));
            }
        }
        let start = self.producer(root).map_or(0, |p| self.positions[p.index()] as usize + 1);
        let is_destroyed = |n: &Node| n.outputs.iter().any(|t| self.tensor(*t).place.overlaps(&place));
        let nodes = self.order.get(start..end).unwrap_or_default().iter().map(|id| self.node(*id));
        !nodes.filter(|n| !n.is_removed).any(is_destroyed)
    }

    /// Removes a node whose results are private and unread. False, changing nothing, otherwise.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let n = self.node(node);
        let is_unseen = |t: &TensorId| self.tensor(*t).is_private() && self.readers(*t).is_empty();
        let can = n.op != Op::Fixed
            && !n.is_removed
            && n.written_values.is_empty()
            && n.outputs.iter().all(is_unseen);
        if can {
            self.detach(node);
        }
        can
    }

    fn detach(&mut self, node: NodeId) {
        let inputs: SmallVec<[TensorId; 4]> = self.node(node).inputs().collect();
        for input in inputs {
            self.readers[input.index()].retain(|r| *r != node);
        }
        let n = &mut self.nodes[node.index()];
        n.is_removed = true;
        for output in n.outputs.clone() {
            let t = &mut self.tensors[output.index()];
            if t.definition.is_some_and(|(by, _)| by == node) {
                t.definition = None;
            }
        }
    }
}
