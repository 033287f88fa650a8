//! Functions of integers and float64 against the same arithmetic in Rust.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use pteron_core::{Bool8, DType, Element, Isa};

fn prepare_of(schema_start: &str) -> pteron_core::kernel::PrepareFn {
    let is_of =
        |k: &pteron_core::StaticKernel| k.variant == "vectorised" && k.schema.starts_with(schema_start);
    crate::fast_kernels().find(is_of).expect("a kernel").prepare
}

/// The result of `op` on `a` (40 rows of 7) and `b` (the same, a row, or a single number).
fn call<T: Element, U: Element>(
    op: &str,
    isa: Isa,
    a: &[T],
    b: Option<&[T]>,
    extra: Vec<CallArg>,
) -> Option<Vec<U>> {
    let shape = |n: usize| match n {
        1 => vec![],
        7 => vec![7],
        _ => vec![40, 7],
    };
    let mut args = vec![CallArg::Tensor(HostTensor::new(&[40, 7], a).unwrap())];
    if let Some(b) = b {
        args.push(CallArg::Tensor(HostTensor::new(&shape(b.len()), b).unwrap()));
    }
    args.extend(extra);
    args.push(CallArg::Tensor(HostTensor::zeros(U::DTYPE, &[40, 7]).unwrap()));
    let out = args.len() - 1;
    let mut call = SingleCall::new(prepare_of(op), &profile(isa)?, args).unwrap().expect("taken");
    call.call().unwrap();
    Some(call.output::<U>(out).unwrap())
}

#[test]
fn shifts_beyond_the_width_leave_zeros_or_the_sign() {
    let (left, right) = ("aten::bitwise_left_shift.Tensor_out", "aten::bitwise_right_shift.Tensor_out");
    let a: Vec<i64> = (0..280).map(|i| (i - 140) * 1_000_000_007).collect();
    let amounts = [0, 5, 63, 64, 1 << 32, (1 << 32) + 3, -1, i64::MIN];
    let by: Vec<i64> = (0..280).map(|i| amounts[i % amounts.len()]).collect();
    let bytes: Vec<u8> = (0..280).map(|i| (i * 91 % 256) as u8).collect();
    let bits: Vec<u8> = (0..280).map(|i| [0, 1, 7, 8, 9, 255][i % 6]).collect();
    for isa in Isa::ALL {
        let Some(up) = call::<i64, i64>(left, isa, &a, Some(&by), vec![]) else { continue };
        let down = call::<i64, i64>(right, isa, &a, Some(&by), vec![]).unwrap();
        let up_bytes = call::<u8, u8>(left, isa, &bytes, Some(&bits), vec![]).unwrap();
        let down_bytes = call::<u8, u8>(right, isa, &bytes, Some(&bits), vec![]).unwrap();
        for i in 0..280 {
            let is_inside = (0..64).contains(&by[i]);
            let want = if is_inside { (a[i] << by[i], a[i] >> by[i]) } else { (0, a[i] >> 63) };
            assert_eq!((up[i], down[i]), want, "{isa:?} {} by {}", a[i], by[i]);
            let want = if bits[i] < 8 { (bytes[i] << bits[i], bytes[i] >> bits[i]) } else { (0, 0) };
            assert_eq!((up_bytes[i], down_bytes[i]), want, "{isa:?} {} by {}", bytes[i], bits[i]);
        }
    }
}

#[test]
fn signs_bounds_cubes_and_products_that_are_added() {
    let a: Vec<i32> = (0..280).map(|i| (i - 140) * 31_000_001).collect();
    for isa in Isa::ALL {
        let Some(sign) = call::<i32, i32>("aten::sign.out", isa, &a, None, vec![]) else { continue };
        let bounds = vec![CallArg::int(-5), CallArg::int(1 << 20)];
        let bounded = call::<i32, i32>("aten::hardtanh.out", isa, &a, None, bounds).unwrap();
        let product = CallArg::Tensor(HostTensor::new(&[40, 7], &a).unwrap());
        let added =
            call::<i32, i32>("aten::addcmul.out", isa, &a, Some(&a), vec![product, CallArg::int(3)]).unwrap();
        for (i, v) in a.iter().enumerate() {
            assert_eq!((sign[i], bounded[i]), (v.signum(), (*v).clamp(-5, 1 << 20)), "{isa:?} {v}");
            assert_eq!(added[i], v.wrapping_add(v.wrapping_mul(*v).wrapping_mul(3)), "{isa:?} {v}");
        }
    }
}

