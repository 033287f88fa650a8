//! Fast kernels of layout operators for every element size against index arithmetic.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::{DType, DimOrder, Element, Isa, Result, kernel::PrepareFn};

fn kernel(start: &str) -> PrepareFn {
    let mut found = crate::fast_kernels().filter(|k| k.variant == "strided" && k.schema.starts_with(start));
    found.next().expect(start).prepare
}

fn ints(v: &[i64]) -> CallArg {
    CallArg::Ints(v.to_vec())
}

/// Runs `op` on 0, 1, 2, .. of `shape` and returns what came out, as source positions.
fn moved<T: Element + TryFrom<usize>>(
    op: &str,
    isa: Isa,
    shape: &[usize],
    extra: Vec<CallArg>,
    out_shape: &[usize],
) -> Option<Result<Vec<T>>> {
    let cpu = profile(isa)?;
    let n: usize = shape.iter().product();
    let values: Vec<T> = (0..n).map(|i| T::try_from(i % 251).ok().unwrap()).collect();
    let mut args = vec![CallArg::Tensor(HostTensor::new(shape, &values).unwrap())];
    args.extend(extra);
    let out = args.len();
    args.push(CallArg::Tensor(HostTensor::zeros(T::DTYPE, out_shape).unwrap()));
    let mut call = SingleCall::new(kernel(op), &cpu, args).unwrap().unwrap();
    Some(call.bind().and_then(|grid| call.run(grid, true)).and_then(|()| call.output::<T>(out)))
}

fn permuted(shape: &[usize], dims: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut strides = vec![1; shape.len()];
    for d in (0..shape.len().saturating_sub(1)).rev() {
        strides[d] = strides[d + 1] * shape[d + 1];
    }
    let out_shape: Vec<usize> = dims.iter().map(|d| shape[*d]).collect();
    let mut positions = vec![0];
    for (d, n) in dims.iter().zip(&out_shape) {
        positions = positions
            .iter()
            .flat_map(|p| (0..*n).map(move |i| (p, i)))
            .map(|(p, i)| p + i * strides[*d])
            .collect();
    }
    (out_shape, positions)
}

const PERMUTES: [(&[usize], &[usize]); 10] = [
    (&[2, 3, 7, 11], &[0, 2, 3, 1]),
    (&[2, 2, 45], &[0, 2, 1]),
    (&[2, 9, 3, 5], &[0, 2, 1, 3]),
    (&[2, 17, 3, 8], &[0, 2, 3, 1]),
    (&[100, 130], &[1, 0]),
    (&[33, 5, 70], &[2, 1, 0]),
    (&[3, 4, 50], &[1, 2, 0]),
    (&[2, 64, 19, 23], &[0, 2, 3, 1]),
    (&[7], &[0]),
    (&[0, 3], &[1, 0]),
];

fn check_permutes<T: Element + TryFrom<usize> + PartialEq + std::fmt::Debug>() {
    for isa in Isa::ALL {
        for (shape, dims) in PERMUTES {
            let (out_shape, positions) = permuted(shape, dims);
            let order: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
            let Some(y) = moved::<T>("aten::permute_copy", isa, shape, vec![ints(&order)], &out_shape) else {
                continue;
            };
            let want: Vec<T> = positions.iter().map(|p| T::try_from(p % 251).ok().unwrap()).collect();
            assert!(y.unwrap() == want, "{isa:?} {} {shape:?} {dims:?}", T::DTYPE);
        }
    }
}

#[test]
fn permute_for_every_element_size() {
    check_permutes::<u8>();
    check_permutes::<i16>();
    check_permutes::<i32>();
    check_permutes::<i64>();
}

