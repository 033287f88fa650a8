//! Cases of convolutions for tests: shapes, orders of memory, arguments, and their sums by a plain f64 loop.

use pteron_core::DimOrder;
use pteron_kernels::single_call::{CallArg, HostTensor};

/// Extents are (depth, height, width); `rank` of them are those of the tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) rank: usize,
    pub(super) images: usize,
    pub(super) channels: [usize; 2],
    pub(super) groups: usize,
    pub(super) input: [usize; 3],
    pub(super) kernel: [usize; 3],
    pub(super) stride: [usize; 3],
    pub(super) padding: [usize; 3],
    /// Rows and columns of zeros behind the input besides those of `padding`.
    pub(super) more_behind: [usize; 3],
    pub(super) dilation: [usize; 3],
    pub(super) output_padding: [usize; 3],
    pub(super) is_transposed: bool,
}

const fn flat(v: usize, fill: usize) -> [usize; 3] {
    [fill, v, v]
}

pub(super) const fn case(
    channels: [usize; 2],
    input: [usize; 2],
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Case {
    Case {
        rank: 2,
        images: 1,
        channels,
        groups: 1,
        input: [1, input[0], input[1]],
        kernel: flat(kernel, 1),
        stride: flat(stride, 1),
        padding: flat(padding, 0),
        more_behind: [0; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        is_transposed: false,
    }
}

const fn volume(channels: [usize; 2], input: [usize; 3], kernel: [usize; 3], stride: usize) -> Case {
    let plain = case(channels, [1, 1], 1, 1, 0);
    Case { rank: 3, input, kernel, stride: [stride; 3], padding: [1, 0, 1], ..plain }
}

/// Of one dimension.
const fn signal(channels: [usize; 2], input: usize, kernel: usize, stride: usize) -> Case {
    let plain = case(channels, [1, input], 1, stride, 0);
    Case { rank: 1, kernel: [1, 1, kernel], stride: [1, 1, stride], padding: [0, 0, kernel / 2], ..plain }
}

pub(super) const fn grouped(mut c: Case, groups: usize) -> Case {
    c.groups = groups;
    c
}

pub(super) const fn transposed(mut c: Case, more: usize) -> Case {
    c.is_transposed = true;
    c.output_padding = flat(more, 0);
    c
}

pub(super) const CASES: [Case; 60] = [
    case([3, 8], [9, 11], 3, 1, 1),
    case([3, 40], [23, 19], 7, 2, 3),
    case([64, 33], [7, 7], 1, 1, 0),
    case([70, 64], [7, 7], 3, 1, 1),
    case([5, 300], [4, 4], 1, 2, 0),
    case([300, 5], [14, 15], 1, 1, 0),
    case([400, 20], [6, 16], 1, 1, 0),
    case([4, 6], [13, 10], 3, 3, 2),
    case([1, 1], [1, 1], 1, 1, 0),
    case([2, 3], [5, 1], 3, 1, 1),
    case([24, 70], [1, 1], 1, 1, 0),
    Case { images: 3, ..case([17, 32], [10, 10], 3, 2, 1) },
    Case { images: 2, ..case([17, 65], [9, 7], 1, 1, 0) },
    Case { dilation: [1, 2, 3], ..case([4, 8], [17, 19], 3, 1, 2) },
    Case { dilation: [1, 2, 3], ..case([14, 8], [17, 19], 3, 1, 2) },
    Case { kernel: [1, 1, 5], padding: [0, 0, 2], ..case([6, 10], [3, 33], 1, 1, 0) },
    // Wider than a band of planes.
    case([2, 3], [5, 530], 3, 2, 1),
    grouped(case([12, 24], [8, 9], 3, 1, 1), 3),
    grouped(case([8, 16], [8, 9], 3, 1, 1), 8),
    grouped(case([36, 72], [6, 9], 3, 2, 1), 2),
    grouped(case([20, 20], [8, 9], 1, 1, 0), 4),
    grouped(case([20, 20], [16, 18], 3, 1, 1), 20),
    grouped(case([50, 50], [17, 19], 3, 2, 1), 50),
    grouped(Case { images: 2, ..case([33, 33], [14, 40], 5, 2, 2) }, 33),
    grouped(case([40, 40], [9, 9], 5, 1, 2), 40),
    grouped(case([35, 35], [9, 9], 7, 1, 3), 35),
    grouped(case([3, 3], [9, 9], 7, 2, 3), 3),
    grouped(Case { images: 2, ..case([11, 33], [9, 10], 3, 1, 1) }, 11),
    grouped(Case { dilation: [1, 2, 2], kernel: [1, 3, 2], ..case([5, 5], [11, 12], 3, 3, 1) }, 5),
    transposed(case([6, 40], [5, 7], 2, 2, 0), 0),
    transposed(case([20, 9], [5, 7], 4, 2, 1), 0),
    transposed(Case { images: 2, ..case([7, 33], [4, 5], 3, 2, 1) }, 1),
    transposed(Case { dilation: [1, 2, 1], ..case([5, 6], [4, 5], 3, 3, 2) }, 2),
    transposed(case([5, 6], [4, 5], 1, 3, 0), 0),
    transposed(grouped(case([8, 12], [4, 5], 3, 2, 1), 4), 1),
    transposed(case([5, 40], [6, 6], 3, 1, 1), 0),
    volume([3, 8], [4, 6, 7], [3, 3, 3], 1),
    volume([20, 40], [5, 6, 7], [2, 3, 3], 2),
    grouped(volume([33, 33], [4, 6, 7], [3, 3, 3], 1), 33),
    grouped(volume([6, 12], [4, 6, 7], [1, 3, 2], 1), 3),
    transposed(volume([6, 9], [3, 4, 5], [2, 3, 3], 2), 1),
    // Matrix products of groups, and of several blocks of K.
    case([800, 40], [5, 9], 1, 1, 0),
    grouped(case([1600, 70], [3, 4], 1, 1, 0), 2),
    grouped(case([80, 160], [6, 9], 1, 1, 0), 4),
    grouped(Case { images: 2, ..case([51, 105], [5, 4], 1, 1, 0) }, 3),
    transposed(grouped(case([40, 72], [5, 4], 1, 1, 0), 2), 0),
    signal([20, 70], 33, 3, 2),
    signal([40, 33], 50, 1, 1),
    grouped(signal([33, 33], 40, 5, 1), 33),
    grouped(signal([34, 68], 40, 1, 1), 2),
    transposed(signal([20, 40], 13, 4, 2), 0),
    // Other margins behind than before, for every kernel of the family.
    uneven(case([3, 40], [23, 19], 3, 2, 0), [0, 1, 1]),
    uneven(case([3, 8], [9, 11], 3, 2, 0), [0, 1, 2]),
    uneven(case([70, 64], [7, 8], 3, 2, 0), [0, 1, 1]),
    uneven(case([9, 20], [7, 8], 1, 1, 0), [0, 1, 0]),
    uneven(grouped(case([50, 50], [17, 19], 3, 2, 0), 50), [0, 1, 1]),
    uneven(grouped(case([35, 35], [9, 19], 5, 2, 1), 35), [0, 1, 2]),
    uneven(grouped(case([12, 24], [8, 9], 3, 1, 1), 3), [0, 2, 0]),
    uneven(Case { kernel: [1, 1, 5], padding: [0, 0, 1], ..case([6, 10], [3, 33], 1, 1, 0) }, [0, 0, 3]),
    uneven(volume([20, 40], [5, 6, 7], [2, 3, 3], 2), [1, 1, 0]),
];

const fn uneven(mut c: Case, more_behind: [usize; 3]) -> Case {
    c.more_behind = more_behind;
    c
}

impl Case {
    pub(super) fn output(&self) -> [usize; 3] {
        [0, 1, 2].map(|d| {
            let reach = self.dilation[d] * (self.kernel[d] - 1);
            match self.is_transposed {
                true => {
                    (self.input[d] - 1) * self.stride[d] + reach + 1 + self.output_padding[d]
                        - 2 * self.padding[d]
                }
                false => {
                    let padding = 2 * self.padding[d] + self.more_behind[d];
                    (self.input[d] + padding - reach - 1) / self.stride[d] + 1
                }
            }
        })
    }

    /// Every (output, input, tap) position along `d` that the definition joins.
    fn joined(&self, d: usize) -> Vec<[usize; 3]> {
        let mut found = Vec::new();
        for o in 0..self.output()[d] {
            for i in 0..self.input[d] {
                for k in 0..self.kernel[d] {
                    let (wide, narrow) = if self.is_transposed { (o, i) } else { (i, o) };
                    if wide + self.padding[d] == narrow * self.stride[d] + k * self.dilation[d] {
                        found.push([o, i, k]);
                    }
                }
            }
        }
        found
    }

    /// Result in channel planes, and the sum of the terms' sizes.
    pub(super) fn reference(&self, x: &[f32], w: &[f32], b: &[f32]) -> Vec<(f64, f64)> {
        let ([ic, oc], [_, h, wd], [_, kh, kw], [od, oh, ow]) =
            (self.channels, self.input, self.kernel, self.output());
        let (icg, ocg) = (ic / self.groups, oc / self.groups);
        let (pixels, taps, outputs) =
            (self.input.iter().product::<usize>(), self.kernel.iter().product::<usize>(), od * oh * ow);
        let mut out: Vec<(f64, f64)> =
            (0..self.images * oc * outputs).map(|i| (f64::from(b[i / outputs % oc]), 0.0)).collect();
        let [zs, ys, xs] = [0, 1, 2].map(|d| self.joined(d));
        for z in &zs {
            for y in &ys {
                for q in &xs {
                    let o = (z[0] * oh + y[0]) * ow + q[0];
                    let i = (z[1] * h + y[1]) * wd + q[1];
                    let k = (z[2] * kh + y[2]) * kw + q[2];
                    for n in 0..self.images {
                        for oc_ in 0..oc {
                            for c in 0..icg {
                                let ic_ = oc_ / ocg * icg + c;
                                let weight = match self.is_transposed {
                                    true => ic_ * ocg + oc_ % ocg,
                                    false => oc_ * icg + c,
                                };
                                let v = f64::from(x[(n * ic + ic_) * pixels + i])
                                    * f64::from(w[weight * taps + k]);
                                let slot = &mut out[(n * oc + oc_) * outputs + o];
                                *slot = (slot.0 + v, slot.1 + v.abs());
                            }
                        }
                    }
                }
            }
        }
        out
    }

    /// The shape of a tensor with these spatial extents.
    pub(super) fn shape(&self, channels: usize, extents: [usize; 3]) -> Vec<usize> {
        [&[self.images, channels], &extents[3 - self.rank..]].concat()
    }

    pub(super) fn weight_shape(&self) -> Vec<usize> {
        let [ic, oc] = self.channels;
        let leading = if self.is_transposed { [ic, oc / self.groups] } else { [oc, ic / self.groups] };
        [&leading, &self.kernel[3 - self.rank..]].concat()
    }

    fn list(&self, v: [usize; 3]) -> CallArg {
        CallArg::Ints(v[3 - self.rank..].iter().map(|v| *v as i64).collect())
    }

    /// Those before and behind, where they are not the same.
    fn paddings(&self) -> CallArg {
        let behind = [0, 1, 2].map(|d| self.padding[d] + self.more_behind[d]);
        let sides = if self.more_behind == [0; 3] { vec![self.padding] } else { vec![self.padding, behind] };
        CallArg::Ints(sides.iter().flat_map(|v| &v[3 - self.rank..]).map(|v| *v as i64).collect())
    }

    /// The operator's arguments but for the output.
    pub(super) fn arguments(&self, input: HostTensor, weight: CallArg, bias: CallArg) -> Vec<CallArg> {
        vec![
            CallArg::Tensor(input),
            weight,
            bias,
            self.list(self.stride),
            self.paddings(),
            self.list(self.dilation),
            CallArg::bool(self.is_transposed),
            self.list(self.output_padding),
            CallArg::int(self.groups as i64),
        ]
    }

    /// The weight as a constant.
    pub(super) fn constant(&self, w: &[f32]) -> CallArg {
        CallArg::Constant(HostTensor::new(&self.weight_shape(), w).unwrap())
    }

    pub(super) fn order(&self, is_last: bool) -> DimOrder {
        match (is_last, self.rank) {
            (true, 1) => DimOrder::new(&[0, 2, 1]).unwrap(),
            (true, 2) => DimOrder::new(&[0, 2, 3, 1]).unwrap(),
            (true, _) => DimOrder::new(&[0, 2, 3, 4, 1]).unwrap(),
            (false, rank) => DimOrder::contiguous(rank + 2),
        }
    }
}

/// Values of channel planes in the memory order of a tensor.
pub(super) fn in_memory<T: Copy>(v: &[T], [n, c, p]: [usize; 3], is_last: bool) -> Vec<T> {
    match is_last {
        false => v.to_vec(),
        true => (0..n * p * c).map(|i| v[(i / c / p * c + i % c) * p + i / c % p]).collect(),
    }
}
