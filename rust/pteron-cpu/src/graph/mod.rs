//! The engine's graph IR: SSA nodes over a closed set of semantic operations plus
//! [`Op::Opaque`]. It is the only input of the rewrite [`rules`]; the runtime lowers runs of file
//! instructions to it and turns what the rules fused into plans ([`crate::plan`]).
//!
//! A graph stands for one run: straight-line code without jumps or delegate calls.

pub mod rules;

use crate::epilogue::Epilogue;

/// Index of a node in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// `x · W + b` with a constant f32 weight (`addmm`, `mm`, `linear`).
    Linear,
    /// Convolution with a constant f32 weight.
    Convolution,
    /// Elementwise clamp of an f32 tensor; NaN stays NaN.
    Clamp {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// Anything else: a kernel called as the file says.
    Opaque,
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Operator name of the call it came from.
    pub operator: String,
    /// Nodes that produce its tensor inputs inside the run; border values are not listed.
    pub inputs: Vec<NodeId>,
    /// How often its result is read, in or after the run.
    pub uses: u32,
    /// What was fused behind it.
    pub epilogue: Epilogue,
    /// Instructions it stands for, in order.
    pub covers: Vec<u32>,
    /// Call whose arguments it has (index given by the lowering).
    pub call: u32,
    /// Call whose output it writes.
    pub writes: u32,
    /// Fused into another node?
    pub is_absorbed: bool,
}

/// A run of nodes in execution order.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    sinkable: std::collections::HashSet<(NodeId, NodeId)>,
}

impl Graph {
    /// An empty run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a node that stands for the call and instruction `call`.
    pub fn push(&mut self, op: Op, operator: &str, inputs: Vec<NodeId>, call: u32, uses: u32) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            op,
            operator: operator.to_string(),
            inputs,
            uses,
            epilogue: Epilogue::NONE,
            covers: vec![call],
            call,
            writes: call,
            is_absorbed: false,
        });
        id
    }

    /// States that `producer` may run at `consumer`'s place and write `consumer`'s output: the memory
    /// plan keeps its inputs intact until then and the output overlaps none of them.
    pub fn allow_sinking(&mut self, producer: NodeId, consumer: NodeId) {
        self.sinkable.insert((producer, consumer));
    }

    /// May `producer` run at `consumer`'s place?
    pub fn may_sink(&self, producer: NodeId, consumer: NodeId) -> bool {
        self.sinkable.contains(&(producer, consumer))
    }

    /// All nodes in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Ids in order.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Makes `consumer` compute `producer` with `epilogue` behind it, in `consumer`'s place.
    pub(crate) fn absorb(&mut self, producer: NodeId, consumer: NodeId, epilogue: Epilogue) {
        let taken = self.nodes[producer.index()].clone();
        self.nodes[producer.index()].is_absorbed = true;
        let into = &mut self.nodes[consumer.index()];
        into.op = taken.op;
        into.operator = taken.operator;
        into.inputs = taken.inputs;
        into.epilogue = epilogue;
        into.call = taken.call;
        into.covers.splice(0..0, taken.covers);
    }
}
