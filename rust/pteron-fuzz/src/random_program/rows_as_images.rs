//! Rows as images of one line: convolutions, batch norm, sums and activations.

use super::{Generator, MAX_ROWS, Node};
use pteron_core::DType;
use pteron_format::write::{TensorDraft, ValueDraft};

impl Generator<'_> {
    /// Rows as images: convolutions to a few channels and back with batch norm, sums and activations between
    /// them, in either memory order.
    pub(super) fn images(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let channels = [2, 3, 8][self.rng.below(3)];
        let order = self.rng.one_in(2).then_some([0, 2, 3, 1]);
        let image = self.view(x, 4, &[-1, 1, 1, width as i64]);
        let mut y = self.branch(image, channels, order);
        if self.rng.one_in(2) {
            let other = self.branch(image, channels, order);
            self.touch(y);
            self.touch(other);
            let alpha = self.value(ValueDraft::Int(1));
            let sum = self.shaped(&[MAX_ROWS, channels, 1, width], order);
            let args = [y, other, sum].map(|n| self.nodes[n].value);
            self.call("aten::add", "out", vec![args[0], args[1], alpha, args[2]]);
            y = sum;
        }
        for name in ["aten::relu", "aten::sigmoid"] {
            if self.rng.one_in(2) {
                self.touch(y);
                let out = self.shaped(&[MAX_ROWS, channels, 1, width], order);
                let args = [y, out].map(|n| self.nodes[n].value);
                self.call(name, "out", args.to_vec());
                y = out;
            }
        }
        let flat = self.filtered(y, [channels, 1], None);
        self.view(flat, 2, &[-1, width as i64]);
    }

    /// A convolution, at times with batch norm behind it.
    pub(super) fn branch(&mut self, image: usize, channels: usize, order: Option<[u8; 4]>) -> usize {
        let y = self.filtered(image, [1, channels], order);
        if self.rng.one_in(2) {
            return y;
        }
        let width = self.nodes[y].width;
        self.normalised(y, &[MAX_ROWS, channels, 1, width], order)
    }

    pub(super) fn filtered(&mut self, x: usize, [from, to]: [usize; 2], order: Option<[u8; 4]>) -> usize {
        let width = self.nodes[x].width;
        let weight = self.constant(&[to, from, 1, 3]);
        let bias = if self.rng.one_in(2) { self.constant(&[to]) } else { self.value(ValueDraft::None) };
        let (stride, padding, dilation) = (self.ints(&[1, 1]), self.ints(&[0, 1]), self.ints(&[1, 1]));
        let output_padding = self.ints(&[0, 0]);
        let (transposed, groups) = (self.value(ValueDraft::Bool(false)), self.value(ValueDraft::Int(1)));
        self.touch(x);
        let out = self.shaped(&[MAX_ROWS, to, 1, width], order);
        let (xv, ov) = (self.nodes[x].value, self.nodes[out].value);
        let args = vec![xv, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ov];
        self.call("aten::convolution", "out", args);
        out
    }

    pub(super) fn normalised(&mut self, x: usize, shape: &[usize], order: Option<[u8; 4]>) -> usize {
        let channels = shape[1];
        let (scale, shift) = (self.constant(&[channels]), self.constant(&[channels]));
        let mean = self.constant(&[channels]);
        let variance: Vec<u8> =
            (0..channels).flat_map(|_| (self.rng.float().abs() + 0.1).to_le_bytes()).collect();
        self.constants.push(variance);
        let index = self.constants.len() as u32 - 1;
        let variance =
            self.value(TensorDraft::contiguous(DType::Float32, &[channels]).unwrap().constant(index).into());
        let (momentum, epsilon) = (self.value(ValueDraft::Double(0.1)), self.value(ValueDraft::Double(1e-5)));
        self.touch(x);
        let out = self.shaped(shape, order);
        let unused = [0, 1].map(|_| {
            let value = self.value(TensorDraft::contiguous(DType::Float32, &[0]).unwrap().into());
            let at = self.now();
            self.nodes.push(Node {
                width: 0,
                value,
                defined_at: at,
                last_use: at,
                base: None,
                is_unsaid: false,
                in_place_of: None,
            });
            value
        });
        let results = [self.nodes[out].value, unused[0], unused[1]];
        let list = self.value(ValueDraft::TensorList(results.map(i64::from).into()));
        let mut args = vec![self.nodes[x].value, scale, shift, mean, variance, momentum, epsilon];
        args.extend(results);
        args.push(list);
        self.kernel("aten::_native_batch_norm_legit_no_training", "out", args);
        out
    }

    /// A row as an image of one channel, a kernel of three columns, and back.
    pub(super) fn convolution(&mut self, x: usize) {
        let width = self.nodes[x].width;
        let weight = self.constant(&[1, 1, 1, 3]);
        let bias = if self.rng.one_in(2) { self.constant(&[1]) } else { self.value(ValueDraft::None) };
        let (stride, padding, dilation) = (self.ints(&[1, 1]), self.ints(&[0, 1]), self.ints(&[1, 1]));
        let output_padding = self.ints(&[0, 0]);
        let (transposed, groups) = (self.value(ValueDraft::Bool(false)), self.value(ValueDraft::Int(1)));
        let image = self.view(x, 4, &[-1, 1, 1, width as i64]);
        self.touch(image);
        let out = self.node(width, 4);
        let (iv, ov) = (self.nodes[image].value, self.nodes[out].value);
        let args = vec![iv, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ov];
        self.call("aten::convolution", "out", args);
        self.touch(out);
        let clamped = self.node(width, 4);
        let cv = self.nodes[clamped].value;
        self.call("aten::relu", "out", vec![ov, cv]);
        self.view(clamped, 2, &[-1, width as i64]);
    }
}
