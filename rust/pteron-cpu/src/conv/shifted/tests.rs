//! Convolutions whose weight is no constant, in every dtype, against a plain f64 loop and the plain kernel.

use super::super::geometry::OUT;
use super::super::test_cases::{CASES, Case, case, in_memory, transposed};
use super::plan::{TILE, taps_before, tile, tile_count};
use super::prepare;
use half::{bf16, f16};
use pteron_core::kernel::PrepareFn;
use pteron_core::{AlignedBuffer, DType, Dims, Dynamism, Element, Isa, TensorSpec};
use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_kernels::testing::numbers;

/// A dtype: from f32, to f64, and how far a rounded sum of products of a size may be off.
trait Float: Element {
    fn of(v: f32) -> Self;
    fn wide(self) -> f64;
    fn limit(sum: f64, size: f64) -> f64;
}

macro_rules! float {
    ($($t:ty: |$v:ident| $of:expr, |$w:ident| $wide:expr, |$sum:ident, $size:ident| $limit:expr;)*) => { $(
        impl Float for $t {
            fn of($v: f32) -> Self { $of }
            fn wide(self) -> f64 { let $w = self; $wide }
            fn limit($sum: f64, $size: f64) -> f64 { $limit }
        }
    )* };
}
float! {
    f32: |v| v, |w| w.into(), |_sum, size| 1e-6 * (1.0 + size);
    f64: |v| v.into(), |w| w, |_sum, size| 1e-14 * (1.0 + size);
    f16: |v| f16::from_f32(v), |w| w.to_f64(), |sum, size| sum.abs() / 2048.0 + 1e-6 * (1.0 + size);
    bf16: |v| bf16::from_f32(v), |w| w.to_f64(), |sum, size| sum.abs() / 256.0 + 1e-6 * (1.0 + size);
}

fn arguments<T: Float>(c: &Case, x: HostTensor, w: &[T], bias: CallArg, out: HostTensor) -> Vec<CallArg> {
    let weight = CallArg::Tensor(HostTensor::new(&c.weight_shape(), w).unwrap());
    let mut args = c.arguments(x, weight, bias);
    args.push(CallArg::Tensor(out));
    args
}

/// The sums of a case, in memory orders that differ from case to case.
fn check<T: Float>(c: Case, isa: Isa, orders: usize) {
    let Some(cpu) = profile(isa) else { return };
    let ([ic, oc], outputs) = (c.channels, c.output().iter().product::<usize>());
    let pixels = c.input.iter().product::<usize>();
    let rounded = |n: usize, seed| numbers(n, seed).into_iter().map(T::of).collect::<Vec<T>>();
    let exact = |v: &[T]| v.iter().map(|v| v.wide() as f32).collect::<Vec<f32>>();
    let x = rounded(c.images * ic * pixels, 1);
    let w = rounded(c.weight_shape().iter().product(), 2);
    let b = rounded(oc, 3);
    let want = c.reference(&exact(&x), &exact(&w), &exact(&b));
    let (from_last, to_last) = (orders & 1 == 1, orders & 2 == 2);
    let x = in_memory(&x, [c.images, ic, pixels], from_last);
    let input = HostTensor::in_order(&c.shape(ic, c.input), c.order(from_last), &x).unwrap();
    let out = HostTensor::zeros_in_order(T::DTYPE, &c.shape(oc, c.output()), c.order(to_last)).unwrap();
    let bias = CallArg::Tensor(HostTensor::new(&[oc], &b).unwrap());
    let call = SingleCall::new(prepare, &cpu, arguments(&c, input, &w, bias, out)).unwrap();
    if c.more_behind != [0; 3] {
        assert!(call.is_none());
        return;
    }
    let mut call = call.unwrap();
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    let y = call.output::<T>(OUT).unwrap();
    for (i, (sum, size)) in want.iter().enumerate() {
        let place = match to_last {
            true => (i / (oc * outputs) * outputs + i % outputs) * oc + i / outputs % oc,
            false => i,
        };
        let got = y[place].wide();
        assert!(
            (got - sum).abs() <= T::limit(*sum, *size),
            "{} {c:?} {orders} at {i}: {got} {sum}",
            call.prepared().name()
        );
    }
}

#[test]
fn every_case_in_every_dtype() {
    for isa in Isa::ALL {
        for (i, c) in CASES.into_iter().enumerate() {
            check::<f32>(c, isa, i);
            check::<f64>(c, isa, i + 1);
            check::<f16>(c, isa, i + 2);
            check::<bf16>(c, isa, i + 3);
        }
    }
}

/// Blocks of pixels and of output channels, one of which is not full; every height of a tile; depths apart.
#[test]
fn several_units() {
    for isa in Isa::ALL {
        for (i, rows) in [96 + 7, 6, 5, 3].into_iter().enumerate() {
            check::<f32>(case([3, rows], [17, 23], 3, 1, 1), isa, i);
            check::<f64>(transposed(case([4, rows], [9, 17], 3, 2, 1), 1), isa, i);
        }
        let deep = Case {
            rank: 3,
            input: [3, 9, 10],
            kernel: [3; 3],
            padding: [1; 3],
            ..case([2, 9], [1, 1], 1, 1, 0)
        };
        check::<f32>(deep, isa, 0);
    }
}

