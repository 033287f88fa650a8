//! `fuse_clamp`: a clamp behind a linear or convolution moves into its tile.
//!
//! *Before*: `y = linear(x, W, b); z = relu(y)`. *After*: `z = linear+clamp(x, W, b)`.
//!
//! Applies when the clamp is the only reader of `y` and the memory plan lets the linear run at the
//! clamp's place. Exact: clamping in registers or from memory gives the same bytes. Saves one pass over
//! the activations.

use super::Rule;
use crate::epilogue::Epilogue;
use crate::graph::{Graph, NodeId, Op};

pub(super) const RULE: Rule = Rule {
    name: "fuse_clamp",
    about: "relu, hardtanh or clamp into the linear or convolution before it",
    apply,
};

fn apply(graph: &mut Graph) -> usize {
    let mut count = 0;
    for consumer in graph.ids() {
        if let Some((producer, epilogue)) = find(graph, consumer) {
            graph.absorb(producer, consumer, epilogue);
            count += 1;
        }
    }
    count
}

fn find(graph: &Graph, consumer: NodeId) -> Option<(NodeId, Epilogue)> {
    let node = graph.node(consumer);
    let Op::Clamp { min, max } = node.op else { return None };
    let &[producer] = node.inputs.as_slice() else { return None };
    let before = graph.node(producer);
    let is_fusible = matches!(before.op, Op::Linear | Op::Convolution)
        && before.uses == 1
        && before.epilogue.is_none()
        && !before.is_absorbed
        && graph.may_sink(producer, consumer);
    is_fusible.then_some((producer, Epilogue::clamped(min, max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear_relu(uses: u32, sink: bool) -> Graph {
        let mut g = Graph::new();
        let l = g.push(Op::Linear, "aten::addmm.out", vec![], 0, uses);
        let r = g.push(Op::Clamp { min: 0.0, max: f32::INFINITY }, "aten::relu.out", vec![l], 1, 1);
        if sink {
            g.allow_sinking(l, r);
        }
        g
    }

    #[test]
    fn fuses_the_only_reader() {
        let mut g = linear_relu(1, true);
        assert_eq!(apply(&mut g), 1);
        let fused = g.node(NodeId(1));
        assert_eq!((fused.op, fused.call, fused.writes), (Op::Linear, 0, 1));
        assert_eq!(fused.covers, [0, 1]);
        assert_eq!(fused.epilogue, Epilogue::RELU);
        assert!(g.node(NodeId(0)).is_absorbed);
    }

    #[test]
    fn leaves_values_with_other_readers_and_unsafe_memory_plans_alone() {
        assert_eq!(apply(&mut linear_relu(2, true)), 0);
        assert_eq!(apply(&mut linear_relu(1, false)), 0);
    }

    #[test]
    fn one_clamp_per_tile() {
        let mut g = linear_relu(1, true);
        let c = g.push(Op::Clamp { min: -1.0, max: 1.0 }, "aten::hardtanh.out", vec![NodeId(1)], 2, 1);
        g.allow_sinking(NodeId(1), c);
        assert_eq!(apply(&mut g), 1);
    }
}
