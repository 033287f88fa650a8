//! Operators that run more than once, and moves.

use super::Generator;
use pteron_format::write::{InstructionDraft, ValueDraft};

impl Generator<'_> {
    /// A few operators, run one to three times over a value that each iteration makes anew.
    pub(super) fn repeated(&mut self) {
        let x = self.pick();
        let carried = self.relu_of(x);
        let (index, one) = (self.value(ValueDraft::Int(0)), self.value(ValueDraft::Int(1)));
        let count = 1 + self.rng.below(3) as i64;
        let (count, is_done) = (self.value(ValueDraft::Int(count)), self.value(ValueDraft::Bool(false)));
        let (top, outer) = (self.now(), self.nodes.len());
        for _ in 0..1 + self.rng.below(4) {
            self.operator();
        }
        // What was made last, where it fits; else the value itself once more.
        let width = self.nodes[carried].width;
        let last = (outer..self.nodes.len())
            .rev()
            .find(|i| self.nodes[*i].width == width && self.is_activation(*i))
            .unwrap_or(carried);
        self.touch(last);
        self.touch(carried);
        let name = if last == carried { "aten::neg" } else { "aten::relu" };
        let (from, to) = (self.nodes[last].value, self.nodes[carried].value);
        self.call(name, "out", vec![from, to]);
        self.kernel("executorch_prim::add", "Scalar", vec![index, one, index]);
        self.kernel("executorch_prim::ge", "Scalar", vec![index, count, is_done]);
        let end = self.now();
        self.instruction(InstructionDraft::JumpFalse { condition: is_done, destination: top as i32 });
        // What an iteration reads from before the loop, the next one reads again.
        for node in self.nodes.iter_mut().take(outer).filter(|n| n.last_use >= top) {
            node.last_use = node.last_use.max(end);
        }
    }

    /// The same rows under another value, which a move points at their bytes, and a function of them.
    pub(super) fn moved(&mut self, x: usize) {
        self.touch(x);
        let width = self.nodes[x].width;
        let to = self.node(width, 2);
        self.nodes[to].base = Some(x);
        let (from, target) = (self.nodes[x].value, self.nodes[to].value);
        self.instruction(InstructionDraft::Move { from, to: target });
        self.touch(to);
        let out = self.node(width, 2);
        let (xv, ov) = (self.nodes[to].value, self.nodes[out].value);
        self.call("aten::sigmoid", "out", vec![xv, ov]);
    }
}
