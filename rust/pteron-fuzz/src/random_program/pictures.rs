//! Images of a few channels: what stands between the convolutions of vision models, in either memory order.

use super::{Generator, MAX_ROWS};
use pteron_core::DType;
use pteron_format::write::{TensorDraft, ValueDraft};

/// Largest height and width.
const MOST: usize = 8;

/// An image: its node, channels, height and width.
#[derive(Clone, Copy)]
pub(super) struct Picture {
    pub node: usize,
    pub shape: [usize; 3],
}

/// Images made so far, all in one memory order.
pub(super) struct Album {
    pub order: Option<[u8; 4]>,
    pub pictures: Vec<Picture>,
}

/// A window of convolutions and pools.
struct Sliding {
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Sliding {
    fn extent(&self, n: usize) -> usize {
        (n + 2 * self.padding - self.kernel) / self.stride + 1
    }
}

impl Generator<'_> {
    /// Rows as images, some operators on them, and back to rows.
    pub(super) fn pictures(&mut self, x: usize) {
        let shape = [[3, 4, 4], [8, 5, 3], [32, 2, 3], [1, 4, 4]][self.rng.below(4)];
        let [c, h, w] = shape;
        let rows = self.product(x, c * h * w);
        let order = self.rng.one_in(3).then_some([0, 2, 3, 1]);
        let extents = self.ints(&[-1, c as i64, h as i64, w as i64]);
        self.touch(rows);
        let node = self.shaped(&[MAX_ROWS, c, h, w], order);
        self.nodes[node].base = Some(rows);
        let args = vec![self.nodes[rows].value, extents, self.nodes[node].value];
        self.call("executorch_prim::et_view", "default", args);
        let mut album = Album { order, pictures: vec![Picture { node, shape }] };
        for _ in 0..2 + self.rng.below(6) {
            let last = album.pictures[album.pictures.len() - 1];
            let next = self.picture(&album, last);
            album.pictures.push(next);
            if self.rng.one_in(8) {
                self.outputs.push(next.node);
            }
        }
        self.back_to_rows(album.pictures[album.pictures.len() - 1]);
    }

    fn back_to_rows(&mut self, last: Picture) {
        let [c, h, w] = last.shape;
        if self.rng.one_in(2) {
            self.mean(last, None);
        } else {
            self.view_as(last.node, &[MAX_ROWS, c * h * w], &[-1, (c * h * w) as i64]);
        }
    }

    fn picture(&mut self, album: &Album, x: Picture) -> Picture {
        match self.rng.below(16) {
            0..=2 => self.sliding(album, x, Kind::Dense),
            3 => self.sliding(album, x, Kind::Depthwise),
            4 => self.sliding(album, x, Kind::Pointwise),
            5 => self.transposed(album, x),
            6 => self.pooled(album, x),
            7 => self.normalised_picture(album, x),
            8 => self.joined(album, x),
            9 => self.gate(album, x),
            10 => self.moved_pixels(album, x),
            11 => self.sum(album, x),
            12 => self.shifted(album, x),
            _ => {
                let name = ["aten::relu", "aten::sigmoid", "aten::neg", "aten::silu"][self.rng.below(4)];
                self.step(album, x, x.shape, name, "out", &[])
            }
        }
    }

    /// A call whose first argument is `x`.
    pub(super) fn step(
        &mut self,
        album: &Album,
        x: Picture,
        shape: [usize; 3],
        name: &str,
        overload: &str,
        rest: &[i32],
    ) -> Picture {
        self.touch(x.node);
        let [c, h, w] = shape;
        let node = self.shaped(&[MAX_ROWS, c, h, w], album.order);
        let mut args = vec![self.nodes[x.node].value];
        args.extend(rest);
        args.push(self.nodes[node].value);
        self.call(name, overload, args);
        Picture { node, shape }
    }

    fn sliding(&mut self, album: &Album, x: Picture, kind: Kind) -> Picture {
        let x = match self.rng.below(6) {
            0 => self.padded(album, x, [2, 2, 1, 1], 0.0),
            1 => {
                let margins = [[0; 4], [0, 1, 0, 1], [2, 0, 0, 1]][self.rng.below(3)];
                self.padded(album, x, margins, 0.0)
            }
            _ => x,
        };
        let [c, h, w] = x.shape;
        let (kernel, padding) = if matches!(kind, Kind::Pointwise) { (1, 0) } else { (3, 1) };
        let window = Sliding { kernel, padding, stride: 1 + self.rng.below(2) };
        let filters = [1, 6, 16, 40][self.rng.below(4)];
        let (to, groups) = match kind {
            Kind::Depthwise => (c, c),
            Kind::Dense if c % 2 == 0 && filters % 2 == 0 && self.rng.one_in(3) => (filters, 2),
            _ => (filters, 1),
        };
        let weight = self.constant(&[to, c / groups, kernel, kernel]);
        let shape = [to, window.extent(h), window.extent(w)];
        self.convolved(album, x, shape, weight, [window.stride, padding, groups], false)
    }

