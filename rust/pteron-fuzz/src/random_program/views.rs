//! Views to other ranks and back.

use super::{Generator, MAX_ROWS};

impl Generator<'_> {
    /// To `[rows, 1, width]`, something on it, and back.
    pub(super) fn views(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let there = self.view(x, 3, &[-1, 1, width as i64]);
        self.touch(there);
        let middle = self.node(width, 3);
        let (tv, mv) = (self.nodes[there].value, self.nodes[middle].value);
        self.call("aten::relu", "out", vec![tv, mv]);
        self.view(middle, 2, &[-1, width as i64]);
    }

    pub(super) fn view(&mut self, x: usize, rank: usize, size: &[i64]) -> usize {
        let width = self.nodes[x].width;
        let mut shape = vec![1; rank];
        (shape[0], shape[rank - 1]) = (MAX_ROWS, width);
        self.view_as(x, &shape, size)
    }

    /// `x` as a tensor of `shape`, which `size` says to the program.
    pub(super) fn view_as(&mut self, x: usize, shape: &[usize], size: &[i64]) -> usize {
        let size = self.ints(size);
        self.touch(x);
        let out = self.shaped(shape, None);
        self.nodes[out].base = Some(x);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        self.call("executorch_prim::et_view", "default", vec![xv, size, ov]);
        out
    }
}