fn plain_kernel() -> PrepareFn {
    let name = "aten::convolution.out(";
    pteron_kernels::plain_kernels().find(|k| k.schema.starts_with(name)).unwrap().prepare
}

/// Values of a call with one value of input and weight that is no number or infinite.
fn with_odd_values(c: &Case, kernel: PrepareFn, isa: Isa, input: f64, weight: f64) -> Option<Vec<f64>> {
    let mut x: Vec<f64> =
        numbers(c.channels[0] * c.input.iter().product::<usize>(), 1).into_iter().map(f64::from).collect();
    let mut w: Vec<f64> = numbers(c.weight_shape().iter().product(), 2).into_iter().map(f64::from).collect();
    (x[7], w[2]) = (input, weight);
    let x = HostTensor::new(&c.shape(c.channels[0], c.input), &x).unwrap();
    let out = HostTensor::zeros(DType::Float64, &c.shape(c.channels[1], c.output())).unwrap();
    let args = arguments(c, x, &w, CallArg::None, out);
    let mut call = SingleCall::new(kernel, &profile(isa)?, args).unwrap().unwrap();
    call.call().unwrap();
    Some(call.output::<f64>(OUT).unwrap())
}

#[test]
fn numbers_that_are_not_finite_reach_what_reads_them() {
    let is_same = |a: &f64, b: &f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-12;
    let flat = case([3, 8], [5, 6], 3, 1, 1);
    for isa in Isa::ALL {
        for c in [transposed(flat, 0), transposed(case([3, 8], [5, 6], 3, 2, 1), 1), flat] {
            for (input, weight) in
                [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (2.0, f64::NAN), (2.0, f64::INFINITY)]
            {
                // A plain convolution multiplies its padding with the weight, as eager PyTorch does.
                if !c.is_transposed && weight != 1.0 {
                    continue;
                }
                let Some(got) = with_odd_values(&c, prepare, isa, input, weight) else { continue };
                let want = with_odd_values(&c, plain_kernel(), isa, input, weight).unwrap();
                let pairs = got.iter().zip(&want);
                assert!(pairs.clone().all(|(a, b)| is_same(a, b)), "{isa:?} {c:?} {input} {weight}");
                assert!(want.iter().any(|v| !v.is_finite()) && want.iter().any(|v| v.is_finite()));
            }
        }
    }
}

/// What PyTorch 2.13 answers.
#[test]
fn padding_times_an_infinite_weight_is_no_number() {
    let c = case([2, 2], [4, 4], 3, 1, 1);
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let x = HostTensor::new(&[1, 2, 4, 4], &[1f32; 32]).unwrap();
        let mut w = [1f32; 36];
        w[0] = f32::INFINITY;
        let out = HostTensor::zeros(DType::Float32, &[1, 2, 4, 4]).unwrap();
        let mut call =
            SingleCall::new(prepare, &cpu, arguments(&c, x, &w, CallArg::None, out)).unwrap().unwrap();
        call.call().unwrap();
        let y = call.output::<f32>(OUT).unwrap();
        for (i, v) in y.iter().enumerate() {
            let (is_second, is_border) = (i >= 16, i % 16 < 4 || i % 4 == 0);
            assert!(is_second == v.is_finite() && (is_second || is_border == v.is_nan()), "{isa:?} {i}: {v}");
        }
    }
}

/// A call smaller than at load gives the bytes of one of that size, and so do images apart.
#[test]
fn smaller_calls_and_single_images() {
    let at_load = Case { images: 3, ..case([4, 7], [12, 13], 3, 2, 1) };
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let now = Case { images: 2, input: [1, 9, 7], ..at_load };
        let (x, w) = (numbers(2 * 4 * 63, 1), numbers(7 * 4 * 9, 2));
        let run = |input: HostTensor, c: &Case| {
            let out = HostTensor::zeros(DType::Float32, &c.shape(7, c.output())).unwrap();
            let args = arguments(c, input, &w, CallArg::None, out);
            let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            call.output::<f32>(OUT).unwrap()
        };
        let image = shrunken(&at_load.shape(4, at_load.input), &now.shape(4, now.input), &x);
        let smaller = run(image, &at_load);
        let one = Case { images: 1, ..now };
        let alone: Vec<f32> = x
            .chunks(4 * 63)
            .flat_map(|x| run(HostTensor::new(&one.shape(4, one.input), x).unwrap(), &one))
            .collect();
        assert!(smaller == alone, "{isa:?}");
    }
}

