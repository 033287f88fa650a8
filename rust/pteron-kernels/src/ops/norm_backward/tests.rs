//! The fast kernels of normalisations' gradients against the plain ones, which compute in float64.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use half::{bf16, f16};
use pteron_core::{Element, Isa};

/// Runs a kernel; the three outputs, which are the last arguments and hold ones before.
fn run<T: Element>(op: &str, variant: &str, isa: Isa, args: Vec<CallArg>) -> Option<[Vec<T>; 3]> {
    let first = args.len() - 3;
    let mut call = SingleCall::new(prepare_of(op, variant), &profile(isa)?, args).unwrap().expect("taken");
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    Some([0, 1, 2].map(|i| call.output::<T>(first + i).unwrap()))
}

struct Float<T> {
    of: fn(f32) -> T,
    to: fn(T) -> f64,
    /// The largest difference of numbers around 1.
    tolerance: f64,
}

impl<T: Element> Float<T> {
    fn tensor(&self, shape: &[usize], seed: u64) -> CallArg {
        let values: Vec<T> =
            numbers(shape.iter().product(), seed).into_iter().map(|v| (self.of)(v)).collect();
        CallArg::Tensor(HostTensor::new(shape, &values).unwrap())
    }

    fn ones(&self, shape: &[usize]) -> CallArg {
        let values = vec![(self.of)(1.0); shape.iter().product()];
        CallArg::Tensor(HostTensor::new(shape, &values).unwrap())
    }

    fn check(&self, op: &str, variant: &str, args: impl Fn() -> Vec<CallArg>) {
        let want = run::<T>(op, "reference", Isa::Portable, args()).unwrap();
        let mut first: Option<Vec<u8>> = None;
        for isa in Isa::ALL {
            let Some(got) = run::<T>(op, variant, isa, args()) else { continue };
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_eq!(got.len(), want.len());
                for (got, want) in got.iter().zip(want) {
                    let (got, want) = ((self.to)(*got), (self.to)(*want));
                    let is_close = (got - want).abs() <= self.tolerance * want.abs().max(1.0);
                    assert!(
                        is_close || got.is_nan() && want.is_nan(),
                        "{op} {:?} {isa:?} {i}: {got} {want}",
                        T::DTYPE
                    );
                }
            }
            let bytes: Vec<u8> = got.iter().flat_map(|v| bytemuck::cast_slice(v).to_vec()).collect();
            assert!(*first.get_or_insert(bytes.clone()) == bytes, "{isa:?} has other bytes");
        }
    }

    fn layer(&self) {
        for [rows, length] in [[5, 37], [2, 550], [1, 1], [0, 70], [9, 67]] {
            for (has_weight, mask) in
                [(true, [true; 3]), (false, [true, false, true]), (true, [false, true, false])]
            {
                self.check("aten::native_layer_norm_backward.out", "rows", || {
                    vec![
                        self.tensor(&[rows, length], 1),
                        self.tensor(&[rows, length], 2),
                        CallArg::Ints(vec![length as i64]),
                        self.tensor(&[rows, 1], 3),
                        self.tensor(&[rows, 1], 4),
                        if has_weight { self.tensor(&[length], 5) } else { CallArg::None },
                        CallArg::None,
                        CallArg::Bools(mask.to_vec()),
                        self.ones(&[rows, length]),
                        self.ones(&[length]),
                        self.ones(&[length]),
                    ]
                });
            }
        }
    }

    fn group(&self) {
        for [images, channels, groups, pixels] in [[2, 6, 3, 35], [1, 4, 1, 530], [3, 2, 2, 1], [0, 4, 2, 5]]
        {
            for (has_weight, mask) in
                [(true, [true; 3]), (false, [true, false, true]), (true, [false, true, false])]
            {
                let shape = [images, channels, pixels];
                self.check("aten::native_group_norm_backward.out", "groups", || {
                    vec![
                        self.tensor(&shape, 1),
                        self.tensor(&shape, 2),
                        self.tensor(&[images, groups], 3),
                        self.tensor(&[images, groups], 4),
                        if has_weight { self.tensor(&[channels], 5) } else { CallArg::None },
                        CallArg::int(images as i64),
                        CallArg::int(channels as i64),
                        CallArg::int(pixels as i64),
                        CallArg::int(groups as i64),
                        CallArg::Bools(mask.to_vec()),
                        self.ones(&shape),
                        self.ones(&[channels]),
                        self.ones(&[channels]),
                    ]
                });
            }
        }
    }
}

#[test]
fn gradients_are_those_of_the_plain_kernels() {
    let single = Float { of: |v| v, to: f64::from, tolerance: 5e-4 };
    let double = Float { of: f64::from, to: |v| v, tolerance: 1e-11 };
    let binary = Float { of: f16::from_f32, to: |v: f16| v.to_f64(), tolerance: 1e-3 };
    let brain = Float { of: bf16::from_f32, to: |v: bf16| v.to_f64(), tolerance: 8e-3 };
    single.layer();
    single.group();
    double.layer();
    double.group();
    binary.layer();
    binary.group();
    brain.layer();
    brain.group();
}
