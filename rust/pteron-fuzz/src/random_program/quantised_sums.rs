//! Residual connections of integer networks. Scales are powers of two, so that every product is exact and no setting rounds
//! another one.

use super::{Generator, WIDTHS};
use pteron_core::DType;
use pteron_format::write::ValueDraft;

impl Generator<'_> {
    /// `quantise(relu(add(dequantise(p), dequantise(r))))` of a quantised product and a quantised tensor, in either order.
    pub(super) fn quantised_sum(&mut self) {
        let k = self.nodes[0].width;
        let n = if self.rng.one_in(2) { k } else { WIDTHS[self.rng.below(WIDTHS.len())] };
        let q = self.quantised(0, 0.015_625, 1);
        let p = self.quantised_product_of(q, k, n);
        // The input itself, or another product of it.
        let r = if n == k { self.quantised(0, 0.1, -3) } else { self.quantised_product_of(q, k, n) };
        let (x, y) = (self.dequantised(p, 0.25, 1), self.dequantised(r, 0.0625, -3));
        let [first, second] = if self.rng.one_in(2) { [x, y] } else { [y, x] };
        [first, second].into_iter().for_each(|node| self.touch(node));
        let mut sum = self.node(n, 2);
        let one = self.value(ValueDraft::Int(1));
        let args = vec![self.nodes[first].value, self.nodes[second].value, one, self.nodes[sum].value];
        self.call("aten::add", "out", args);
        if self.rng.one_in(2) {
            self.touch(sum);
            let (from, to) = (sum, self.node(n, 2));
            self.call("aten::relu", "out", vec![self.nodes[from].value, self.nodes[to].value]);
            sum = to;
        }
        let quantised = self.quantised(sum, 0.3, -7);
        self.dequantised(quantised, 0.3, -7);
    }

    /// The product of `q`, of scale 1/64 and zero point 1, and an int8 constant, quantised with a scale of 1/4 and a zero point of 1.
    fn quantised_product_of(&mut self, q: usize, k: usize, n: usize) -> usize {
        let x = self.dequantised(q, 0.015_625, 1);
        let data = (0..k * n).map(|_| (self.rng.below(200) as i32 - 100) as u8).collect();
        let integers = self.constant_bytes(DType::Int8, &[k, n], data);
        let mut args = vec![integers];
        args.extend(self.scheme(0.007_812_5, 0));
        let floats = self.planned(&[k, n]);
        args.extend([self.value(ValueDraft::None), self.nodes[floats].value]);
        self.call("quantized_decomposed::dequantize_per_tensor", "out", args);
        let y = self.product_with(x, floats, n);
        self.quantised(y, 0.25, 1)
    }
}