#[test]
fn views_pick_the_right_elements() {
    let run = |op: &str, shape: &[usize], extra: Vec<CallArg>, out: &[usize]| {
        moved::<i64>(op, Isa::Portable, shape, extra, out).unwrap()
    };
    let int = CallArg::int;
    assert_eq!(
        run("aten::transpose_copy", &[2, 3], vec![int(0), int(-1)], &[3, 2]).unwrap(),
        [0, 3, 1, 4, 2, 5]
    );
    assert_eq!(run("aten::t_copy", &[2, 2], vec![], &[2, 2]).unwrap(), [0, 2, 1, 3]);
    let no = || CallArg::bool(false);
    let text = run("aten::expand_copy", &[2, 1], vec![ints(&[3, 2]), no()], &[3, 2]).unwrap_err().to_string();
    assert!(text.contains("got 3 at dimension 0"), "{text}");
    assert!(run("aten::expand_copy", &[2, 1], vec![ints(&[-1, 2, 1]), no()], &[2, 2, 1]).is_err());
    assert_eq!(
        run("aten::expand_copy", &[2, 1], vec![ints(&[2, -1, 3]), no()], &[2, 2, 3]).unwrap(),
        [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    );
    let slice = |start: CallArg, end: CallArg, step| vec![int(1), start, end, int(step)];
    assert_eq!(
        run("aten::slice_copy", &[2, 5], slice(int(1), int(i64::MAX), 2), &[2, 2]).unwrap(),
        [1, 3, 6, 8]
    );
    assert_eq!(
        run("aten::slice_copy", &[2, 5], slice(int(-2), CallArg::None, 1), &[2, 2]).unwrap(),
        [3, 4, 8, 9]
    );
    assert_eq!(run("aten::slice_copy", &[2, 5], slice(int(4), int(2), 1), &[2, 0]).unwrap(), [0i64; 0]);
    assert!(run("aten::slice_copy", &[2, 5], slice(int(0), int(2), 0), &[2, 2]).is_err());
    assert_eq!(run("aten::select_copy", &[2, 3], vec![int(1), int(-1)], &[2]).unwrap(), [2, 5]);
    let text = run("aten::select_copy", &[2, 3], vec![int(1), int(3)], &[2]).unwrap_err().to_string();
    assert!(text.contains("index out of range") && text.contains("got 3"), "{text}");
    assert_eq!(run("aten::unsqueeze_copy", &[2], vec![int(-1)], &[2, 1]).unwrap(), [0, 1]);
    assert_eq!(run("aten::squeeze_copy.dims", &[1, 2, 1], vec![ints(&[0, 1])], &[2, 1]).unwrap(), [0, 1]);
    assert_eq!(run("aten::squeeze_copy.dim_out", &[1, 2], vec![int(1)], &[1, 2]).unwrap(), [0, 1]);
    assert_eq!(run("aten::view_copy", &[2, 3], vec![ints(&[3, -1])], &[3, 2]).unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(run("aten::view_copy", &[2, 3], vec![ints(&[4, -1])], &[4, 1]).is_err());
    assert!(run("aten::permute_copy", &[2, 3], vec![ints(&[0, 0])], &[2, 2]).is_err());
    assert!(run("aten::clone", &[2], vec![CallArg::None], &[2]).unwrap() == [0, 1]);
}

#[test]
fn copies_into_another_dim_order() {
    let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let shape = [2, 3, 5, 4];
    let values: Vec<f32> = (0..120).map(|i| i as f32).collect();
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        let args = vec![
            CallArg::Tensor(HostTensor::new(&shape, &values).unwrap()),
            CallArg::bool(false),
            CallArg::None,
            CallArg::Tensor(HostTensor::zeros_in_order(DType::Float32, &shape, nhwc).unwrap()),
        ];
        let mut call =
            SingleCall::new(kernel("dim_order_ops::_clone_dim_order"), &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        let want: Vec<f32> = permuted(&shape, &[0, 2, 3, 1]).1.iter().map(|p| *p as f32).collect();
        assert_eq!(call.output::<f32>(3).unwrap(), want);
    }
}