#[test]
fn margins_that_dwarf_the_input_are_declined() {
    let c = Case { padding: [0, 0, 1 << 20], stride: [1, 1 << 20, 1 << 20], ..case([1, 1], [8, 8], 3, 1, 1) };
    let x = HostTensor::zeros(DType::Float32, &[1, 1, 8, 8]).unwrap();
    let out = HostTensor::zeros(DType::Float32, &c.shape(1, c.output())).unwrap();
    let args = arguments(&c, x, &[0f32; 9], CallArg::None, out);
    // A stride that leaves most of the margin out is none to lay it all out for.
    let call = SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args).unwrap();
    assert!(call.is_some_and(|call| call.prepared().scratch().shared < 1 << 20));
    let c = Case { dilation: [1, 1, 1 << 30], padding: [0, 0, 1 << 30], ..case([1, 1], [8, 8], 3, 1, 1) };
    let x = HostTensor::zeros(DType::Float32, &[1, 1, 8, 8]).unwrap();
    let out = HostTensor::zeros(DType::Float32, &c.shape(1, c.output())).unwrap();
    let args = arguments(&c, x, &[0f32; 9], CallArg::None, out);
    assert!(SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().is_none());
}

/// `values` in a tensor that had room for `most` at load.
fn shrunken(most: &[usize], now: &[usize], values: &[f32]) -> HostTensor {
    let mut spec = TensorSpec::contiguous(DType::Float32, most).unwrap();
    spec.dynamism = Dynamism::Bounded;
    let mut memory = AlignedBuffer::zeroed(spec.nbytes().unwrap()).unwrap();
    memory.as_mut_slice()[..values.len() * 4].copy_from_slice(bytemuck::cast_slice(values));
    HostTensor::in_memory(spec, Dims::new(now).unwrap(), Box::new(memory))
}

#[test]
fn an_image_may_shrink_to_less_than_its_margins() {
    let at_load = Case { padding: [0, 20, 20], ..case([200, 1], [64, 64], 3, 1, 1) };
    let now = Case { input: [1, 1, 1], ..at_load };
    let (x, w) = (numbers(200, 1), numbers(200 * 9, 2));
    let out = HostTensor::zeros(DType::Float32, &at_load.shape(1, at_load.output())).unwrap();
    let input = shrunken(&at_load.shape(200, at_load.input), &now.shape(200, now.input), &x);
    let args = arguments(&at_load, input, &w, CallArg::None, out);
    let mut call = SingleCall::new(prepare, &profile(Isa::Portable).unwrap(), args).unwrap().unwrap();
    call.call().unwrap();
    assert_eq!(*call.shape(OUT).unwrap(), [1, 1, 39, 39]);
    let middle = f64::from(call.output::<f32>(OUT).unwrap()[19 * 39 + 19]);
    let want: f64 = x.iter().zip(w.chunks(9)).map(|(x, w)| f64::from(*x) * f64::from(w[4])).sum();
    assert!((middle - want).abs() < 1e-4, "{middle} {want}");
}

#[test]
fn a_weight_may_shrink_and_is_not_read_as_another_shape() {
    let cpu = profile(Isa::Portable).unwrap();
    let at_load = case([2, 4], [8, 8], 3, 1, 1);
    let (x, w) = (numbers(2 * 64, 1), numbers(72, 2));
    let call = |weight: [usize; 4]| {
        let input = HostTensor::new(&at_load.shape(2, at_load.input), &x).unwrap();
        let n = weight.iter().product();
        let weight = CallArg::Tensor(shrunken(&at_load.weight_shape(), &weight, &w[..n]));
        let out = HostTensor::zeros(DType::Float32, &at_load.shape(4, at_load.output())).unwrap();
        let mut args = at_load.arguments(input, weight, CallArg::None);
        args.push(CallArg::Tensor(out));
        SingleCall::new(prepare, &cpu, args).unwrap().unwrap()
    };
    let mut fewer = call([3, 2, 3, 3]);
    fewer.call().unwrap();
    let now = Case { channels: [2, 3], ..at_load };
    let want = now.reference(&x, &w[..54], &[0.0; 3]);
    let got = fewer.output::<f32>(OUT).unwrap();
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(&want).all(|(a, b)| (f64::from(*a) - b.0).abs() < 1e-5));
    // Channels of another input, and a window that is larger than at load.
    for weight in [[2, 4, 3, 3], [1, 2, 6, 6]] {
        assert!(call(weight).call().is_err(), "{weight:?}");
    }
}

#[test]
fn tiles_and_classes_of_taps_lie_side_by_side() {
    for rows in 1..40 {
        let mut next = 0;
        for index in 0..tile_count(rows) {
            let [row, height] = tile(rows, index);
            assert!(row == next && (1..=TILE).contains(&height), "{rows} {index}");
            next += height;
        }
        assert_eq!(next, rows);
    }
    for (kernel, step) in [([1, 5, 7], [1, 2, 3]), ([3, 2, 4], [4, 1, 2]), ([2, 2, 2], [2, 2, 2])] {
        let mut taken = vec![0; kernel.iter().product()];
        for class in 0..step.iter().product::<usize>() {
            let start = [class / step[2] / step[1], class / step[2] % step[1], class % step[2]];
            if (0..3).any(|d| start[d] >= kernel[d]) {
                continue;
            }
            let own: usize = (0..3).map(|d| (kernel[d] - start[d]).div_ceil(step[d])).product();
            let first = taps_before(kernel, start, step);
            taken[first..first + own].iter_mut().for_each(|n| *n += 1);
        }
        assert!(taken.iter().all(|n| *n == 1), "{kernel:?} {step:?} {taken:?}");
    }
}
