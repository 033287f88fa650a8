//! Products of 4-bit weights against the order of additions that is promised, for every kit: the same bytes.

use super::*;
use crate::integer::choose_rows::quantised_row;
use pteron_core::{AlignedBuffer, Dims, Dynamism, TensorSpec};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::numbers;

const PER_ROW: RowScheme = RowScheme::PerRow { least_scale: f32::MIN_POSITIVE };

struct Case {
    rows: usize,
    k: usize,
    n: usize,
    group: usize,
    scheme: RowScheme,
    x: Vec<f32>,
    /// [N, K].
    weight: Vec<i8>,
    /// [N, groups].
    scales: Vec<f32>,
    bias: Option<Vec<f32>>,
    clamp: Option<(f32, f32)>,
    has_pairs: bool,
}

impl Case {
    fn new(rows: usize, [n, k, group]: [usize; 3], scheme: RowScheme) -> Case {
        // Those of bfloat16 lie in half the bytes.
        let rounded = |scale: f32| match (rows + n).is_multiple_of(2) {
            true => half::bf16::from_f32(scale).to_f32(),
            false => scale,
        };
        Case {
            rows,
            k,
            n,
            group,
            scheme,
            x: numbers(rows * k, 1),
            weight: (0..n * k).map(|i| ((i * 7919 + i / 13) % 16) as i8 - 8).collect(),
            scales: numbers(n * (k / group), 3).iter().map(|v| rounded(0.01 + v.abs() / 50.0)).collect(),
            bias: (!rows.is_multiple_of(2)).then(|| numbers(n, 5)),
            clamp: rows.is_multiple_of(3).then_some((-0.5, 1.0)),
            has_pairs: k.is_multiple_of(2) && !n.is_multiple_of(3),
        }
    }

    fn weight_sums(&self) -> Vec<f32> {
        let of_column = |c: usize| {
            let terms = |(i, w): (usize, &i8)| {
                f64::from(*w) * f64::from(self.scales[c * (self.k / self.group) + i / self.group])
            };
            self.weight[c * self.k..][..self.k].iter().enumerate().map(terms).sum::<f64>() as f32
        };
        (0..self.n).map(of_column).collect()
    }

    /// What the module's page says, step by step.
    fn expected(&self) -> Vec<f32> {
        let sums = self.weight_sums();
        let mut all = vec![];
        for row in self.x.chunks(self.k) {
            let mut bytes = vec![0; self.k];
            let (scale, zero) = quantised_row(self.scheme, row, &mut bytes);
            for c in 0..self.n {
                let mut total = 0f32;
                for first in (0..self.k).step_by(32) {
                    let block = first..self.k.min(first + 32);
                    let product = |i: usize| {
                        i32::from((bytes[i] ^ 0x80) as i8) * i32::from(self.weight[c * self.k + i])
                    };
                    let sum: i32 = block.map(product).sum();
                    total += sum as f32 * self.scales[c * (self.k / self.group) + first / self.group];
                }
                let mut y = (total + -(zero as f32) * sums[c]) * scale;
                if let Some(bias) = &self.bias {
                    y += bias[c];
                }
                let (low, high) = self.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
                let y = if low > y { low } else { y };
                all.push(if high < y { high } else { y });
            }
        }
        all
    }