#[test]
fn integers_wrap_and_broadcast() {
    let a: Vec<i8> = (0..280).map(|i| (i * 37 % 256) as u8 as i8).collect();
    for isa in Isa::ALL {
        for n in [280, 7, 1] {
            let b: Vec<i8> = (0..n).map(|i| (i * 91 % 256) as u8 as i8).collect();
            let Some(sum) = call::<i8, i8>("aten::add.out", isa, &a, Some(&b), vec![CallArg::int(1)]) else {
                continue;
            };
            let less = call::<i8, Bool8>("aten::lt.Tensor_out", isa, &a, Some(&b), vec![]).unwrap();
            let way =
                call::<i8, i8>("aten::rsub.Tensor_out", isa, &a, Some(&b), vec![CallArg::int(1)]).unwrap();
            for i in 0..280 {
                assert_eq!(sum[i], a[i].wrapping_add(b[i % n]), "{isa:?} {n}");
                assert_eq!(way[i], b[i % n].wrapping_sub(a[i]), "{isa:?} {n}");
                assert_eq!(less[i].get(), a[i] < b[i % n]);
            }
        }
        let Some(magnitude) = call::<i8, i8>("aten::abs.out", isa, &a, None, vec![]) else { continue };
        let complement = call::<i8, i8>("aten::bitwise_not.out", isa, &a, None, vec![]).unwrap();
        for i in 0..280 {
            assert_eq!((magnitude[i], complement[i]), (a[i].wrapping_abs(), !a[i]));
        }
    }
}

#[test]
fn doubles_hand_nan_on_and_round_to_even() {
    let edges = [f64::NAN, -0.0, 0.5, 1.5, -2.5, f64::INFINITY, 1e300];
    let a: Vec<f64> = (0..280).map(|i| edges[i % 7]).collect();
    let b: Vec<f64> = (0..280).map(|i| edges[(i / 7) % 7]).collect();
    for isa in Isa::ALL {
        let Some(max) = call::<f64, f64>("aten::maximum.out", isa, &a, Some(&b), vec![]) else {
            continue;
        };
        let round = call::<f64, f64>("aten::round.out", isa, &a, None, vec![]).unwrap();
        let equal = call::<f64, Bool8>("aten::eq.Tensor_out", isa, &a, Some(&b), vec![]).unwrap();
        let angle = call::<f64, f64>("aten::angle.out", isa, &a, None, vec![]).unwrap();
        for i in 0..280 {
            let turn = if a[i] < 0.0 { std::f64::consts::PI } else { 0.0 };
            assert!(if a[i].is_nan() { angle[i].is_nan() } else { angle[i] == turn }, "{}", a[i]);
            let is_nan = a[i].is_nan() || b[i].is_nan();
            assert!(if is_nan { max[i].is_nan() } else { max[i] == a[i].max(b[i]) }, "{} {}", a[i], b[i]);
            assert!(round[i].is_nan() == a[i].is_nan() && equal[i].get() == (a[i] == b[i]));
            if !a[i].is_nan() {
                assert_eq!(round[i].to_bits(), a[i].round_ties_even().to_bits());
            }
        }
    }
}

