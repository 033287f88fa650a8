//! Products with quantised weights against sums in f64, over instruction sets, forms of weights, rows and threads.

use super::*;
use crate::epilogue::Epilogue;
use crate::linear::prepare_linear_like;
use pteron_core::{AlignedBuffer, DType, Dims, Dynamism, Isa, PrepareContext, TensorSpec};
use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::{gelu_erf, numbers};
use std::sync::Arc;

/// A product and its numbers.
#[derive(Clone)]
struct Case {
    rows: usize,
    spec: WeightOnlySpec,
    x: Vec<f32>,
    q: Vec<i8>,
    scales: Vec<f32>,
    zeros: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn new(rows: usize, [n, k, group]: [usize; 3], bits: u32, kind: usize) -> Case {
        let limit = 1i64 << (bits - 1);
        let (has_zeros, has_bias, is_row_per_output) = (kind & 1 != 0, kind & 2 != 0, kind & 4 == 0);
        let spec = WeightOnlySpec {
            k,
            n,
            group,
            is_row_per_output,
            has_pairs: false,
            has_zeros,
            has_bias,
            rows: None,
        };
        let q = (0..(n * k) as i64).map(|i| ((i * 7919 + i / 13) % (2 * limit) - limit) as i8).collect();
        let zeros = (0..n * spec.groups()).map(|i| (i % 9) as f32 - 4.0).collect();
        let scales = numbers(n * spec.groups(), 3).iter().map(|v| 0.01 + v.abs() / 50.0).collect();
        Case { rows, x: numbers(rows * k, 1), q, scales, zeros, bias: numbers(n, 5), spec }
    }

    /// (q - zero point) · scale as f32 has it, [N, K].
    fn weight(&self) -> Vec<f32> {
        let WeightOnlySpec { k, n, group, is_row_per_output, has_zeros, .. } = self.spec;
        let at = |column: usize, row: usize| {
            let q = self.q[if is_row_per_output { column * k + row } else { row * n + column }];
            let parameter = column * self.spec.groups() + row / group;
            let zero = if has_zeros { self.zeros[parameter] } else { 0.0 };
            (f32::from(q) - zero) * self.scales[parameter]
        };
        (0..n).flat_map(|column| (0..k).map(move |row| (column, row))).map(|(c, r)| at(c, r)).collect()
    }

    /// Sums in f64 and what their terms sum up to without signs.
    fn expected(&self) -> Vec<(f64, f64)> {
        let (k, n, weight) = (self.spec.k, self.spec.n, self.weight());
        let sum = |i: usize| {
            let (row, column) = (i / n, i % n);
            let terms = (0..k).map(|p| f64::from(self.x[row * k + p]) * f64::from(weight[column * k + p]));
            let bias = if self.spec.has_bias { f64::from(self.bias[column]) } else { 0.0 };
            terms.fold((bias, bias.abs()), |(sum, size), t| (sum + t, size + t.abs()))
        };
        (0..self.rows * n).map(sum).collect()
    }

    /// The arguments; `bound` rows are what preparing sees.
    fn args(&self, bound: usize) -> Vec<CallArg> {
        let WeightOnlySpec { k, n, is_row_per_output, .. } = self.spec;
        let groups = self.spec.groups();
        let constant = CallArg::Constant;
        let q_shape = if is_row_per_output { [n, k] } else { [k, n] };
        let parameters = |values: &[f32]| constant(HostTensor::new(&[n, groups, 1], values).unwrap());
        let q = match self.spec.has_pairs {
            true => {
                let half = |x: i8| (x + 8) as u8;
                let pairs: Vec<u8> = self.q.chunks(2).map(|p| half(p[0]) << 4 | half(p[1])).collect();
                HostTensor::new(&[n, k / 2], &pairs).unwrap()
            }
            false => HostTensor::new(&q_shape, &self.q).unwrap(),
        };
        let mut args = vec![self.dynamic(bound, k, &self.x), constant(q)];
        args.push(parameters(&self.scales));
        if self.spec.has_zeros {
            args.push(parameters(&self.zeros));
        }
        if self.spec.has_bias {
            args.push(CallArg::Tensor(HostTensor::new(&[n], &self.bias).unwrap()));
        }
        args.push(self.dynamic(bound, n, &vec![f32::NAN; self.rows * n]));
        args
    }