    fn transposed(&mut self, album: &Album, x: Picture) -> Picture {
        let [c, h, w] = x.shape;
        if h.max(w) * 2 > MOST {
            return self.sliding(album, x, Kind::Dense);
        }
        let weight = self.constant(&[c, 5, 2, 2]);
        self.convolved(album, x, [5, 2 * h, 2 * w], weight, [2, 0, 1], true)
    }

    pub(super) fn convolved(
        &mut self,
        album: &Album,
        x: Picture,
        shape: [usize; 3],
        weight: i32,
        [stride, padding, groups]: [usize; 3],
        is_transposed: bool,
    ) -> Picture {
        let bias = if self.rng.one_in(2) { self.constant(&[shape[0]]) } else { self.value(ValueDraft::None) };
        let twice = |n: usize| [n as i64; 2];
        let (stride, padding) = (self.ints(&twice(stride)), self.ints(&twice(padding)));
        let (dilation, more) = (self.ints(&[1, 1]), self.ints(&[0, 0]));
        let transposed = self.value(ValueDraft::Bool(is_transposed));
        let groups = self.value(ValueDraft::Int(groups as i64));
        let rest = [weight, bias, stride, padding, dilation, transposed, more, groups];
        self.step(album, x, shape, "aten::convolution", "out", &rest)
    }

    fn pooled(&mut self, album: &Album, x: Picture) -> Picture {
        let [c, h, w] = x.shape;
        let window = Sliding { kernel: 3, padding: 1, stride: 1 + self.rng.below(2) };
        let shape = [c, window.extent(h), window.extent(w)];
        if self.rng.one_in(3) {
            let size = self.ints(&[1, 2]);
            return self.step(album, x, [c, 1, 2], "aten::_adaptive_avg_pool2d", "out", &[size]);
        }
        let lists = [window.kernel, window.stride, window.padding].map(|n| self.ints(&[n as i64; 2]));
        let is_ceil = self.value(ValueDraft::Bool(false));
        if self.rng.one_in(2) {
            let (counts, divisor) = (self.value(ValueDraft::Bool(true)), self.value(ValueDraft::None));
            let rest = [lists[0], lists[1], lists[2], is_ceil, counts, divisor];
            return self.step(album, x, shape, "aten::avg_pool2d", "out", &rest);
        }
        let dilation = self.ints(&[1, 1]);
        self.touch(x.node);
        let node = self.shaped(&[MAX_ROWS, c, shape[1], shape[2]], album.order);
        let mut indices = TensorDraft::contiguous(DType::Int64, &[MAX_ROWS, c, shape[1], shape[2]]).unwrap();
        if let Some(order) = album.order {
            indices.dim_order = order.to_vec();
        }
        let places = self.tensor(indices, shape[2]);
        let results = [node, places].map(|n| self.nodes[n].value);
        let list = self.value(ValueDraft::TensorList(results.map(i64::from).into()));
        let mut args = vec![self.nodes[x.node].value];
        args.extend(lists.iter().chain([&dilation, &is_ceil]).chain(&results));
        args.push(list);
        self.kernel("aten::max_pool2d_with_indices", "out", args);
        Picture { node, shape }
    }

    fn normalised_picture(&mut self, album: &Album, x: Picture) -> Picture {
        let [c, h, w] = x.shape;
        let node = self.normalised(x.node, &[MAX_ROWS, c, h, w], album.order);
        Picture { node, shape: x.shape }
    }

    /// With an earlier image of the same height and width, along the channels.
    fn joined(&mut self, album: &Album, x: Picture) -> Picture {
        let fits = |p: &&Picture| p.shape[1..] == x.shape[1..];
        let others: Vec<Picture> = album.pictures.iter().filter(fits).copied().collect();
        let other = others[self.rng.below(others.len())];
        let shape = [x.shape[0] + other.shape[0], x.shape[1], x.shape[2]];
        if shape[0] > 64 {
            return self.sliding(album, x, Kind::Pointwise);
        }
        self.beside(album, x, other)
    }

    /// Two images of the same height and width, along the channels.
    pub(super) fn beside(&mut self, album: &Album, x: Picture, other: Picture) -> Picture {
        let shape = [x.shape[0] + other.shape[0], x.shape[1], x.shape[2]];
        self.touch(x.node);
        self.touch(other.node);
        let node = self.shaped(&[MAX_ROWS, shape[0], shape[1], shape[2]], album.order);
        let parts = [x.node, other.node].map(|n| self.nodes[n].value);
        let (list, dim) =
            (self.value(ValueDraft::TensorList(parts.map(i64::from).into())), self.value(ValueDraft::Int(1)));
        let out = self.nodes[node].value;
        self.call("aten::cat", "out", vec![list, dim, out]);
        Picture { node, shape }
    }