#[test]
fn clamped_between_either_bound() {
    let a: Vec<f64> = (0..280).map(|i| if i % 9 == 0 { f64::NAN } else { f64::from(i) - 140.0 }).collect();
    let whole: Vec<i16> = (0..280).map(|i| i - 140).collect();
    for isa in Isa::ALL {
        let bounds = || vec![CallArg::double(-3.5), CallArg::int(60)];
        let Some(y) = call::<f64, f64>("aten::clamp.out", isa, &a, None, bounds()) else { continue };
        for (x, y) in a.iter().zip(&y) {
            assert!(if x.is_nan() { y.is_nan() } else { *y == x.clamp(-3.5, 60.0) }, "{x} {y}");
        }
        let y = call::<i16, i16>("aten::clamp.out", isa, &whole, None, vec![CallArg::None, CallArg::int(7)]);
        assert!(y.unwrap().iter().zip(&whole).all(|(y, x)| *y == (*x).min(7)));
        let y = call::<i16, i16>("aten::pow.Tensor_Scalar_out", isa, &whole, None, vec![CallArg::int(2)]);
        assert!(y.unwrap().iter().zip(&whole).all(|(y, x)| *y == x.wrapping_mul(*x)));
    }
}

#[test]
fn numbers_that_the_dtype_cannot_hold_are_left_to_others() {
    let cpu = profile(Isa::Portable).unwrap();
    let taken = |number: CallArg| {
        let tensor = |d| CallArg::Tensor(HostTensor::zeros(d, &[3]).unwrap());
        let args = vec![tensor(DType::UInt8), number, tensor(DType::Bool)];
        SingleCall::new(prepare_of("aten::lt.Scalar_out"), &cpu, args).unwrap().is_some()
    };
    assert!(taken(CallArg::int(255)));
    assert!(!taken(CallArg::int(256)));
    assert!(!taken(CallArg::int(-1)));
    assert!(!taken(CallArg::double(1.0)));
}

/// The rounded divisions of float64 against the plain kernel, which divides one by one.
#[test]
fn remainders_of_doubles_are_exact() {
    let edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        3.0,
        0.1,
        -0.3,
        1e300,
        -1e300,
        5e-324,
        -5e-324,
        1e-310,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        4_503_599_627_370_495.0,
        4_503_599_627_370_496.0,
        9_007_199_254_740_993.0,
        1.0 - f64::EPSILON / 2.0,
        1.0 + f64::EPSILON,
    ];
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state ^ state >> 29
    };
    // All pairs of edges; quotients near integers and at the border of what is easy; bits at random.
    let mut pairs: Vec<[f64; 2]> = edges.iter().flat_map(|a| edges.iter().map(move |b| [*a, *b])).collect();
    pairs.resize(pairs.len().next_multiple_of(280), [1.0, 1.0]);
    for i in 0..280 * 40 {
        let b = f64::from_bits(random() >> 2 & !(0x7ff << 52) | (1023 - i % 40) << 52);
        let n = (random() >> (12 + random() % 51)) as f64;
        let nudge = f64::from_bits((n * b).to_bits().wrapping_add(random() % 5).wrapping_sub(2));
        let sign = |v: f64, is_minus: bool| if is_minus { -v } else { v };
        pairs.push([sign(nudge, i % 2 == 0), sign(b, i % 3 == 0)]);
    }
    pairs.extend((0..280 * 4).map(|_| [f64::from_bits(random()), f64::from_bits(random())]));
    let remainder = |a: f64, b: f64| {
        let rest = a % b;
        if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
    };
    let floor = |a: f64, b: f64| {
        if b == 0.0 {
            return a / b;
        }
        let rest = a % b;
        let quotient = (a - rest) / b;
        let quotient = if rest != 0.0 && (b < 0.0) != (rest < 0.0) { quotient - 1.0 } else { quotient };
        let down = quotient.floor();
        match quotient == 0.0 {
            true => 0f64.copysign(a / b),
            false => {
                if quotient - down > 0.5 {
                    down + 1.0
                } else {
                    down
                }
            }
        }
    };
    let same = |got: f64, want: f64| got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
    for (isa, group) in Isa::ALL.into_iter().flat_map(|isa| pairs.chunks_exact(280).map(move |g| (isa, g))) {
        let (a, b): (Vec<f64>, Vec<f64>) = group.iter().map(|[a, b]| (*a, *b)).unzip();
        let two = |op: &str| call::<f64, f64>(op, isa, &a, Some(&b), vec![]);
        let Some(fmods) = two("aten::fmod.Tensor_out") else { continue };
        let (remainders, floors) =
            (two("aten::remainder.Tensor_out").unwrap(), two("aten::floor_divide.out").unwrap());
        let number = || vec![CallArg::double(b[0])];
        let by_number = |op: &str| call::<f64, f64>(op, isa, &a, None, number()).unwrap();
        let (fmods_0, remainders_0) =
            (by_number("aten::fmod.Scalar_out"), by_number("aten::remainder.Scalar_out"));
        for (i, (a, b)) in a.iter().zip(&b).enumerate() {
            let what = format!("{isa:?} {a:e} {b:e}");
            assert!(same(fmods[i], a % b), "fmod {what}: {:e}", fmods[i]);
            assert!(same(remainders[i], remainder(*a, *b)), "remainder {what}: {:e}", remainders[i]);
            assert!(same(floors[i], floor(*a, *b)), "floor_divide {what}: {:e}", floors[i]);
        }
        for (i, a) in a.iter().enumerate() {
            assert!(
                same(fmods_0[i], a % b[0]) && same(remainders_0[i], remainder(*a, b[0])),
                "{isa:?} {a:e}"
            );
        }
    }
}

