//! Attention over the rows, step by step.

use super::{Generator, MAX_ROWS};
use pteron_format::write::ValueDraft;

impl Generator<'_> {
    /// `[rows, heads · depth]` attends to itself: products of permuted heads with a softmax between them,
    /// at times with a factor, a mask, or scores that somebody else reads too.
    pub(super) fn attention(&mut self, x: usize) {
        let (heads, depth) = ([1, 2, 3][self.rng.below(3)], [2, 8][self.rng.below(2)]);
        let query = self.heads(x, [heads, depth], [1, 0, 2]);
        let key = self.heads(x, [heads, depth], [1, 2, 0]);
        let value = self.heads(x, [heads, depth], [1, 0, 2]);
        let square = [heads, MAX_ROWS, MAX_ROWS];
        let mut scores = self.bmm(query, key, square);
        if self.rng.one_in(2) {
            let factor = self.value(ValueDraft::Double(0.25));
            scores = self.apply(scores, &square, "aten::mul", "Scalar_out", &[factor]);
        }
        // A mask of one shape does not fit rows whose number changes.
        if !self.is_dynamic && self.rng.one_in(2) {
            let mask = self.constant(&[MAX_ROWS, MAX_ROWS]);
            let alpha = self.value(ValueDraft::Int(1));
            scores = self.apply(scores, &square, "aten::add", "out", &[mask, alpha]);
        }
        if self.rng.one_in(6) {
            self.outputs.push(scores);
        }
        let (dim, half) = (self.value(ValueDraft::Int(-1)), self.value(ValueDraft::Bool(false)));
        let weights = self.apply(scores, &square, "aten::_softmax", "out", &[dim, half]);
        let sums = self.bmm(weights, value, [heads, MAX_ROWS, depth]);
        let order = self.ints(&[1, 0, 2]);
        let joined = self.apply(sums, &[MAX_ROWS, heads, depth], "aten::permute_copy", "out", &[order]);
        let width = (heads * depth) as i64;
        self.view_as(joined, &[MAX_ROWS, heads * depth], &[-1, width]);
    }

    /// A product of the rows, split into heads and permuted.
    fn heads(&mut self, x: usize, [heads, depth]: [usize; 2], order: [i64; 3]) -> usize {
        let y = self.product(x, heads * depth);
        let shape = [MAX_ROWS, heads, depth];
        let split = self.view_as(y, &shape, &[-1, heads as i64, depth as i64]);
        let permuted = order.map(|d| shape[d as usize]);
        let order = self.ints(&order);
        self.apply(split, &permuted, "aten::permute_copy", "out", &[order])
    }

    fn bmm(&mut self, a: usize, b: usize, shape: [usize; 3]) -> usize {
        self.touch(b);
        let second = self.nodes[b].value;
        self.apply(a, &shape, "aten::bmm", "out", &[second])
    }

    /// A call whose first argument is `x` and whose result has `shape`.
    pub(super) fn apply(
        &mut self,
        x: usize,
        shape: &[usize],
        name: &str,
        overload: &str,
        rest: &[i32],
    ) -> usize {
        self.touch(x);
        let out = self.shaped(shape, None);
        let mut args = vec![self.nodes[x].value];
        args.extend(rest);
        args.push(self.nodes[out].value);
        self.call(name, overload, args);
        out
    }
}
