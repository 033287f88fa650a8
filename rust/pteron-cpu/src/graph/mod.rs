//! The engine's graph IR: SSA nodes over a closed set of semantic operations plus [`Op::Opaque`]. It
//! is the only input of the rewrite [`rules`]; the runtime lowers runs of file instructions to it and
//! emits steps from what the rules left.
//!
//! A graph stands for one run: straight-line code that ends at a jump or a delegate call. [`Node`]s are
//! in execution order. A [`Tensor`] is one version of a value: what one node wrote, what the run found
//! when it began, or a constant. Tensors that only this run sees are *private*: the runtime places them
//! itself after the rules are done, so a rule need not think of the file's memory plan. The others are
//! at the borders, stay where the file put them, and tie the order of the nodes that touch them.
//!
//! # How a rule is written
//!
//! One file in `rules/` with a `RULE`, one line in [`rules::RULES`]. `apply` walks `graph.ids()`
//! (removed nodes must be skipped with [`Graph::is_live`]; ids of new nodes are not visited), looks for
//! its pattern and edits:
//!
//! - *look*: [`Graph::node`] (`op`, `operator`, `args`), [`Node::input`] (the tensor argument at a
//!   position), [`Node::number`] and [`Node::ints`] (arguments that nothing in the program writes),
//!   [`Graph::tensor`] (spec, place), [`Graph::producer`], [`Graph::only_reader`] (the single reader of
//!   a private tensor), [`Graph::readers`], [`Graph::through_views`] (the tensor that a chain of views looks at);
//! - *replace*: write a [`Draft`] of the new node and hand it to [`Graph::replace`] with the nodes that it
//!   stands for, in order. It takes the place of the last one and covers the instructions of all. `replace`
//!   refuses, changing nothing, where the result of a replaced node is still needed or the file's memory
//!   plan would destroy an input before the new place;
//! - *insert*: [`Graph::insert_before`] a node, with results from [`Graph::new_tensor`];
//! - *change a layout*: [`Graph::set_dim_order`] of a private tensor; [`Graph::redirect`] readers to another one;
//! - *remove*: [`Graph::remove`] a node whose results nobody reads;
//! - *ask* [`Host::can_prepare`] for a draft before it goes in, since a plan without a kernel is an error at
//!   load; read constants with [`Host::constant`], make new ones with [`Host::add_constant`].
//!
//! The arguments of a draft follow the convention in [`crate::plan`]. What a rule changes must hold for
//! every shape within the bounds of the specs when a spec is dynamic.

mod argument;
mod edit;
mod host;
mod ids;
mod node;
pub mod rules;
mod semantics;
mod tensor;
#[cfg(test)]
pub(crate) mod testing;

pub use argument::{Argument, Literal};
pub use host::{Host, replace_found};
pub use ids::{NodeId, TensorId};
pub use node::{Draft, Node, Op};
pub use semantics::ET_VIEW;
pub use tensor::{Space, Tensor, TensorMemory};

use pteron_core::ArgSpec;
use smallvec::SmallVec;

/// A run of nodes in execution order. See the module for how to read and change it.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    // Every node once, removed ones too.
    order: Vec<NodeId>,
    // Where each node is in `order`.
    positions: Vec<u32>,
    tensors: Vec<Tensor>,
    // Live nodes that read each tensor, once per argument that names it.
    readers: Vec<SmallVec<[NodeId; 2]>>,
}

impl Graph {
    /// An empty run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor that the run finds, or that a node added later writes.
    pub fn push_tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        self.readers.push(SmallVec::new());
        TensorId(self.tensors.len() as u32 - 1)
    }

    /// Appends a node; says what it computes if the engine knows its operator.
    pub fn push(&mut self, mut node: Node) -> NodeId {
        if node.op == Op::Opaque {
            node.op = semantics::op_of(&node, |t| &self.tensors[t.index()].spec);
        }
        let id = self.add(node);
        self.order.push(id);
        self.positions.push(self.order.len() as u32 - 1);
        id
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        for (index, output) in node.outputs.iter().enumerate() {
            self.tensors[output.index()].definition = Some((id, index as u32));
        }
        for input in node.inputs() {
            self.readers[input.index()].push(id);
        }
        self.nodes.push(node);
        id
    }

    /// Ids of all nodes in execution order, removed ones too.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.order.clone().into_iter()
    }

    /// Nodes in execution order, without the removed ones.
    pub fn live(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.order.iter().map(|id| (*id, self.node(*id))).filter(|(_, n)| !n.is_removed)
    }

    /// The node `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Still part of the run?
    pub fn is_live(&self, id: NodeId) -> bool {
        !self.nodes[id.index()].is_removed
    }

    /// The tensor `id`.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// Number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }

    /// The node that writes `tensor`; `None` for what the run finds and for constants.
    pub fn producer(&self, tensor: TensorId) -> Option<NodeId> {
        self.tensors[tensor.index()].definition.map(|(node, _)| node)
    }

    /// Nodes that read `tensor`, once per argument.
    pub fn readers(&self, tensor: TensorId) -> &[NodeId] {
        &self.readers[tensor.index()]
    }

    /// The reader of a private tensor that is read once and nowhere else.
    pub fn only_reader(&self, tensor: TensorId) -> Option<NodeId> {
        match (self.readers(tensor), &self.tensor(tensor).place) {
            (&[one], TensorMemory::Private) => Some(one),
            _ => None,
        }
    }

    /// The producer of `tensor` if it has no other result that anybody sees, and `tensor` has no other
    /// reader than one: a node that may be fused into that reader.
    pub fn sole_producer(&self, tensor: TensorId) -> Option<NodeId> {
        self.only_reader(tensor)?;
        let producer = self.producer(tensor)?;
        let is_unseen = |t: &TensorId| {
            *t == tensor || (self.tensor(*t).place == TensorMemory::Private && self.readers(*t).is_empty())
        };
        self.node(producer).outputs.iter().all(is_unseen).then_some(producer)
    }

    /// The tensor whose bytes `tensor` is, through any number of views.
    pub fn through_views(&self, mut tensor: TensorId) -> TensorId {
        while let Some(producer) = self.producer(tensor)
            && self.node(producer).op == Op::View
            && let Some(base) = self.node(producer).input(0)
        {
            tensor = base;
        }
        tensor
    }

    /// The arguments of `node` as preparing sees them, without the contents of constants. A number that is
    /// computed is one that is not known.
    pub fn arg_specs(&self, node: NodeId) -> Vec<ArgSpec<'_>> {
        let spec = |t: TensorId| self.tensor(t).spec.clone();
        let of = |argument| match argument {
            &Argument::Tensor(t) => ArgSpec::Tensor(spec(t), None),
            Argument::Tensors(list) => ArgSpec::TensorList(list.iter().map(|t| t.map(spec)).collect()),
            Argument::Literal(literal, _) => literal.arg_spec(),
            Argument::Value(_) => ArgSpec::Double(None),
        };
        self.node(node).args.iter().map(of).collect()
    }

    /// Is node `a` executed before node `b`?
    pub fn is_before(&self, a: NodeId, b: NodeId) -> bool {
        self.positions[a.index()] < self.positions[b.index()]
    }

    /// Puts `nodes` into execution order, each once.
    pub fn sort(&self, nodes: &mut Vec<NodeId>) {
        nodes.sort_by_key(|id| self.positions[id.index()]);
        nodes.dedup();
    }

    /// States that `tensor` is seen in ways that the graph does not list, and has to stay at `place`.
    pub fn pin(&mut self, tensor: TensorId, place: TensorMemory) {
        self.tensors[tensor.index()].place = place;
    }
}
