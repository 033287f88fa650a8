//! What language models have between products: RMS norms and rotary embeddings, call by call.

use super::{Generator, MAX_ROWS};
use pteron_format::write::ValueDraft;

/// Large enough that rows of nearly nothing, which are what rounding left of a sum, are not made as large as others.
const EPSILON: f64 = 0.01;

impl Generator<'_> {
    /// An RMS norm of the rows, at times with a weight, at times with a factor that somebody else reads too.
    pub(super) fn rms_norm(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let (rows, numbers) = ([MAX_ROWS, width], [MAX_ROWS, 1]);
        let square = if self.rng.one_in(2) {
            let two = self.value(ValueDraft::Double(2.0));
            self.apply(x, &rows, "aten::pow", "Tensor_Scalar_out", &[two])
        } else {
            self.times(x, x, &rows)
        };
        let (dims, keep, none) =
            (self.ints(&[-1]), self.value(ValueDraft::Bool(true)), self.value(ValueDraft::None));
        let mean = self.apply(square, &numbers, "aten::mean", "out", &[dims, keep, none]);
        let (eps, alpha) = (self.value(ValueDraft::Double(EPSILON)), self.value(ValueDraft::Int(1)));
        let sum = self.apply(mean, &numbers, "aten::add", "Scalar_out", &[eps, alpha]);
        let factor = self.apply(sum, &numbers, "aten::rsqrt", "out", &[]);
        if self.rng.one_in(6) {
            self.outputs.push(factor);
        }
        let normal = self.times(x, factor, &rows);
        if self.rng.one_in(2) {
            let weight = self.constant(&[width]);
            self.apply(normal, &rows, "aten::mul", "out", &[weight]);
        }
    }

    /// Rows as heads, turned by tables that are rows, too: heads permuted before, at times a part of each head, at times
    /// with a factor.
    pub(super) fn rotary(&mut self, x: usize) {
        let (heads, half) = ([1, 2][self.rng.below(2)], [1, 3, 8][self.rng.below(3)]);
        let (turned, kept) = (2 * half, [0, 0, 2][self.rng.below(3)]);
        let width = turned + kept;
        let tables = [0; 2].map(|_| {
            let table = self.product(x, turned);
            self.view_as(table, &[1, 1, MAX_ROWS, turned], &[1, 1, -1, turned as i64])
        });
        let y = self.product(x, heads * width);
        let split = [1, MAX_ROWS, heads, width];
        let y = self.view_as(y, &split, &[1, -1, heads as i64, width as i64]);
        let order = self.ints(&[0, 2, 1, 3]);
        let y = self.apply(y, &[1, heads, MAX_ROWS, width], "aten::permute_copy", "out", &[order]);
        let shape = |n: usize| [1, heads, MAX_ROWS, n];
        let rest = (kept > 0).then(|| self.part(y, &shape(kept), turned as i64));
        let y = if kept > 0 { self.part(y, &shape(turned), 0) } else { y };
        let (first, second) = (self.part(y, &shape(half), 0), self.part(y, &shape(half), half as i64));
        let negated = self.apply(second, &shape(half), "aten::neg", "out", &[]);
        let swapped = self.side_by_side(negated, first, &shape(turned));
        let straight = self.times(y, tables[0], &shape(turned));
        let crossed = self.times(swapped, tables[1], &shape(turned));
        self.touch(crossed);
        let (alpha, crossed) = (self.value(ValueDraft::Int(1)), self.nodes[crossed].value);
        let mut z = self.apply(straight, &shape(turned), "aten::add", "out", &[crossed, alpha]);
        if let Some(rest) = rest {
            z = self.side_by_side(z, rest, &shape(width));
        }
        if self.rng.one_in(2) {
            let factor = self.value(ValueDraft::Double(0.25));
            z = self.apply(z, &shape(width), "aten::mul", "Scalar_out", &[factor]);
        }
        let z = self.apply(z, &split, "aten::permute_copy", "out", &[order]);
        self.view_as(z, &[MAX_ROWS, heads * width], &[-1, (heads * width) as i64]);
    }

    fn times(&mut self, a: usize, b: usize, shape: &[usize]) -> usize {
        self.touch(b);
        let second = self.nodes[b].value;
        self.apply(a, shape, "aten::mul", "out", &[second])
    }

    /// Elements of the last dimension from `start` on, as many as `shape` has there.
    fn part(&mut self, x: usize, shape: &[usize; 4], start: i64) -> usize {
        let is_last = start > 0 && start + shape[3] as i64 == self.nodes[x].width as i64;
        let end = if is_last { i64::MAX } else { start + shape[3] as i64 };
        let numbers = [3, start, end, 1].map(|n| self.value(ValueDraft::Int(n)));
        self.apply(x, shape, "aten::slice_copy", "Tensor_out", &numbers)
    }

    /// Two tensors joined along the last dimension.
    fn side_by_side(&mut self, a: usize, b: usize, shape: &[usize]) -> usize {
        self.touch(a);
        self.touch(b);
        let out = self.shaped(shape, None);
        let parts = [a, b].map(|n| i64::from(self.nodes[n].value));
        let (list, dim) = (self.value(ValueDraft::TensorList(parts.into())), self.value(ValueDraft::Int(3)));
        let value = self.nodes[out].value;
        self.call("aten::cat", "out", vec![list, dim, value]);
        out
    }
}
