//! Every elementwise kernel on every instruction set against f64 arithmetic.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::numbers;
use pteron_core::{Bool8, DType, DimOrder, Isa, kernel::PrepareFn};

/// The fast kernels of an operator.
fn prepare_of(operator: &str) -> Vec<PrepareFn> {
    let row = crate::operators().find(|row| row.name() == operator).expect(operator);
    row.fast_kernels().map(|kernel| kernel.prepare).collect()
}

/// `size` is that of the terms that `want` is a difference of.
fn close(got: f32, want: f64, size: f64, what: &str) {
    let tolerance = 4e-7 * want.abs().max(size);
    let same = (f64::from(got) - want).abs() <= tolerance
        || (got.is_nan() && want.is_nan())
        || f64::from(got) == want;
    assert!(same, "{what}: got {got}, want {want}");
}

type Unary = (&'static str, Vec<CallArg>, fn(f64) -> f64);

fn unary_cases() -> Vec<Unary> {
    let d = CallArg::double;
    fn phi(x: f64) -> f64 {
        0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))
    }
    fn keep(x: f64, y: f64) -> f64 {
        if x.is_nan() { x } else { y }
    }
    vec![
        ("aten::relu.out", vec![], |x| keep(x, x.max(0.0))),
        ("aten::sigmoid.out", vec![], |x| 1.0 / (1.0 + (-x).exp())),
        ("aten::tanh.out", vec![], f64::tanh),
        ("aten::exp.out", vec![], f64::exp),
        ("aten::log.out", vec![], f64::ln),
        ("aten::erf.out", vec![], libm::erf),
        ("aten::sqrt.out", vec![], f64::sqrt),
        ("aten::rsqrt.out", vec![], |x| 1.0 / x.sqrt()),
        ("aten::reciprocal.out", vec![], |x| 1.0 / x),
        ("aten::neg.out", vec![], |x| -x),
        ("aten::abs.out", vec![], f64::abs),
        ("aten::round.out", vec![], f64::round_ties_even),
        ("aten::floor.out", vec![], f64::floor),
        ("aten::ceil.out", vec![], f64::ceil),
        ("aten::trunc.out", vec![], f64::trunc),
        ("aten::silu.out", vec![], |x| x / (1.0 + (-x).exp())),
        ("aten::clamp.out", vec![d(-1.0), CallArg::None], |x| keep(x, x.max(-1.0))),
        ("aten::clamp.out", vec![CallArg::int(-1), d(2.0)], |x| x.clamp(-1.0, 2.0)),
        ("aten::hardtanh.out", vec![d(0.0), d(6.0)], |x| x.clamp(0.0, 6.0)),
        ("aten::leaky_relu.out", vec![d(0.25)], |x| if x > 0.0 { x } else { 0.25 * x }),
        ("aten::add.Scalar_out", vec![d(1.5), CallArg::int(2)], |x| x + 3.0),
        ("aten::sub.Scalar_out", vec![d(1.5), CallArg::int(1)], |x| x - 1.5),
        ("aten::mul.Scalar_out", vec![d(0.5)], |x| x * 0.5),
        ("aten::div.Scalar_out", vec![CallArg::int(3)], |x| x / 3.0),
        ("aten::pow.Tensor_Scalar_out", vec![CallArg::int(2)], |x| x * x),
        ("aten::pow.Tensor_Scalar_out", vec![d(3.0)], |x| x * x * x),
        ("aten::pow.Tensor_Scalar_out", vec![d(0.5)], f64::sqrt),
        ("aten::pow.Tensor_Scalar_out", vec![d(-0.5)], |x| 1.0 / x.sqrt()),
        ("aten::pow.Tensor_Scalar_out", vec![CallArg::int(-1)], |x| 1.0 / x),
        ("aten::gelu.out", vec![CallArg::String("none".into())], phi),
        ("aten::gelu.out", vec![CallArg::String("tanh".into())], |x| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }),
    ]
}

fn first_that_accepts(
    prepares: &[PrepareFn],
    isa: Isa,
    args: impl Fn() -> Vec<CallArg>,
) -> Option<SingleCall> {
    let cpu = profile(isa)?;
    Some(
        prepares
            .iter()
            .find_map(|p| SingleCall::new(*p, &cpu, args()).unwrap())
            .expect("no kernel accepts the case"),
    )
}

