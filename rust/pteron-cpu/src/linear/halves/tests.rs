//! Products of 16-bit floats against sums in f64, over element types, instruction sets, rows, layouts and factors.

use super::*;
use half::{bf16, f16};
use pteron_core::{AlignedBuffer, DType, Dims, Dynamism, Isa, TensorSpec};
use pteron_kernels::elementwise::operand::Half;
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::numbers;

/// Positions in [`KERNELS`].
const ADD: usize = 0;
const PLAIN: usize = 1;
const LAYER: usize = 2;

fn bytes_of<T: Half>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// A product and its numbers.
struct Case<T> {
    kernel: usize,
    /// M, N, K.
    sizes: [usize; 3],
    a: Vec<T>,
    /// K x N, or N x K of a linear layer.
    b: Vec<T>,
    /// Of N elements.
    bias: Option<Vec<T>>,
    /// Beta and alpha.
    factors: [f64; 2],
}

impl<T: Half> Case<T> {
    fn new(kernel: usize, [m, n, k]: [usize; 3], has_bias: bool) -> Case<T> {
        let of = |count: usize, seed: u64| numbers(count, seed).into_iter().map(T::of_number).collect();
        Case {
            kernel,
            sizes: [m, n, k],
            a: of(m * k, 1),
            b: of(n * k, 2),
            bias: (has_bias && kernel != PLAIN || kernel == ADD).then(|| of(n, 3)),
            factors: if kernel == ADD { [0.5, 2.0] } else { [1.0, 1.0] },
        }
    }

    fn dynamic(bound: usize, [rows, columns]: [usize; 2], values: &[T]) -> CallArg {
        let mut spec = TensorSpec::contiguous(T::DTYPE, &[bound, columns]).unwrap();
        if bound != rows {
            spec.dynamism = Dynamism::Bounded;
        }
        let mut memory = AlignedBuffer::zeroed((bound * columns * 2).max(16)).unwrap();
        memory.as_mut_elements::<T>()[..values.len()].copy_from_slice(values);
        let now = Dims::new(&[rows, columns]).unwrap();
        CallArg::Tensor(HostTensor::in_memory(spec, now, Box::new(memory)))
    }

    /// The result; `bound` rows are what preparing sees.
    fn run(&self, isa: Isa, bound: usize) -> Option<Vec<T>> {
        let [m, n, k] = self.sizes;
        let a = Self::dynamic(bound, [m, k], &self.a);
        let out = Self::dynamic(bound, [m, n], &vec![T::of_number(f32::NAN); m * n]);
        let shape = if self.kernel == LAYER { [n, k] } else { [k, n] };
        let b = CallArg::Constant(HostTensor::new(&shape, &self.b).unwrap());
        let bias = self.bias.as_ref().map(|v| CallArg::Tensor(HostTensor::new(&[n], v).unwrap()));
        let bias = bias.unwrap_or(CallArg::None);
        let args = match self.kernel {
            ADD => {
                let [beta, alpha] = self.factors.map(CallArg::double);
                vec![bias, a, b, beta, alpha, out]
            }
            PLAIN => vec![a, b, out],
            _ => vec![a, b, bias, out],
        };
        let at = args.len() - 1;
        let mut call = SingleCall::new(KERNELS[self.kernel].prepare, &profile(isa)?, args).unwrap().unwrap();
        call.call().unwrap();
        let got = call.output::<T>(at).unwrap();
        // Chunks in another order, as several threads take them.
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        assert!(bytes_of(&got) == bytes_of(&call.output::<T>(at).unwrap()));
        Some(got)
    }

    /// The exact result, and what its terms sum up to without signs.
    fn expected(&self) -> Vec<(f64, f64)> {
        let ([m, n, k], [beta, alpha]) = (self.sizes, self.factors);
        let number = |v: &T| f64::from(v.number());
        let element = |i: usize| {
            let (row, column) = (i / n, i % n);
            let b = |p: usize| &self.b[if self.kernel == LAYER { column * k + p } else { p * n + column }];
            let more = self.bias.as_ref().map_or(0.0, |v| beta * number(&v[column]));
            let terms = (0..k).map(|p| alpha * number(&self.a[row * k + p]) * number(b(p)));
            terms.fold((more, more.abs()), |(sum, size), t| (sum + t, size + t.abs()))
        };
        (0..m * n).map(element).collect()
    }

    /// Half a unit of the result's last place, and one f32 rounding for each term.
    fn check(&self, isa: Isa, bound: usize) {
        let Some(got) = self.run(isa, bound) else { return };
        let (unit, least) =
            if T::DTYPE == DType::BFloat16 { (2f64.powi(-8), 0.0) } else { (2f64.powi(-11), 2f64.powi(-25)) };
        let k = self.sizes[2] as f64;
        assert_eq!(got.len(), self.sizes[0] * self.sizes[1]);
        for (i, (y, (want, size))) in got.iter().zip(self.expected()).enumerate() {
            let sum = (k + 4.0) * 2f64.powi(-24) * size + k * 2f64.powi(-126) * 16.0;
            let limit = (want.abs() + sum) * unit + least + sum;
            let y = f64::from(y.number());
            assert!((y - want).abs() <= limit, "{} {isa:?} {:?} {i}: {y} {want}", T::DTYPE, self.sizes);
        }
    }
}

