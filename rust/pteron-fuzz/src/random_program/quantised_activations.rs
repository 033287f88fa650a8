//! Layers between calls that quantise and dequantise, as exporters write them.
//!
//! Only the method's input is quantised, or the input with zeros in front: what has been computed differs by its last bit between settings, and lies between
//! two integers now and then.

use super::{Generator, MAX_ROWS, WIDTHS};
use pteron_core::DType;
use pteron_format::write::{TensorDraft, ValueDraft};

/// Least and largest int8.
const RANGE: [i64; 2] = [-128, 127];

impl Generator<'_> {
    /// The input as int8 and back, at times moved about, then a layer.
    pub(super) fn quantised_layer(&mut self) {
        if self.rng.one_in(4) {
            return self.symmetric_product();
        }
        if self.rng.one_in(4) {
            return self.quantised_sum();
        }
        let width = self.nodes[0].width;
        let scale = [0.015_625, 0.1][self.rng.below(2)];
        let zero = self.rng.below(7) as i64 - 3;
        let x = if self.rng.one_in(3) { self.moved_along(0) } else { 0 };
        let q = self.quantised(x, scale, zero);
        let mut x = self.dequantised(q, scale, zero);
        if self.rng.one_in(2) {
            let there = self.view(x, 3, &[-1, 1, width as i64]);
            x = self.view(there, 2, &[-1, width as i64]);
        }
        if self.rng.one_in(3) {
            self.unary("aten::relu", x);
        } else {
            // At times the weight alone is quantised.
            let x = if self.rng.one_in(3) { self.pick() } else { x };
            self.layer(x);
        }
    }

    /// With zeros in front, and as much less behind, at most all that is there; at times with none.
    fn moved_along(&mut self, x: usize) -> usize {
        self.touch(x);
        let by = self.rng.below(self.nodes[x].width.min(2) + 1) as i64;
        let (pads, fill) = (self.ints(&[by, -by]), self.value(ValueDraft::Double(0.0)));
        let out = self.node(self.nodes[x].width, 2);
        let args = vec![self.nodes[x].value, pads, fill, self.nodes[out].value];
        self.call("aten::constant_pad_nd", "out", args);
        out
    }

    pub(super) fn quantised(&mut self, x: usize, scale: f64, zero: i64) -> usize {
        self.touch(x);
        let shape = [MAX_ROWS, self.nodes[x].width];
        let out = self.tensor(TensorDraft::contiguous(DType::Int8, &shape).unwrap(), shape[1]);
        let mut args = vec![self.nodes[x].value];
        args.extend(self.scheme(scale, zero));
        args.push(self.nodes[out].value);
        self.call("quantized_decomposed::quantize_per_tensor", "out", args);
        out
    }

    pub(super) fn dequantised(&mut self, q: usize, scale: f64, zero: i64) -> usize {
        self.touch(q);
        let out = self.node(self.nodes[q].width, 2);
        let mut args = vec![self.nodes[q].value];
        args.extend(self.scheme(scale, zero));
        args.extend([self.value(ValueDraft::None), self.nodes[out].value]);
        self.call("quantized_decomposed::dequantize_per_tensor", "out", args);
        out
    }

    /// `x` with its rows quantised by what they hold, and dequantised again.
    pub(super) fn rows_there_and_back(&mut self, x: usize) -> usize {
        self.touch(x);
        let width = self.nodes[x].width;
        let of_rows = |dtype| TensorDraft::contiguous(dtype, &[MAX_ROWS, 1]).unwrap();
        let scale = self.tensor(of_rows(DType::Float64), 1);
        let zero = self.tensor(of_rows(DType::Int64), 1);
        let [floats, s, z] = [x, scale, zero].map(|node| self.nodes[node].value);
        let [low, high, int8] = self.int8()[..] else { return x };
        let results = self.value(ValueDraft::TensorList([s, z].map(i64::from).into()));
        let choose = "quantized_decomposed::choose_qparams_per_token_asymmetric";
        self.kernel(choose, "out", vec![floats, int8, s, z, results]);
        [x, scale, zero].into_iter().for_each(|node| self.touch(node));
        let q = self.tensor(TensorDraft::contiguous(DType::Int8, &[MAX_ROWS, width]).unwrap(), width);
        let integers = self.nodes[q].value;
        self.call(
            "quantized_decomposed::quantize_per_token",
            "out",
            vec![floats, s, z, low, high, int8, integers],
        );
        [q, scale, zero].into_iter().for_each(|node| self.touch(node));
        let float = self.value(ValueDraft::Int(i64::from(DType::Float32.code())));
        let out = self.node(width, 2);
        let args = vec![integers, s, z, low, high, int8, float, self.nodes[out].value];
        self.call("quantized_decomposed::dequantize_per_token", "out", args);
        out
    }

    pub(super) fn scheme(&mut self, scale: f64, zero: i64) -> Vec<i32> {
        let scale = self.value(ValueDraft::Double(scale));
        let zero = self.value(ValueDraft::Int(zero));
        [vec![scale, zero], self.int8()].concat()
    }

    /// The range, and its dtype.
    fn int8(&mut self) -> Vec<i32> {
        [RANGE[0], RANGE[1], i64::from(DType::Int8.code())].map(|n| self.value(ValueDraft::Int(n))).to_vec()
    }

    /// `addmm` or `mm` with the transpose of an int8 weight that has a scale for each of its rows.
    fn layer(&mut self, x: usize) {
        let (k, n) = (self.nodes[x].width, WIDTHS[self.rng.below(WIDTHS.len())]);
        let data = (0..n * k).map(|_| (self.rng.below(255) as i32 - 127) as u8).collect();
        let integers = self.constant_bytes(DType::Int8, &[n, k], data);
        let scales = self.small_scales(&[n], k);
        let axis = self.value(ValueDraft::Int(0));
        let mut args = vec![integers, scales, self.value(ValueDraft::None), axis];
        args.extend(self.int8());
        args.push(self.value(ValueDraft::None));
        let floats = self.planned(&[n, k]);
        args.push(self.nodes[floats].value);
        self.call("quantized_decomposed::dequantize_per_channel", "out", args);
        self.touch(floats);
        let weight = self.planned_permute(self.nodes[floats].value, k, n);
        if self.rng.one_in(2) {
            self.product_with(x, weight, n);
            return;
        }
        let (bias, one) = (self.constant(&[n]), self.value(ValueDraft::Int(1)));
        self.touch(x);
        self.touch(weight);
        let out = self.node(n, 2);
        let [x, weight, out] = [x, weight, out].map(|node| self.nodes[node].value);
        self.call("aten::addmm", "out", vec![bias, x, weight, one, one, out]);
    }
}
