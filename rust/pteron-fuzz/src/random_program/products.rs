//! Matrix products and what exporters write behind them.

use super::{Generator, Node, WIDTHS};
use pteron_core::DType;
use pteron_format::write::{TensorDraft, ValueDraft};

impl Generator<'_> {
    /// `addmm` or `mm` with a weight that reaches it through a permute, as exporters write it.
    pub(super) fn linear(&mut self, x: usize) {
        let (k, n) = (self.nodes[x].width, WIDTHS[self.rng.below(WIDTHS.len())]);
        let weight = self.constant(&[n, k]);
        let permuted = self.planned_permute(weight, k, n);
        let one = self.value(ValueDraft::Int(1));
        self.touch(x);
        let with_bias = self.rng.one_in(2);
        let bias = self.constant(&[n]);
        let out = self.node(n, 2);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        self.nodes[permuted].last_use = self.now();
        let weight = self.nodes[permuted].value;
        if with_bias {
            self.call("aten::addmm", "out", vec![bias, xv, weight, one, one, ov]);
        } else {
            self.call("aten::mm", "out", vec![xv, weight, ov]);
        }
        match self.rng.below(4) {
            0 => self.scaled(out, n),
            1 | 2 => self.unary("aten::relu", out),
            _ => {}
        }
    }

    /// Times, or plus, constants: numbers or one for each column, on either side; once or twice.
    fn scaled(&mut self, mut x: usize, width: usize) {
        for _ in 0..1 + self.rng.below(2) {
            self.touch(x);
            let out = self.node(width, 2);
            let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
            let alpha = [1, 2, -1][self.rng.below(3)];
            let alpha = self.value(ValueDraft::Int(alpha));
            if self.rng.one_in(3) {
                let number = f64::from(self.rng.float()) + 1.5;
                let number = self.value(ValueDraft::Double(number));
                match self.rng.below(3) {
                    0 => self.call("aten::add", "Scalar_out", vec![xv, number, alpha, ov]),
                    1 => self.call("aten::div", "Scalar_out", vec![xv, number, ov]),
                    _ => self.call("aten::mul", "Scalar_out", vec![xv, number, ov]),
                }
            } else {
                let row = if self.rng.one_in(3) { self.constant(&[1]) } else { self.constant(&[width]) };
                let [a, b] = if self.rng.one_in(2) { [xv, row] } else { [row, xv] };
                match self.rng.below(3) {
                    0 => self.call("aten::add", "out", vec![a, b, alpha, ov]),
                    1 => self.call("aten::sub", "out", vec![a, b, alpha, ov]),
                    _ => self.call("aten::mul", "out", vec![a, b, ov]),
                }
            }
            x = out;
        }
    }

    /// The permuted weight is an activation like any other as far as the memory plan goes.
    pub(super) fn planned_permute(&mut self, weight: i32, k: usize, n: usize) -> usize {
        let order = self.ints(&[1, 0]);
        let id = self.planned(&[k, n]);
        let value = self.nodes[id].value;
        self.call("aten::permute_copy", "out", vec![weight, order, value]);
        id
    }

    /// An f32 tensor of this shape, whatever the number of rows, that the memory plan holds.
    pub(super) fn planned(&mut self, shape: &[usize]) -> usize {
        let value = self.value(TensorDraft::contiguous(DType::Float32, shape).unwrap().into());
        let at = self.now();
        self.nodes.push(Node {
            width: shape.last().copied().unwrap_or(1),
            value,
            defined_at: at,
            last_use: at,
            base: None,
            is_unsaid: false,
            in_place_of: None,
        });
        self.nodes.len() - 1
    }

    /// `y * sigmoid(y)` of a product, at times with the product read by somebody else too.
    pub(super) fn gated(&mut self, x: usize) {
        let y = self.plain_product(x);
        self.unary("aten::sigmoid", y);
        let s = self.nodes.len() - 1;
        self.touch(y);
        self.touch(s);
        let out = self.node(self.nodes[y].width, 2);
        let (yv, sv, ov) = (self.nodes[y].value, self.nodes[s].value, self.nodes[out].value);
        self.call("aten::mul", "out", vec![yv, sv, ov]);
        if self.rng.one_in(4) {
            self.outputs.push([y, s][self.rng.below(2)]);
        }
    }

    /// A product, seen as `[rows, 1, width]`, GELU or a sum on that, and back.
    pub(super) fn viewed_product(&mut self, x: usize) {
        let y = self.plain_product(x);
        let width = self.nodes[y].width;
        let there = self.view(y, 3, &[-1, 1, width as i64]);
        let out = if self.rng.one_in(2) {
            self.touch(there);
            let kind = self.value(ValueDraft::String("none".into()));
            let out = self.node(width, 3);
            let (tv, ov) = (self.nodes[there].value, self.nodes[out].value);
            self.call("aten::gelu", "out", vec![tv, kind, ov]);
            out
        } else {
            self.viewed_sum(there, width)
        };
        if !self.is_dynamic && self.rng.one_in(2) {
            self.unsaid_view(out);
        } else {
            self.view(out, 2, &[-1, width as i64]);
        }
    }

    /// A copy of a product's rows as `[rows, 1, width]`, mostly for the caller.
    pub(super) fn shown_product(&mut self, x: usize) {
        let y = if self.rng.one_in(2) {
            self.plain_product(x)
        } else {
            self.linear(x);
            self.pick()
        };
        let width = self.nodes[y].width;
        let sizes = self.ints(&[-1, 1, width as i64]);
        self.touch(y);
        let out = self.node(width, 3);
        let (yv, ov) = (self.nodes[y].value, self.nodes[out].value);
        self.call("aten::view_copy", "out", vec![yv, sizes, ov]);
        if !self.rng.one_in(4) {
            self.outputs.push(out);
        }
    }

    pub(super) fn viewed_sum(&mut self, there: usize, width: usize) -> usize {
        let same: Vec<usize> = (0..self.nodes.len())
            .filter(|i| self.nodes[*i].width == width && self.is_activation(*i))
            .collect();
        let other = same[self.rng.below(same.len())];
        let other = self.view(other, 3, &[-1, 1, width as i64]);
        self.touch(there);
        self.touch(other);
        let alpha = self.value(ValueDraft::Int(1));
        let out = self.node(width, 3);
        let mut args = [self.nodes[there].value, self.nodes[other].value];
        if self.rng.one_in(2) {
            args.reverse();
        }
        let ov = self.nodes[out].value;
        self.call("aten::add", "out", vec![args[0], args[1], alpha, ov]);
        out
    }

    /// `[rows, width]` at the bytes of a tensor of another rank, which no instruction says.
    pub(super) fn unsaid_view(&mut self, x: usize) {
        let out = self.node(self.nodes[x].width, 2);
        (self.nodes[out].base, self.nodes[out].is_unsaid) = (Some(x), true);
        self.touch(out);
    }

    /// Softmax of one product, times another weight: what attention is made of.
    pub(super) fn scores(&mut self, x: usize) {
        let y = self.plain_product(x);
        let (dim, half) = (self.value(ValueDraft::Int(-1)), self.value(ValueDraft::Bool(false)));
        self.touch(y);
        let out = self.node(self.nodes[y].width, 2);
        let (yv, ov) = (self.nodes[y].value, self.nodes[out].value);
        self.call("aten::_softmax", "out", vec![yv, dim, half, ov]);
        self.plain_product(out);
    }

    /// `mm` with a constant weight.
    pub(super) fn plain_product(&mut self, x: usize) -> usize {
        let width = WIDTHS[self.rng.below(WIDTHS.len())];
        self.product(x, width)
    }

    /// `mm` with a constant weight to rows of `n` elements.
    pub(super) fn product(&mut self, x: usize, n: usize) -> usize {
        let weight = self.constant(&[self.nodes[x].width, n]);
        self.touch(x);
        let out = self.node(n, 2);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        self.call("aten::mm", "out", vec![xv, weight, ov]);
        out
    }
}
