//! Signals of one dimension: convolutions, their samples as rows, and back.

use super::{Generator, MAX_ROWS};
use pteron_format::write::ValueDraft;

/// A signal: its node, channels and samples.
#[derive(Clone, Copy)]
struct Signal {
    node: usize,
    shape: [usize; 2],
}

impl Generator<'_> {
    /// Rows as signals, some operators on them, and back to rows.
    pub(super) fn signals(&mut self, x: usize) {
        let shape = [[3, 6], [8, 5], [32, 4], [1, 7]][self.rng.below(4)];
        let [c, samples] = shape;
        let rows = self.product(x, c * samples);
        let node = self.view_as(rows, &[MAX_ROWS, c, samples], &[-1, c as i64, samples as i64]);
        let mut made = vec![Signal { node, shape }];
        for _ in 0..2 + self.rng.below(5) {
            let last = made[made.len() - 1];
            let next = self.signal(&made, last);
            made.push(next);
            if self.rng.one_in(8) {
                self.outputs.push(next.node);
            }
        }
        self.samples_to_rows(made[made.len() - 1]);
    }

    fn samples_to_rows(&mut self, last: Signal) {
        let [c, samples] = last.shape;
        if self.rng.one_in(2) {
            let (dims, keep) = (self.ints(&[-1]), self.value(ValueDraft::Bool(false)));
            let dtype = self.value(ValueDraft::None);
            self.apply(last.node, &[MAX_ROWS, c], "aten::mean", "out", &[dims, keep, dtype]);
        } else {
            self.view_as(last.node, &[MAX_ROWS, c * samples], &[-1, (c * samples) as i64]);
        }
    }

    fn signal(&mut self, made: &[Signal], x: Signal) -> Signal {
        let [c, samples] = x.shape;
        let shape = [MAX_ROWS, c, samples];
        let node = match self.rng.below(10) {
            0..=3 => return self.convolved_signal(x),
            4 | 5 => self.as_rows_and_back(x),
            6 => self.normalised(x.node, &shape, None),
            7 => {
                let fits: Vec<Signal> = made.iter().filter(|s| s.shape == x.shape).copied().collect();
                let other = fits[self.rng.below(fits.len())].node;
                self.touch(other);
                let (second, alpha) = (self.nodes[other].value, self.value(ValueDraft::Int(1)));
                self.apply(x.node, &shape, "aten::add", "out", &[second, alpha])
            }
            8 => {
                let scale = self.constant(&[c, 1]);
                self.apply(x.node, &shape, "aten::mul", "out", &[scale])
            }
            _ => {
                let name = ["aten::relu", "aten::sigmoid", "aten::neg"][self.rng.below(3)];
                self.apply(x.node, &shape, name, "out", &[])
            }
        };
        Signal { node, ..x }
    }

    fn convolved_signal(&mut self, x: Signal) -> Signal {
        let [c, samples] = x.shape;
        let (kernel, padding) = [(3, 1), (1, 0)][self.rng.below(2)];
        let stride = 1 + self.rng.below(2);
        let filters = [1, 6, 16, 40][self.rng.below(4)];
        let groups = match c % 2 == 0 && filters % 2 == 0 && self.rng.one_in(2) {
            true => 2,
            false => 1,
        };
        let weight = self.constant(&[filters, c / groups, kernel]);
        let bias = if self.rng.one_in(2) { self.constant(&[filters]) } else { self.value(ValueDraft::None) };
        let [strides, paddings, dilation, more] =
            [stride as i64, padding as i64, 1, 0].map(|n| self.ints(&[n]));
        let transposed = self.value(ValueDraft::Bool(false));
        let groups = self.value(ValueDraft::Int(groups as i64));
        let shape = [filters, (samples + 2 * padding - kernel) / stride + 1];
        let rest = [weight, bias, strides, paddings, dilation, transposed, more, groups];
        let node = self.apply(x.node, &[MAX_ROWS, shape[0], shape[1]], "aten::convolution", "out", &rest);
        Signal { node, shape }
    }

    /// The samples as rows, something on them, and the signal again.
    fn as_rows_and_back(&mut self, x: Signal) -> usize {
        let [c, samples] = x.shape;
        let order = self.ints(&[0, 2, 1]);
        let rows = self.apply(x.node, &[MAX_ROWS, samples, c], "aten::permute_copy", "out", &[order]);
        let name = ["aten::sigmoid", "aten::neg"][self.rng.below(2)];
        let rows = self.apply(rows, &[MAX_ROWS, samples, c], name, "out", &[]);
        if self.rng.one_in(6) {
            self.outputs.push(rows);
        }
        let order = self.ints(&[0, -1, 1]);
        self.apply(rows, &[MAX_ROWS, c, samples], "aten::permute_copy", "out", &[order])
    }
}
