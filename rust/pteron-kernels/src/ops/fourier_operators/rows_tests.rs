//! The kernel of many rows against the reference kernel, on every instruction set.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{Arg, Tensor, call, dims, numbers, prepare_of};
use pteron_core::{AlignedBuffer, Complex64, DType, Dynamism, Element, Isa, TensorSpec};

/// A tensor of `shape` whose upper bounds are `bounds`.
fn bounded<T: Element>(bounds: &[usize], shape: &[usize], values: &[T]) -> CallArg {
    let mut spec = TensorSpec::contiguous(T::DTYPE, bounds).unwrap();
    spec.dynamism = Dynamism::Bounded;
    let mut memory = AlignedBuffer::zeroed(spec.nbytes().unwrap()).unwrap();
    let bytes: &[u8] = bytemuck::cast_slice(values);
    memory.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    CallArg::Tensor(HostTensor::in_memory(spec, dims(shape), Box::new(memory)))
}

fn complex(count: usize) -> Vec<Complex64> {
    bytemuck::cast_slice(&numbers(2 * count, 7)).to_vec()
}

struct Case<'a> {
    operator: &'a str,
    bounds: &'a [usize],
    shape: &'a [usize],
    dims: &'a [i64],
    out_bounds: &'a [usize],
    out: &'a [usize],
    /// `forward`, `onesided` or the size of the last dimension.
    third: Arg,
}

/// Runs a case of elements `T` with results of `U`.
fn check<T: Element, U: Element>(case: &Case<'_>, values: &[T], normalization: i64) {
    let third = match &case.third {
        Arg::Bool(v) => CallArg::bool(*v),
        Arg::Int(v) => CallArg::int(*v),
        _ => panic!("a bool or a size"),
    };
    let want = call(
        case.operator,
        &[
            Tensor::of(case.shape, values).into(),
            case.dims.to_vec().into(),
            normalization.into(),
            case.third.clone(),
            Tensor::output(U::DTYPE, case.out).into(),
        ],
    )
    .unwrap();
    let Some(Arg::Tensor(want)) = want.get(4) else { panic!("no tensor") };
    let want: &[f32] = bytemuck::cast_slice(&want.bytes);
    let largest = want.iter().fold(0f32, |most, v| most.max(v.abs()));
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let third = match &third {
            CallArg::Number(v) => CallArg::Number(*v),
            _ => panic!("a number"),
        };
        let args = vec![
            bounded(case.bounds, case.shape, values),
            CallArg::Ints(case.dims.to_vec()),
            CallArg::int(normalization),
            third,
            bounded::<U>(case.out_bounds, case.out_bounds, &[]),
        ];
        let mut fast = SingleCall::new(prepare_of(case.operator, "rows"), &cpu, args).unwrap().unwrap();
        let grid = fast.bind().unwrap();
        // Chunks in reverse order.
        fast.run(grid, true).unwrap();
        let got = fast.output::<U>(4).unwrap();
        let got: &[f32] = bytemuck::cast_slice(&got);
        assert_eq!(got.len(), want.len(), "{isa:?} {} {:?}", case.operator, case.shape);
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!(
                (got - want).abs() <= 2e-6 * largest,
                "{isa:?} {} {:?} {:?}, element {i}: {got} for {want}",
                case.operator,
                case.shape,
                case.dims
            );
        }
    }
}

#[test]
fn complex_tensors() {
    // Over the last, over the first, over several dimensions in either order, below the upper bounds, more than a chunk.
    let cases: [(&[usize], &[usize], &[i64]); 6] = [
        (&[4, 30], &[4, 30], &[1]),
        (&[6, 5, 4], &[6, 5, 4], &[0]),
        (&[6, 5, 4], &[6, 5, 4], &[2, 0]),
        (&[9, 7, 40], &[9, 6, 37], &[-1, 1]),
        (&[100, 400], &[83, 400], &[1]),
        (&[3, 8], &[3, 8], &[]),
    ];
    for (bounds, shape, dims) in cases {
        for (is_forward, normalization) in [(true, 0), (false, 1), (true, 2)] {
            let case = Case {
                operator: "aten::_fft_c2c.out",
                bounds,
                shape,
                dims,
                out_bounds: bounds,
                out: shape,
                third: is_forward.into(),
            };
            check::<Complex64, Complex64>(&case, &complex(shape.iter().product()), normalization);
        }
    }
}

#[test]
fn real_tensors_and_back() {
    let cases: [(&[usize], &[usize], &[i64]); 6] = [
        (&[4, 30], &[4, 30], &[1]),
        (&[4, 31], &[4, 31], &[1]),
        (&[6, 5, 4], &[6, 5, 4], &[0]),
        (&[6, 5, 4], &[6, 5, 4], &[1, 0, 2]),
        (&[9, 7, 40], &[9, 6, 37], &[1, -1]),
        (&[100, 400], &[83, 400], &[1]),
    ];
    for (bounds, shape, dims) in cases {
        let last = *dims.last().unwrap();
        let last = if last < 0 { shape.len() - 1 } else { last as usize };
        let half = |shape: &[usize]| {
            let mut shape = shape.to_vec();
            shape[last] = shape[last] / 2 + 1;
            shape
        };
        let (half_bounds, half_shape) = (half(bounds), half(shape));
        for (is_onesided, normalization) in [(true, 0), (false, 1), (true, 2)] {
            let (out_bounds, out) =
                if is_onesided { (&half_bounds[..], &half_shape[..]) } else { (bounds, shape) };
            let case = Case {
                operator: "aten::_fft_r2c.out",
                bounds,
                shape,
                dims,
                out_bounds,
                out,
                third: is_onesided.into(),
            };
            check::<f32, Complex64>(&case, &numbers(shape.iter().product(), 5), normalization);
            let case = Case {
                operator: "aten::_fft_c2r.out",
                bounds: &half_bounds,
                shape: &half_shape,
                dims,
                out_bounds: bounds,
                out: shape,
                third: (shape[last] as i64).into(),
            };
            check::<Complex64, f32>(&case, &complex(half_shape.iter().product()), normalization);
        }
    }
}

#[test]
fn signals_of_nothing_are_an_error() {
    let args = vec![
        CallArg::Tensor(HostTensor::zeros(DType::Complex64, &[3, 0]).unwrap()),
        CallArg::Ints(vec![1]),
        CallArg::int(0),
        CallArg::bool(true),
        CallArg::Tensor(HostTensor::zeros(DType::Complex64, &[3, 0]).unwrap()),
    ];
    let cpu = profile(Isa::Portable).unwrap();
    let mut call = SingleCall::new(prepare_of("aten::_fft_c2c.out", "rows"), &cpu, args).unwrap().unwrap();
    assert!(call.bind().unwrap_err().to_string().contains("without elements"));
}