#[test]
fn unary_functions_agree_with_f64() {
    for isa in Isa::ALL {
        for n in [0, 1, 7, 16, 33, 40_000] {
            for case in 0..unary_cases().len() {
                let (op, _, reference) = &unary_cases()[case];
                let mut x = numbers(n, 7);
                if n > 20 {
                    x[n - 1] = f32::NAN;
                    x[0] = f32::NAN;
                    x[3] = -0.0;
                }
                for is_in_place in [false, true] {
                    let args = || {
                        let (_, scalars, _) = unary_cases().swap_remove(case);
                        let mut args = vec![CallArg::Tensor(HostTensor::new(&[n], &x).unwrap())];
                        args.extend(scalars);
                        args.push(match is_in_place {
                            true => CallArg::SameBytesAs(0),
                            false => CallArg::Tensor(HostTensor::zeros(DType::Float32, &[n]).unwrap()),
                        });
                        args
                    };
                    let Some(mut call) = first_that_accepts(&prepare_of(op), isa, args) else {
                        continue;
                    };
                    let out = args().len() - 1;
                    let grid = call.bind().unwrap();
                    call.run(grid, true).unwrap();
                    for (x, y) in x.iter().zip(call.output::<f32>(out).unwrap()) {
                        let size = if op.contains("gelu") { f64::from(x.abs()) } else { 1e-3 };
                        close(y, reference(f64::from(*x)), size, &format!("{op} {isa:?} n={n} x={x}"));
                    }
                }
            }
        }
    }
}

/// Row-major index of `index` in a tensor of `shape` that broadcasts, for an output index of `rank`.
fn broadcast_position(shape: &[usize], index: &[usize]) -> usize {
    let missing = index.len() - shape.len();
    shape.iter().enumerate().fold(0, |at, (d, n)| at * n + if *n == 1 { 0 } else { index[missing + d] })
}

fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut out = vec![vec![]];
    for &n in shape {
        out = out.into_iter().flat_map(|i| (0..n).map(move |j| [i.clone(), vec![j]].concat())).collect();
    }
    out
}

const SHAPES: [(&[usize], &[usize], &[usize]); 9] = [
    (&[5], &[5], &[5]),
    (&[2, 300], &[], &[2, 300]),
    (&[3, 7, 20], &[20], &[3, 7, 20]),
    (&[3, 7, 20], &[3, 7, 1], &[3, 7, 20]),
    (&[1, 20], &[9, 1], &[9, 20]),
    (&[2, 3, 1, 5], &[3, 4, 1], &[2, 3, 4, 5]),
    (&[0, 4], &[4], &[0, 4]),
    (&[], &[1], &[1]),
    (&[2, 1, 600], &[2, 40, 1], &[2, 40, 600]),
];

fn zero(dtype: DType, shape: &[usize]) -> CallArg {
    CallArg::Tensor(HostTensor::zeros(dtype, shape).unwrap())
}

fn tensor(shape: &[usize], seed: u64) -> (CallArg, Vec<f32>) {
    let v = numbers(shape.iter().product(), seed);
    (CallArg::Tensor(HostTensor::new(shape, &v).unwrap()), v)
}