#[test]
fn hypotenuses_of_doubles_overflow_only_where_they_must() {
    let edges = [f64::NAN, -0.0, 3.0, -4.0, f64::INFINITY, 1e300, -1e-300, 5e-324, 1e150, 1e-140, f64::MAX];
    // Groups without an edge, and groups of edges.
    let a: Vec<f64> =
        (0..280).map(|i| if i < 128 { f64::from(i) - 60.0 } else { edges[i as usize % 11] }).collect();
    let b: Vec<f64> =
        (0..280).map(|i| if i < 128 { f64::from(i) * 0.37 } else { edges[i as usize / 11 % 11] }).collect();
    for isa in Isa::ALL {
        let Some(got) = call::<f64, f64>("aten::hypot.out", isa, &a, Some(&b), vec![]) else { continue };
        for (i, got) in got.into_iter().enumerate() {
            let want = a[i].hypot(b[i]);
            let is_near = got == want || (got / want - 1.0).abs() <= 2.0 * f64::EPSILON;
            assert!(
                is_near || (got.is_nan() && want.is_nan()),
                "{isa:?} {} {}: {got} for {want}",
                a[i],
                b[i]
            );
        }
    }
}

/// The results of the fast and of the plain kernel of a function of one float64.
fn fast_and_plain(op: &str, isa: Isa, x: &[f64], extra: &[CallArg]) -> Option<[Vec<f64>; 2]> {
    let cpu = profile(isa)?;
    let run = |kernels: Vec<pteron_core::StaticKernel>| {
        kernels.into_iter().filter(|k| k.schema.starts_with(op)).find_map(|kernel| {
            let mut args = vec![CallArg::Tensor(HostTensor::new(&[x.len()], x).unwrap())];
            args.extend(extra.iter().map(|number| match number {
                CallArg::Number(v) => CallArg::Number(*v),
                CallArg::String(v) => CallArg::String(v.clone()),
                _ => CallArg::None,
            }));
            args.push(CallArg::Tensor(HostTensor::zeros(DType::Float64, &[x.len()]).unwrap()));
            let out = args.len() - 1;
            let mut call = SingleCall::new(kernel.prepare, &cpu, args).unwrap()?;
            call.call().unwrap();
            Some(call.output::<f64>(out).unwrap())
        })
    };
    let fast = crate::fast_kernels().filter(|k| k.variant.starts_with("vectorised")).collect();
    Some([run(fast).expect("a fast kernel"), run(crate::plain_kernels().collect()).expect("a plain kernel")])
}