    /// `bound` rows are what preparing sees.
    fn run(&self, bound: usize, kit: &'static str) -> Option<Vec<f32>> {
        let (isa, _) = Kit::available().find(|(_, found)| found.name == kit)?;
        let cpu = profile(isa)?;
        let (k, n, groups) = (self.k, self.n, self.k / self.group);
        let weight = match self.has_pairs {
            true => {
                let half = |x: i8| (x + 8) as u8;
                let pairs: Vec<u8> = self.weight.chunks(2).map(|p| half(p[0]) << 4 | half(p[1])).collect();
                HostTensor::new(&[n, k / 2], &pairs).unwrap()
            }
            false => HostTensor::new(&[n, k], &self.weight).unwrap(),
        };
        let mut args = vec![dynamic(bound, [self.rows, k], &self.x), CallArg::Constant(weight)];
        args.push(CallArg::Constant(HostTensor::new(&[n, groups], &self.scales).unwrap()));
        args.push(CallArg::Constant(HostTensor::new(&[n], &self.weight_sums()).unwrap()));
        if let Some(bias) = &self.bias {
            args.push(CallArg::Constant(HostTensor::new(&[n], bias).unwrap()));
        }
        args.push(dynamic(bound, [self.rows, n], &vec![f32::NAN; self.rows * n]));
        let out = args.len() - 1;
        let prepare = |ctx: &PrepareContext<'_>| -> Preparation {
            let constant = |at: usize| ctx.args[at].constant().unwrap();
            let turned = |at: usize| {
                let mut view = *constant(at);
                view.shape.reverse();
                view.strides.reverse();
                view
            };
            let product = NibbleProduct {
                weight: turned(1),
                scales: turned(2),
                sums: constant(3),
                bias: self.bias.is_some().then(|| constant(4)),
                k,
                group: self.group,
                n,
                scheme: self.scheme,
                clamp: self.clamp,
                out,
            };
            prepare_with(ctx, &product, |found| found.name == kit)
        };
        let mut call = SingleCall::of(prepare, &cpu, args).unwrap()?;
        call.call().unwrap();
        let got = call.output::<f32>(out).unwrap();
        // Chunks in another order, as several threads take them.
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        assert_eq!(bits(&got), bits(&call.output::<f32>(out).unwrap()));
        Some(got)
    }

    fn check(&self, bound: usize) {
        let expected = self.expected();
        for (_, kit) in Kit::available() {
            let got = self.run(bound, kit.name).unwrap();
            let what = format!("{} {}x{}x{} by {}", kit.name, self.rows, self.k, self.n, self.group);
            assert_eq!(bits(&got), bits(&expected), "{what}");
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn dynamic(bound: usize, [rows, columns]: [usize; 2], values: &[f32]) -> CallArg {
    let mut spec = TensorSpec::contiguous(DType::Float32, &[bound, columns]).unwrap();
    if bound != rows {
        spec.dynamism = Dynamism::Bounded;
    }
    let mut memory = AlignedBuffer::zeroed((bound * columns * 4).max(16)).unwrap();
    memory.as_mut_elements::<f32>()[..values.len()].copy_from_slice(values);
    let now = Dims::new(&[rows, columns]).unwrap();
    CallArg::Tensor(HostTensor::in_memory(spec, now, Box::new(memory)))
}

#[test]
fn the_bytes_are_those_of_the_promised_order() {
    for [n, k, group] in
        [[1, 32, 32], [31, 64, 32], [33, 96, 32], [64, 128, 64], [65, 256, 128], [40, 128, 128], [7, 640, 64]]
    {
        for rows in [1, 2, 3, 4, 5, 7, 8, 9, 17] {
            Case::new(rows, [n, k, group], PER_ROW).check(rows);
        }
    }
}

#[test]
fn one_scale_for_a_column_takes_any_length() {
    for k in [1, 2, 7, 31, 33, 100, 130] {
        for rows in [1, 3, 6] {
            Case::new(rows, [35, k, k], RowScheme::PerToken).check(rows);
        }
    }
}

#[test]
fn rows_come_in_any_number_up_to_the_bound() {
    for rows in [0, 1, 6, 200] {
        Case::new(rows, [70, 64, 32], PER_ROW).check(200);
    }
}

#[test]
fn corners_of_both_ranges_are_exact() {
    for (low, high) in [(-1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)] {
        for number in [-8, 7] {
            let mut case = Case::new(5, [40, 64, 32], PER_ROW);
            case.x.iter_mut().enumerate().for_each(|(i, x)| *x = if i % 3 == 0 { low } else { high });
            case.weight.fill(number);
            case.check(5);
        }
    }
}

#[test]
fn rows_of_zeros_and_of_no_numbers() {
    let mut case = Case::new(4, [40, 64, 32], PER_ROW);
    case.x.fill(0.0);
    case.check(4);
    case.x[70] = f32::NAN;
    let got = case.run(4, "portable").unwrap();
    assert!(got[40..80].iter().all(|v| v.is_nan()) && got[..40].iter().all(|v| !v.is_nan()));
}

#[test]
fn groups_that_are_no_blocks_are_not_taken() {
    assert!(takes_groups(64, 32) && takes_groups(96, 96) && takes_groups(7, 7) && takes_groups(256, 64));
    assert!(!takes_groups(64, 16) && !takes_groups(100, 50) && !takes_groups(96, 64) && !takes_groups(0, 0));
}