#[test]
fn arithmetic_broadcasts() {
    type Reference = fn(f64, f64) -> f64;
    let cases: [(&str, bool, Reference); 7] = [
        ("aten::add.out", true, |a, b| a + 2.0 * b),
        ("aten::sub.out", true, |a, b| a - 2.0 * b),
        ("aten::rsub.Tensor_out", true, |a, b| b - 2.0 * a),
        ("aten::mul.out", false, |a, b| a * b),
        ("aten::div.out", false, |a, b| a / b),
        ("aten::maximum.out", false, f64::max),
        ("aten::minimum.out", false, f64::min),
    ];
    for isa in Isa::ALL {
        for (op, has_alpha, reference) in cases {
            for (sa, sb, so) in SHAPES {
                let (a, b) = (tensor(sa, 1).1, tensor(sb, 2).1);
                let args = || {
                    let mut args = vec![tensor(sa, 1).0, tensor(sb, 2).0];
                    if has_alpha {
                        args.push(CallArg::int(2));
                    }
                    args.push(zero(DType::Float32, so));
                    args
                };
                let Some(mut call) = first_that_accepts(&prepare_of(op), isa, args) else {
                    continue;
                };
                call.call().unwrap();
                let out = call.output::<f32>(2 + usize::from(has_alpha)).unwrap();
                for (index, y) in indices(so).iter().zip(out) {
                    let (x0, x1) = (a[broadcast_position(sa, index)], b[broadcast_position(sb, index)]);
                    let want = reference(f64::from(x0), f64::from(x1));
                    // Sums cancel: compare against the size of the terms.
                    let tolerance = 1e-6 * (want.abs() + f64::from(x0.abs()) + f64::from(x1.abs()));
                    assert!(
                        (f64::from(y) - want).abs() <= tolerance,
                        "{op} {isa:?} {sa:?} {sb:?}: {y} {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn maximum_and_minimum_keep_nan_from_either_side() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for op in ["aten::maximum.out", "aten::minimum.out"] {
            let a = HostTensor::new(&[3], &[f32::NAN, 1.0, f32::NAN]).unwrap();
            let b = HostTensor::new(&[3], &[1.0, f32::NAN, f32::NAN]).unwrap();
            let args = vec![CallArg::Tensor(a), CallArg::Tensor(b), zero(DType::Float32, &[3])];
            let prepare = prepare_of(op)[0];
            let mut call = SingleCall::new(prepare, &cpu, args).unwrap().unwrap();
            call.call().unwrap();
            assert!(call.output::<f32>(2).unwrap().iter().all(|v| v.is_nan()), "{op} {isa:?}");
        }
    }
}

#[test]
fn comparisons_against_tensors_and_scalars() {
    type Reference = fn(&f32, &f32) -> bool;
    let cases: [(&str, Reference); 6] = [
        ("eq", f32::eq),
        ("ne", f32::ne),
        ("lt", f32::lt),
        ("le", f32::le),
        ("gt", f32::gt),
        ("ge", f32::ge),
    ];
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for (op, reference) in cases {
            let of_tensor = prepare_of(&format!("aten::{op}.Tensor_out"))[0];
            let of_scalar = prepare_of(&format!("aten::{op}.Scalar_out"))[0];
            for (sa, sb, so) in SHAPES {
                let round = |v: Vec<f32>| v.into_iter().map(f32::round).collect::<Vec<_>>();
                let (mut a, b) = (round(tensor(sa, 1).1), round(tensor(sb, 2).1));
                if let Some(x) = a.last_mut() {
                    *x = f32::NAN;
                }
                let ta = || CallArg::Tensor(HostTensor::new(sa, &a).unwrap());
                let tb = CallArg::Tensor(HostTensor::new(sb, &b).unwrap());
                let args = vec![ta(), tb, zero(DType::Bool, so)];
                let mut call = SingleCall::new(of_tensor, &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                for (index, y) in indices(so).iter().zip(call.output::<Bool8>(2).unwrap()) {
                    let (x0, x1) = (a[broadcast_position(sa, index)], b[broadcast_position(sb, index)]);
                    assert_eq!(y.0, u8::from(reference(&x0, &x1)), "{op} {isa:?}");
                }
                let args = vec![ta(), CallArg::int(1), zero(DType::Bool, sa)];
                let mut call = SingleCall::new(of_scalar, &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                for (x, y) in a.iter().zip(call.output::<Bool8>(2).unwrap()) {
                    assert_eq!(y.0, u8::from(reference(x, &1.0)), "{op} {isa:?}");
                }
            }
        }
    }
}

#[test]
fn where_chooses_with_broadcasting() {
    for isa in Isa::ALL {
        let Some(cpu) = profile(isa) else { continue };
        for (sc, sa, so) in SHAPES.into_iter().flat_map(|(a, b, out)| [(a, b, out), (b, a, out)]) {
            for sb in [&[][..], so] {
                let c: Vec<Bool8> =
                    numbers(sc.iter().product(), 3).iter().map(|v| Bool8::from(*v > 0.0)).collect();
                let (a, b) = (tensor(sa, 1).1, tensor(sb, 2).1);
                let condition = CallArg::Tensor(HostTensor::new(sc, &c).unwrap());
                let args = vec![condition, tensor(sa, 1).0, tensor(sb, 2).0, zero(DType::Float32, so)];
                let mut call =
                    SingleCall::new(prepare_of("aten::where.self_out")[0], &cpu, args).unwrap().unwrap();
                call.call().unwrap();
                for (index, y) in indices(so).iter().zip(call.output::<f32>(3).unwrap()) {
                    let want = match c[broadcast_position(sc, index)].get() {
                        true => a[broadcast_position(sa, index)],
                        false => b[broadcast_position(sb, index)],
                    };
                    assert_eq!(y, want, "{isa:?} {sc:?} {sa:?} {sb:?}");
                }
            }
        }
    }
}

#[test]
fn logic_on_bools() {
    let cpu = profile(Isa::Portable).unwrap();
    let a: Vec<Bool8> = [0, 1, 0, 255, 7, 0].map(Bool8).to_vec();
    let b: Vec<Bool8> = [0, 0, 2, 1, 8, 0].map(Bool8).to_vec();
    let run = |op: &str, operands: &[&[Bool8]]| {
        let mut args: Vec<_> =
            operands.iter().map(|v| CallArg::Tensor(HostTensor::new(&[6], v).unwrap())).collect();
        args.push(zero(DType::Bool, &[6]));
        let out = operands.len();
        let mut call = SingleCall::new(prepare_of(op)[0], &cpu, args).unwrap().unwrap();
        call.call().unwrap();
        call.output::<Bool8>(out).unwrap().iter().map(|v| v.0).collect::<Vec<_>>()
    };
    assert_eq!(run("aten::logical_not.out", &[&a]), [1, 0, 1, 0, 0, 1]);
    assert_eq!(run("aten::logical_and.out", &[&a, &b]), [0, 0, 0, 1, 1, 0]);
    assert_eq!(run("aten::logical_or.out", &[&a, &b]), [0, 1, 1, 1, 1, 0]);
}

#[test]
fn memory_orders_may_differ_between_operands() {
    let nhwc = DimOrder::new(&[0, 2, 3, 1]).unwrap();
    let shape = [2, 3, 4, 5];
    let (a, b) = (numbers(120, 1), numbers(120, 2));
    for isa in Isa::ALL {
        let args = || {
            vec![
                CallArg::Tensor(HostTensor::new(&shape, &a).unwrap()),
                CallArg::Tensor(HostTensor::in_order(&shape, nhwc, &b).unwrap()),
                CallArg::Tensor(HostTensor::zeros_in_order(DType::Float32, &shape, nhwc).unwrap()),
            ]
        };
        let mul = prepare_of("aten::mul.out");
        let Some(mut call) = first_that_accepts(&mul, isa, args) else { continue };
        call.call().unwrap();
        let y = call.output::<f32>(2).unwrap();
        for i in indices(&shape) {
            let nchw = ((i[0] * 3 + i[1]) * 4 + i[2]) * 5 + i[3];
            let nhwc = ((i[0] * 4 + i[2]) * 5 + i[3]) * 3 + i[1];
            assert_eq!(y[nhwc], a[nchw] * b[nhwc], "{isa:?} {i:?}");
        }
    }
}

#[test]
fn dynamic_shapes_rebind() {
    let cpu = profile(Isa::Portable).unwrap();
    let args = vec![tensor(&[8, 4], 1).0, tensor(&[4], 2).0, zero(DType::Float32, &[8, 4])];
    let mul = prepare_of("aten::mul.out")[0];
    let mut call = SingleCall::new(mul, &cpu, args).unwrap().unwrap();
    call.call().unwrap();
    call.resize(0, &[3, 4]).unwrap();
    call.call().unwrap();
    assert_eq!(&*call.shape(2).unwrap(), &[3, 4]);
    call.resize(0, &[4, 3]).unwrap();
    let text = call.call().unwrap_err().to_string();
    assert!(text.contains("[4, 3] and [4]"), "{text}");
}
