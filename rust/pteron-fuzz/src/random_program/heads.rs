//! Heads that segment: rows of pixels brought to many channels, enlarged, laid side by side and convolved.

use super::pictures::{Album, Picture};
use super::{Generator, MAX_ROWS};
use pteron_format::write::ValueDraft;

/// Channels of a map before and behind its product, and of the result.
const FEW: usize = 4;
const MANY: usize = 64;
const CLASSES: usize = 8;
/// Height and width of the smaller map.
const SMALL: [usize; 2] = [2, 3];

impl Generator<'_> {
    /// Two maps of different size, the smaller one enlarged, one convolution over both, rows of the result.
    pub(super) fn head(&mut self, x: usize) {
        let [h, w] = SMALL;
        let small = self.tokens_as_map(x, SMALL);
        let large = self.tokens_as_map(x, [2 * h, 2 * w]);
        let album = Album { order: None, pictures: vec![small, large] };
        let (size, flag) = (self.ints(&[2 * h as i64, 2 * w as i64]), self.value(ValueDraft::Bool(false)));
        let null = self.value(ValueDraft::None);
        let shape = [MANY, 2 * h, 2 * w];
        let small = match self.rng.one_in(2) {
            true => self.step(&album, small, shape, "aten::upsample_nearest2d", "vec_out", &[size, null]),
            false => {
                self.step(&album, small, shape, "aten::upsample_bilinear2d", "vec_out", &[size, flag, null])
            }
        };
        if self.rng.one_in(4) {
            self.outputs.push(small.node);
        }
        let both = self.beside(&album, small, large);
        let weight = self.constant(&[CLASSES, 2 * MANY, 1, 1]);
        let classes = [CLASSES, 2 * h, 2 * w];
        let y = self.convolved(&album, both, classes, weight, [1, 0, 1], false);
        let y = self.step(&album, y, classes, "aten::relu", "out", &[]);
        // Makes it worth while to have channels last.
        let weight = self.constant(&[CLASSES, 1, 3, 3]);
        let y = self.convolved(&album, y, classes, weight, [1, 1, CLASSES], false);
        let dims = self.ints(&[0, 2, 3, 1]);
        self.touch(y.node);
        let rows = self.shaped(&[MAX_ROWS, 2 * h, 2 * w, CLASSES], None);
        let args = vec![self.nodes[y.node].value, dims, self.nodes[rows].value];
        self.call("aten::permute_copy", "out", args);
        self.touch(rows);
        let out = self.shaped(&[MAX_ROWS, 2 * h, 2 * w, CLASSES], None);
        let args = vec![self.nodes[rows].value, self.nodes[out].value];
        self.call("aten::sigmoid", "out", args);
        let width = 4 * h * w * CLASSES;
        self.view_as(out, &[MAX_ROWS, width], &[-1, width as i64]);
    }

    /// `x` as rows of pixels, a product of each, and those as an image.
    fn tokens_as_map(&mut self, x: usize, [h, w]: [usize; 2]) -> Picture {
        let pixels = h * w;
        let rows = self.product(x, pixels * FEW);
        let tokens = self.view_as(rows, &[MAX_ROWS * pixels, FEW], &[-1, FEW as i64]);
        let (weight, bias) = (self.constant(&[FEW, MANY]), self.constant(&[MANY]));
        let one = self.value(ValueDraft::Int(1));
        self.touch(tokens);
        let y = self.shaped(&[MAX_ROWS * pixels, MANY], None);
        let (tv, yv) = (self.nodes[tokens].value, self.nodes[y].value);
        if self.rng.one_in(2) {
            self.call("aten::addmm", "out", vec![bias, tv, weight, one, one, yv]);
        } else {
            self.call("aten::mm", "out", vec![tv, weight, yv]);
        }
        let sizes = [-1, pixels as i64, MANY as i64];
        let y = self.view_as(y, &[MAX_ROWS, pixels, MANY], &sizes);
        self.touch(y);
        let swap = self.ints(&[0, 2, 1]);
        let flat = self.shaped(&[MAX_ROWS, MANY, pixels], None);
        let args = vec![self.nodes[y].value, swap, self.nodes[flat].value];
        self.call("aten::permute_copy", "out", args);
        let sizes = [-1, MANY as i64, h as i64, w as i64];
        let node = self.view_as(flat, &[MAX_ROWS, MANY, h, w], &sizes);
        Picture { node, shape: [MANY, h, w] }
    }
}