#[test]
fn functions_of_doubles_are_near_the_plain_ones() {
    let edges =
        [f64::NAN, f64::INFINITY, 0.0, 5e-324, 1e-310, 1e-20, 1.0, 0.25, 0.75, 20.0, 21.0, 300.0, 1e200];
    let mut x: Vec<f64> = edges.into_iter().flat_map(|x| [x, -x]).collect();
    x.extend((0..401).map(|i| f64::from(i - 200) * 0.173));
    x.extend((0..201).map(|i| f64::from(i - 100) * 0.0099));
    let three = |a, b, c| vec![CallArg::double(a), CallArg::double(b), CallArg::double(c)];
    let one = |v: f64| vec![CallArg::double(v)];
    let cases = [
        ("aten::elu.out", three(1.0, 1.0, 1.0)),
        ("aten::elu.out", three(1.7, 1.05, 0.5)),
        ("aten::softplus.out", vec![CallArg::double(1.0), CallArg::double(20.0)]),
        ("aten::softplus.out", vec![CallArg::double(-0.5), CallArg::double(3.0)]),
        ("aten::mish.out", vec![]),
        ("aten::gelu.out", vec![CallArg::String("none".into())]),
        ("aten::gelu.out", vec![CallArg::String("tanh".into())]),
        ("aten::logit.out", vec![CallArg::None]),
        ("aten::logit.out", one(0.1)),
        ("aten::logit.out", one(0.8)),
        ("aten::logit.out", one(-1.0)),
        ("aten::erfc.out", vec![]),
        ("aten::erf.out", vec![]),
        ("aten::erfinv.out", vec![]),
        ("aten::sinh.out", vec![]),
        ("aten::log2.out", vec![]),
    ];
    for (isa, (op, extra)) in Isa::ALL.into_iter().flat_map(|isa| cases.iter().map(move |case| (isa, case))) {
        let Some([fast, plain]) = fast_and_plain(op, isa, &x, extra) else { continue };
        for ((x, got), want) in x.iter().zip(fast).zip(plain) {
            let is_near = (got - want).abs() <= 8.0 * f64::EPSILON * want.abs() + 1e-320;
            let is_right = (got.is_nan() && want.is_nan())
                || got.to_bits() == want.to_bits()
                || (is_near && got.signum() == want.signum());
            assert!(is_right, "{isa:?} {op} of {x:e}: {got:e} for {want:e}");
        }
    }
}

/// Large angles are left to the standard library; what lies beside them stays what it is alone.
#[test]
fn large_angles_do_not_change_their_neighbours() {
    let small: Vec<f64> = (0..200).map(|i| f64::from(i - 100) * 15_999.7).collect();
    let large = [1e300, f64::INFINITY, -f64::MAX, 1_600_000.0, -1e7, f64::NAN];
    let mixed: Vec<f64> =
        small.iter().enumerate().map(|(i, x)| if i % 31 == 7 { large[i % 6] } else { *x }).collect();
    for (isa, op) in Isa::ALL
        .into_iter()
        .flat_map(|isa| ["aten::sin.out", "aten::cos.out", "aten::tan.out"].map(move |op| (isa, op)))
    {
        let Some([alone, _]) = fast_and_plain(op, isa, &small, &[]) else { continue };
        let [beside, plain] = fast_and_plain(op, isa, &mixed, &[]).unwrap();
        for i in 0..200 {
            let want = if i % 31 == 7 { plain[i] } else { alone[i] };
            let is_same = beside[i].to_bits() == want.to_bits() || (beside[i].is_nan() && want.is_nan());
            assert!(is_same, "{isa:?} {op} of {:e}: {:e} for {want:e}", mixed[i], beside[i]);
            let is_near = (beside[i] - plain[i]).abs() <= 4.0 * f64::EPSILON * plain[i].abs();
            assert!(is_near || plain[i].is_nan(), "{isa:?} {op} of {:e}", mixed[i]);
        }
    }
}
