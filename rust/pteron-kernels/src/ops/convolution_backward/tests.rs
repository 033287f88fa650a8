//! The fast kernel against the plain one. Whole numbers make every sum exact, in whatever order.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::prepare_of;
use pteron_core::{Element, Isa};

const OP: &str = "aten::convolution_backward.out";

/// Input, weight, stride, padding, dilation, groups.
type Case = (&'static [usize], &'static [usize], [i64; 2], [i64; 2], [i64; 2], usize);

const CASES: [Case; 7] = [
    (&[1, 5, 7, 9], &[6, 5, 3, 3], [1, 1], [1, 1], [1, 1], 1),
    (&[2, 6, 11, 8], &[4, 3, 3, 2], [2, 3], [2, 0], [1, 2], 2),
    // Each channel for itself.
    (&[1, 3, 6, 40], &[6, 1, 1, 5], [1, 2], [0, 3], [1, 1], 3),
    // Single pixels, more of them than are multiplied at once.
    (&[1, 9, 30, 21], &[3, 9, 1, 1], [1, 1], [0, 0], [1, 1], 1),
    // Signals.
    (&[2, 4, 33], &[5, 4, 3], [1, 1], [2, 0], [2, 1], 1),
    // Windows that see mostly the margin.
    (&[1, 1, 2, 3], &[1, 1, 4, 5], [1, 1], [3, 7], [1, 3], 1),
    (&[0, 2, 4, 4], &[2, 2, 3, 3], [1, 1], [1, 1], [1, 1], 1),
];

fn out_shape((x, w, stride, padding, dilation, _): Case) -> Vec<usize> {
    let mut shape = vec![x[0], w[0]];
    for d in 0..x.len() - 2 {
        let reach = dilation[d] * (w[2 + d] as i64 - 1) + 1;
        shape.push(((x[2 + d] as i64 + 2 * padding[d] - reach) / stride[d] + 1) as usize);
    }
    shape
}

fn run<T: Element>(
    variant: &str,
    isa: Isa,
    case: Case,
    mask: [bool; 3],
    of: &impl Fn(f64) -> T,
) -> Option<[Vec<u8>; 3]> {
    let (x, w, stride, padding, dilation, groups) = case;
    let tensor = |shape: &[usize], seed: usize| {
        let n: usize = shape.iter().product();
        let values: Vec<T> = (0..n).map(|i| of(((i * 7 + i / 5 + seed) % 13) as f64 - 6.0)).collect();
        CallArg::Tensor(HostTensor::new(shape, &values).unwrap())
    };
    let dims = x.len() - 2;
    let list = |v: [i64; 2]| CallArg::Ints(v[..dims].to_vec());
    let args = vec![
        tensor(&out_shape(case), 1),
        tensor(x, 2),
        tensor(w, 3),
        CallArg::Ints(vec![w[0] as i64]),
        list(stride),
        list(padding),
        list(dilation),
        CallArg::bool(false),
        list([0; 2]),
        CallArg::int(groups as i64),
        CallArg::Bools(mask.to_vec()),
        tensor(x, 4),
        tensor(w, 5),
        tensor(&[w[0]], 6),
    ];
    let mut call = SingleCall::new(prepare_of(OP, variant), &profile(isa)?, args).unwrap().expect("taken");
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    Some([11, 12, 13].map(|i| call.output_bytes(i).unwrap().to_vec()))
}

fn check<T: Element>(of: impl Fn(f64) -> T) {
    for case in CASES {
        for mask in [[true; 3], [true, false, false], [false, true, false], [false, false, true]] {
            let want = run("reference", Isa::Portable, case, mask, &of).unwrap();
            for isa in Isa::ALL {
                let Some(got) = run("products", isa, case, mask, &of) else { continue };
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!(got == want, "{:?} {isa:?} {case:?} {mask:?}: gradient {i}", T::DTYPE);
                }
            }
        }
    }
}

#[test]
fn gradients_of_whole_numbers_are_exact() {
    check(|v| v as f32);
    check(|v| v);
}