    /// Rows, of which preparing sees `bound`.
    fn dynamic(&self, bound: usize, columns: usize, values: &[f32]) -> CallArg {
        let mut spec = TensorSpec::contiguous(DType::Float32, &[bound, columns]).unwrap();
        if bound != self.rows {
            spec.dynamism = Dynamism::Bounded;
        }
        let mut memory = AlignedBuffer::zeroed((bound * columns * 4).max(16)).unwrap();
        memory.as_mut_elements::<f32>()[..values.len()].copy_from_slice(values);
        let now = Dims::new(&[self.rows, columns]).unwrap();
        CallArg::Tensor(HostTensor::in_memory(spec, now, Box::new(memory)))
    }

    fn run(&self, isa: Isa, epilogue: &Epilogue, bound: usize, more: Vec<CallArg>) -> Option<Vec<f32>> {
        let cpu = profile(isa)?;
        let mut args = self.args(bound);
        let out = args.pop()?;
        args.extend(more);
        args.push(out);
        let last = args.len() - 1;
        let (spec, epilogue) = (self.spec.clone(), epilogue.clone());
        let prepare = move |ctx: &PrepareContext<'_>| -> Preparation { prepare(ctx, &spec, &epilogue) };
        let mut call = SingleCall::of(prepare, &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let got = call.output::<f32>(last).unwrap();
        // Chunks in another order, as several threads take them.
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&call.output::<f32>(last).unwrap()));
        Some(got)
    }

    fn check(&self, isa: Isa, bound: usize) {
        let Some(got) = self.run(isa, &Epilogue::NONE, bound, vec![]) else { return };
        for (i, (y, (want, size))) in got.iter().zip(self.expected()).enumerate() {
            let is_near = (f64::from(*y) - want).abs() <= 1e-6 * size + 1e-30;
            assert!(is_near, "{isa:?} {} rows, {:?}, {i}: {y} {want}", self.rows, self.spec);
        }
        assert_eq!(got.len(), self.rows * self.spec.n);
    }
}

#[test]
fn pairs_of_numbers_give_the_bytes_of_single_ones() {
    let bits = |values: Option<Vec<f32>>| values.map(|v| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    for isa in Isa::ALL {
        for shape in [[33, 64, 64], [70, 128, 32], [1, 2, 2], [40, 1026, 1026], [32, 260, 130]] {
            for rows in [1, 4, 5, 40] {
                for kind in 0..4 {
                    let plain = Case::new(rows, shape, 4, kind);
                    let spec = WeightOnlySpec { has_pairs: true, ..plain.spec.clone() };
                    let pairs = Case { spec, ..plain.clone() };
                    let run = |case: &Case| bits(case.run(isa, &Epilogue::NONE, rows, vec![]));
                    assert_eq!(run(&pairs), run(&plain), "{isa:?} {shape:?} {rows} {kind}");
                    pairs.check(isa, rows);
                }
            }
        }
    }
}

#[test]
fn products_agree_with_f64() {
    for isa in Isa::ALL {
        for shape in [
            [1, 1, 1],
            [33, 7, 7],
            [64, 64, 32],
            [31, 384, 128],
            [70, 800, 800],
            [5, 96, 3],
            [32, 514, 2],
            [100, 1025, 1025],
        ] {
            for rows in [1, 2, 3, 4, 5, 9, 40] {
                for bits in [4, 8] {
                    let case = Case::new(rows, shape, bits, rows + shape[0] + bits as usize / 4);
                    case.check(isa, rows);
                }
            }
        }
        for kind in 0..8 {
            Case::new(3, [40, 64, 16], 4, kind).check(isa, 3);
            Case::new(300, [40, 390, 130], 8, kind).check(isa, 300);
        }
    }
}

#[test]
fn rows_may_be_fewer_than_were_prepared_for() {
    for isa in Isa::ALL {
        for rows in [0, 1, 4, 6, 30] {
            Case::new(rows, [70, 96, 32], 4, 3).check(isa, 64);
        }
    }
}

#[test]
fn from_five_rows_on_it_is_the_product_with_the_dequantised_weight_byte_by_byte() {
    for isa in Isa::ALL {
        for (rows, bits) in [(5, 4), (60, 8)] {
            let case = Case::new(rows, [72, 770, 77], bits, 3);
            let Some(got) = case.run(isa, &Epilogue::NONE, rows, vec![]) else { continue };
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[rows, 770], &case.x).unwrap()),
                CallArg::Constant(HostTensor::new(&[72, 770], &case.weight()).unwrap()),
                CallArg::Tensor(HostTensor::new(&[72], &case.bias).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[rows, 72]).unwrap()),
            ];
            let linear =
                |ctx: &PrepareContext<'_>| prepare_linear_like(ctx, "aten::linear.out", &Epilogue::NONE);
            let mut call = SingleCall::new(linear, &profile(isa).unwrap(), args).unwrap().unwrap();
            call.call().unwrap();
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&call.output::<f32>(3).unwrap()), "{isa:?}");
        }
    }
}