const SIZES: [[usize; 3]; 12] = [
    [1, 1, 1],
    [1, 70, 33],
    [2, 33, 64],
    [3, 40, 7],
    [4, 200, 130],
    [5, 31, 33],
    [14, 64, 800],
    [15, 65, 771],
    [60, 160, 1025],
    [300, 36, 50],
    [4, 32, 0],
    [7, 5, 0],
];

#[test]
fn products_agree_with_sums_in_f64() {
    for isa in Isa::ALL {
        for sizes in SIZES {
            for kernel in [ADD, PLAIN, LAYER] {
                Case::<bf16>::new(kernel, sizes, sizes[0] % 2 == 0).check(isa, sizes[0] + 3);
                Case::<f16>::new(kernel, sizes, sizes[0] % 2 == 0).check(isa, sizes[0]);
            }
        }
    }
}

#[test]
fn a_row_has_the_bytes_that_it_has_in_any_larger_batch() {
    // From five rows on, whatever the tiles and the blocks of rows.
    for isa in Isa::ALL {
        let whole = Case::<bf16>::new(LAYER, [300, 40, 900], true);
        let Some(all) = whole.run(isa, 300) else { continue };
        for m in [5, 17, 60] {
            let part = Case {
                sizes: [m, 40, 900],
                a: whole.a[..m * 900].to_vec(),
                ..Case::new(LAYER, [m, 40, 900], true)
            };
            let part = Case { b: whole.b.clone(), bias: whole.bias.clone(), ..part };
            assert!(part.run(isa, m).unwrap() == all[..m * 40], "{isa:?} {m}");
        }
    }
}

#[test]
fn infinity_and_nan_reach_their_row_alone() {
    for isa in Isa::ALL {
        for m in [2, 9] {
            let mut case = Case::<bf16>::new(LAYER, [m, 33, 40], false);
            case.a[3] = bf16::INFINITY;
            case.a[40 + 5] = bf16::NAN;
            let Some(got) = case.run(isa, m) else { continue };
            assert!(got[..33].iter().all(|v| v.is_infinite()), "{isa:?}");
            assert!(got[33..66].iter().all(|v| v.is_nan()), "{isa:?}");
            assert!(got[66..].iter().all(|v| v.is_finite()), "{isa:?}");
        }
    }
}

#[test]
fn numbers_below_the_smallest_normal_one_count_within_the_stated_bound() {
    for isa in Isa::ALL {
        for m in [1, 20] {
            let (n, k) = (40, 64);
            let mut case = Case::<bf16>::new(PLAIN, [m, n, k], false);
            // Subnormal numbers times numbers up to 4, and products that are subnormal.
            for (i, v) in case.a.iter_mut().enumerate() {
                *v = bf16::from_f32(v.to_f32() * if i % 3 == 0 { 2f32.powi(-128) } else { 2f32.powi(-70) });
            }
            for (i, v) in case.b.iter_mut().enumerate() {
                *v = bf16::from_f32(if i % 2 == 0 { v.to_f32() } else { v.to_f32() * 2f32.powi(-60) });
            }
            let Some(got) = case.run(isa, m) else { continue };
            for (y, (want, size)) in got.iter().zip(case.expected()) {
                let lost = k as f64 * 2f64.powi(-126) * (1.0 + 4.0 + 4.0);
                let sum = (k as f64 + 4.0) * 2f64.powi(-24) * size + lost;
                let limit = (want.abs() + sum) * 2f64.powi(-8) + sum;
                assert!((y.to_f64() - want).abs() <= limit, "{isa:?} {m}: {y} {want}");
            }
        }
    }
}

#[test]
fn calls_that_the_kernel_does_not_take() {
    let cpu = profile(Isa::Portable).unwrap();
    let tensor = |dtype, shape: &[usize]| CallArg::Tensor(HostTensor::zeros(dtype, shape).unwrap());
    let constant = |dtype, shape: &[usize]| CallArg::Constant(HostTensor::zeros(dtype, shape).unwrap());
    let (half, float) = (DType::BFloat16, DType::Float32);
    for args in [
        vec![tensor(half, &[2, 3]), tensor(half, &[3, 4]), tensor(half, &[2, 4])],
        vec![tensor(float, &[2, 3]), constant(float, &[3, 4]), tensor(float, &[2, 4])],
        vec![tensor(half, &[2, 3]), constant(DType::Float16, &[3, 4]), tensor(half, &[2, 4])],
    ] {
        assert!(SingleCall::new(KERNELS[PLAIN].prepare, &cpu, args).unwrap().is_none());
    }
    let args = vec![tensor(half, &[2, 3]), constant(half, &[4, 4]), tensor(half, &[2, 4])];
    let mut call = SingleCall::new(KERNELS[PLAIN].prepare, &cpu, args).unwrap().unwrap();
    assert!(call.call().unwrap_err().to_string().contains("4 columns on the left-hand side"));
}
