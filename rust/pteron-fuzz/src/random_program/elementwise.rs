//! Elementwise functions of rows.

use super::Generator;
use pteron_format::write::ValueDraft;

impl Generator<'_> {
    pub(super) fn unary(&mut self, name: &str, x: usize) {
        self.elementwise(x, |g, xv, ov| g.call(name, "out", vec![xv, ov]));
    }

    pub(super) fn hardtanh(&mut self, x: usize) {
        let min = self.value(ValueDraft::Double(-0.5));
        let max = self.value(ValueDraft::Int(1));
        self.elementwise(x, |g, xv, ov| g.call("aten::hardtanh", "out", vec![xv, min, max, ov]));
    }

    pub(super) fn elementwise(&mut self, x: usize, call: impl FnOnce(&mut Self, i32, i32)) {
        self.touch(x);
        let out = self.node(self.nodes[x].width, 2);
        self.nodes[out].in_place_of = Some(x);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        call(self, xv, ov);
    }

    pub(super) fn add(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let same: Vec<usize> = (0..self.nodes.len())
            .filter(|i| self.nodes[*i].width == width && self.is_activation(*i))
            .collect();
        let y = same[self.rng.below(same.len())];
        self.touch(x);
        self.touch(y);
        let alpha = self.value(ValueDraft::Int(1));
        let out = self.node(width, 2);
        let (xv, yv, ov) = (self.nodes[x].value, self.nodes[y].value, self.nodes[out].value);
        self.call("aten::add", "out", vec![xv, yv, alpha, ov]);
    }

    /// The rows scaled by one that is computed from constants alone.
    pub(super) fn scaled_by_known(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let (size, fill) = (self.ints(&[width as i64]), self.value(ValueDraft::Double(0.5)));
        let mut row = self.known(width);
        let first = self.nodes[row].value;
        self.call("aten::full", "out", vec![size, fill, first]);
        if self.rng.one_in(2) {
            let ([from, to], stored) = ([row, self.known(width)], self.constant(&[width]));
            let args = [self.nodes[from].value, stored, self.nodes[to].value];
            self.touch(from);
            self.call("aten::mul", "out", args.to_vec());
            row = to;
        }
        if self.rng.one_in(2) {
            let [from, to] = [row, self.known(width)];
            self.touch(from);
            let args = [from, to].map(|n| self.nodes[n].value);
            self.call("aten::exp", "out", args.to_vec());
            row = to;
        }
        self.touch(row);
        let second = self.nodes[row].value;
        self.elementwise(x, |g, xv, ov| g.call("aten::mul", "out", vec![xv, second, ov]));
    }

    /// A row whose extent never changes.
    fn known(&mut self, width: usize) -> usize {
        let is_dynamic = std::mem::replace(&mut self.is_dynamic, false);
        let row = self.shaped(&[width], None);
        self.is_dynamic = is_dynamic;
        row
    }
}