    /// Squeeze and excite: the channels times a gate that their means make.
    fn gate(&mut self, album: &Album, x: Picture) -> Picture {
        let c = x.shape[0];
        let means = self.mean(x, Some(album));
        let weight = self.constant(&[c, c, 1, 1]);
        let gate = self.convolved(album, means, [c, 1, 1], weight, [1, 0, 1], false);
        let gate = self.step(album, gate, [c, 1, 1], "aten::sigmoid", "out", &[]);
        self.touch(gate.node);
        let second = self.nodes[gate.node].value;
        self.step(album, x, x.shape, "aten::mul", "out", &[second])
    }

    /// Means over the pixels: images of one pixel, or rows.
    fn mean(&mut self, x: Picture, album: Option<&Album>) -> Picture {
        let c = x.shape[0];
        let (dims, keep) = (self.ints(&[-1, -2]), self.value(ValueDraft::Bool(album.is_some())));
        let dtype = self.value(ValueDraft::None);
        self.touch(x.node);
        let node = match album {
            Some(album) => self.shaped(&[MAX_ROWS, c, 1, 1], album.order),
            None => self.shaped(&[MAX_ROWS, c], None),
        };
        let args = vec![self.nodes[x.node].value, dims, keep, dtype, self.nodes[node].value];
        self.call("aten::mean", "out", args);
        Picture { node, shape: [c, 1, 1] }
    }

    /// Copied, cut, padded or enlarged.
    fn moved_pixels(&mut self, album: &Album, x: Picture) -> Picture {
        let [c, h, w] = x.shape;
        let null = self.value(ValueDraft::None);
        match self.rng.below(4) {
            0 if h.max(w) * 2 <= MOST => {
                let factors = self.value(ValueDraft::DoubleList([2.0, 2.0].into()));
                let shape = [c, 2 * h, 2 * w];
                self.step(album, x, shape, "aten::upsample_nearest2d", "vec_out", &[null, factors])
            }
            1 if h > 1 => {
                let [dim, start, end, step] = [2, 1, i64::MAX, 1].map(|v| self.value(ValueDraft::Int(v)));
                let rest = [dim, start, end, step];
                self.step(album, x, [c, h - 1, w], "aten::slice_copy", "Tensor_out", &rest)
            }
            2 if h.max(w) + 3 <= MOST => {
                let fill = [0.0, 1.5][self.rng.below(2)];
                self.padded(album, x, [1, 0, 2, 1], fill)
            }
            _ => self.step(album, x, x.shape, "aten::clone", "out", &[null]),
        }
    }

    /// With a margin: left, right, top, bottom.
    fn padded(&mut self, album: &Album, x: Picture, margins: [usize; 4], fill: f64) -> Picture {
        let ([c, h, w], [left, right, top, bottom]) = (x.shape, margins);
        let pads = self.ints(&margins.map(|n| n as i64));
        let fill = self.value(ValueDraft::Double(fill));
        let shape = [c, h + top + bottom, w + left + right];
        self.step(album, x, shape, "aten::constant_pad_nd", "out", &[pads, fill])
    }

    /// With an earlier image of the same shape.
    fn sum(&mut self, album: &Album, x: Picture) -> Picture {
        let fits = |p: &&Picture| p.shape == x.shape;
        let others: Vec<Picture> = album.pictures.iter().filter(fits).copied().collect();
        let other = others[self.rng.below(others.len())].node;
        self.touch(other);
        let (second, alpha) = (self.nodes[other].value, self.value(ValueDraft::Int(1)));
        self.step(album, x, x.shape, "aten::add", "out", &[second, alpha])
    }

    /// Scaled or shifted by a constant: one per channel, or one per element of an image.
    fn shifted(&mut self, album: &Album, x: Picture) -> Picture {
        let [c, h, w] = x.shape;
        let constant = match self.rng.below(3) {
            0 => self.constant(&[c, 1, 1]),
            1 => self.constant(&[1, c, 1, 1]),
            _ => self.constant(&[1, c, h, w]),
        };
        let alpha = self.value(ValueDraft::Int(1));
        match self.rng.below(6) {
            0..=2 => self.step(album, x, x.shape, "aten::mul", "out", &[constant]),
            3 => self.step(album, x, x.shape, "aten::sub", "out", &[constant, alpha]),
            _ => self.step(album, x, x.shape, "aten::add", "out", &[constant, alpha]),
        }
    }
}

/// What a convolution mixes.
#[derive(Clone, Copy)]
enum Kind {
    Dense,
    Depthwise,
    Pointwise,
}
