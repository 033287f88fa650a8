//! Products with weights that are dequantised from constants, as exporters write them.

use super::{Generator, WIDTHS};
use pteron_core::DType;
use pteron_format::write::ValueDraft;

impl Generator<'_> {
    /// `mm` with the transpose of `(Q - z) * s`, or `mm(x, Q) * s`, in the steps that exporters leave. Rows of the method's input are
    /// quantised as well; those of what has been computed may lie between two integers.
    pub(super) fn quantised_product(&mut self, x: usize) {
        if x == 0 && self.rng.one_in(3) {
            return self.symmetric_product();
        }
        let x = if x == 0 { self.rows_there_and_back(0) } else { x };
        let (k, n) = (self.nodes[x].width, WIDTHS[self.rng.below(WIDTHS.len())]);
        if self.rng.one_in(3) {
            let w = self.converted_bytes(&[k, n]);
            let y = self.product_with(x, w, n);
            self.scaled_by_row(y, [k, n]);
            return;
        }
        if self.rng.one_in(4) {
            let w = self.stored_weight(k, n);
            self.product_with(x, w, n);
            return;
        }
        // Groups of half a row where there are halves.
        let group = if k.is_multiple_of(2) && self.rng.one_in(2) { k / 2 } else { k };
        let (q_shape, s_shape) = match group == k {
            true => (vec![n, k], vec![n, 1]),
            false => (vec![n, k / group, group], vec![n, k / group, 1]),
        };
        let mut w = self.converted_bytes(&q_shape);
        let scales = self.small_scales(&s_shape, k);
        if self.rng.one_in(2) {
            let zeros: usize = s_shape.iter().product();
            let data = (0..zeros).flat_map(|_| ((self.rng.below(9) as f32) - 4.0).to_le_bytes()).collect();
            let zeros = self.constant_bytes(DType::Float32, &s_shape, data);
            let one = self.value(ValueDraft::Int(1));
            w = self.next_planned(w, &q_shape, "aten::sub", |w, out| vec![w, zeros, one, out]);
        }
        w = self.next_planned(w, &q_shape, "aten::mul", |w, out| vec![w, scales, out]);
        if q_shape.len() == 3 {
            let sizes = self.ints(&[n as i64, k as i64]);
            w = self.next_planned(w, &[n, k], "aten::view_copy", |w, out| vec![w, sizes, out]);
        }
        self.touch(w);
        let w = self.planned_permute(self.nodes[w].value, k, n);
        let y = self.product_with(x, w, n);
        if self.rng.one_in(2) {
            self.unary("aten::relu", y);
        }
    }

    /// Floats of an int8 constant by one scale, in the order in which a product reads them.
    fn stored_weight(&mut self, k: usize, n: usize) -> usize {
        let data = (0..k * n).map(|_| (self.rng.below(200) as i32 - 100) as u8).collect();
        let q = self.constant_bytes(DType::Int8, &[k, n], data);
        let mut args = vec![q];
        args.extend(self.scheme(0.0002 / (k as f64).sqrt(), 3));
        let out = self.planned(&[k, n]);
        args.extend([self.value(ValueDraft::None), self.nodes[out].value]);
        self.call("quantized_decomposed::dequantize_per_tensor", "out", args);
        out
    }

    /// An int8 constant, as f32.
    fn converted_bytes(&mut self, shape: &[usize]) -> usize {
        let numel: usize = shape.iter().product();
        let limit = [8, 100][self.rng.below(2)];
        let data = (0..numel).map(|_| (self.rng.below(2 * limit) as i32 - limit as i32) as u8).collect();
        let q = self.constant_bytes(DType::Int8, shape, data);
        let order = (0..shape.len() as i64).collect::<Vec<_>>();
        let (flag, order) = (self.value(ValueDraft::Bool(false)), self.ints(&order));
        let out = self.planned(shape);
        let value = self.nodes[out].value;
        self.call("dim_order_ops::_to_dim_order_copy", "out", vec![q, flag, order, value]);
        out
    }

    /// Scales that leave products of `k` terms as large as other ones: softmax would make much of the rounding of large
    /// numbers.
    pub(super) fn small_scales(&mut self, shape: &[usize], k: usize) -> i32 {
        let numel: usize = shape.iter().product();
        let largest = 0.02 / (k as f32).sqrt();
        let data = (0..numel).flat_map(|_| (self.rng.float() * largest).to_le_bytes()).collect();
        self.constant_bytes(DType::Float32, shape, data)
    }

    /// What `name` makes of the weight `w` so far.
    fn next_planned(
        &mut self,
        w: usize,
        shape: &[usize],
        name: &str,
        args: impl Fn(i32, i32) -> Vec<i32>,
    ) -> usize {
        self.touch(w);
        let out = self.planned(shape);
        let args = args(self.nodes[w].value, self.nodes[out].value);
        self.call(name, "out", args);
        out
    }

    pub(super) fn product_with(&mut self, x: usize, w: usize, n: usize) -> usize {
        self.touch(x);
        self.touch(w);
        let out = self.node(n, 2);
        let args = vec![self.nodes[x].value, self.nodes[w].value, self.nodes[out].value];
        self.call("aten::mm", "out", args);
        out
    }

    /// Times one number for each column.
    fn scaled_by_row(&mut self, y: usize, [k, n]: [usize; 2]) {
        let row = self.small_scales(&[n], k);
        self.touch(y);
        let out = self.node(n, 2);
        let args = vec![self.nodes[y].value, row, self.nodes[out].value];
        self.call("aten::mul", "out", args);
    }
}