#[test]
fn epilogues_give_the_bytes_of_separate_steps() {
    let gelu = Arc::new(Chain::unary(gelu_erf()).unwrap());
    for isa in Isa::ALL {
        for rows in [1, 4, 20] {
            let case = Case::new(rows, [70, 96, 32], 4, 3);
            let residual = numbers(rows * 70, 8);
            let more = || vec![case.dynamic(rows, 70, &residual)];
            let Some(plain) = case.run(isa, &Epilogue::NONE, rows, vec![]) else { continue };
            let epilogue = Epilogue { residual: Some(5), clamp: Some((-0.5, 2.0)), post: None };
            let got = case.run(isa, &epilogue, rows, more()).unwrap();
            let sums = plain.iter().zip(&residual).map(|(x, r)| x + r);
            assert_eq!(got, sums.map(|x| x.clamp(-0.5, 2.0)).collect::<Vec<_>>(), "{isa:?} {rows}");
            let mut expected = got.clone();
            let mut scratch = vec![0.0; gelu.scratch_floats()];
            let level = pteron_kernels::vector_math::SimdLevel::at_most(isa);
            apply(&gelu, level, &mut expected, 70, &mut scratch);
            let got =
                case.run(isa, &Epilogue { post: Some(gelu.clone()), ..epilogue }, rows, more()).unwrap();
            assert_eq!(got, expected, "{isa:?} {rows}");
        }
    }
}

#[allow(unsafe_code, reason = "tests play the caller's part in the contracts of kernels")]
fn apply(
    chain: &Chain,
    level: pteron_kernels::vector_math::SimdLevel,
    block: &mut [f32],
    columns: usize,
    scratch: &mut [f32],
) {
    let rows = block.len() / columns;
    // SAFETY: the block is all of `block`.
    unsafe { chain.apply(level, block.as_mut_ptr(), columns, [rows, columns], scratch) };
}

#[test]
fn what_the_kernel_does_not_take_is_left_alone() {
    let cpu = profile(Isa::Portable).unwrap();
    let case = Case::new(2, [8, 12, 4], 8, 3);
    let with = |change: &dyn Fn(&mut WeightOnlySpec)| {
        let mut spec = case.spec.clone();
        change(&mut spec);
        let prepare = move |ctx: &PrepareContext<'_>| -> Preparation { prepare(ctx, &spec, &Epilogue::NONE) };
        SingleCall::of(prepare, &cpu, case.args(2)).unwrap().is_some()
    };
    assert!(with(&|_| ()));
    assert!(!with(&|spec| spec.group = 5));
    assert!(!with(&|spec| spec.group = 0));
    assert!(!with(&|spec| spec.k = 24));
    assert!(!with(&|spec| spec.n = 0));
    assert!(!with(&|spec| spec.group = 6));
}
