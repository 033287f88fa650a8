//! Fast pools of every float on every instruction set and in both memory orders, as the plain kernels have them.

use crate::elementwise::columns::Columns;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use half::{bf16, f16};
use pteron_core::{DType, DimOrder, Isa};

/// The floats of a dtype: how they are made, and the relative error of one of them.
trait Float: Columns {
    const ERROR: f64;
    fn of(v: f32) -> Self;
    fn number(self) -> f64;
}

macro_rules! float {
    ($($t:ty, $error:expr, |$v:ident| $of:expr;)*) => { $(
        impl Float for $t {
            const ERROR: f64 = $error;
            fn of($v: f32) -> Self {
                $of
            }
            fn number(self) -> f64 {
                self.into()
            }
        }
    )* };
}
float! {
    f32, 1e-6, |v| v;
    f64, 1e-14, |v| f64::from(v);
    f16, 1e-3, |v| f16::from_f32(v);
    bf16, 8e-3, |v| bf16::from_f32(v);
}

/// What a call of two spatial dimensions gives: values, and places if there are any.
fn call<T: Float>(
    (operator, variant): (&str, &str),
    isa: Isa,
    order: DimOrder,
    (shape, x): (&[usize], &[T]),
    more: &[Vec<i64>],
    flags: Vec<CallArg>,
    out: [usize; 2],
) -> Option<(Vec<f64>, Vec<i64>)> {
    let result = |dtype| {
        let shape = [shape[0], shape[1], out[0], out[1]];
        CallArg::Tensor(HostTensor::zeros_in_order(dtype, &shape, order).unwrap())
    };
    let mut args = vec![CallArg::Tensor(HostTensor::in_order(shape, order, x).unwrap())];
    args.extend(more.iter().map(|list| CallArg::Ints(list.clone())));
    args.extend(flags);
    let (at, has_places) = (args.len(), operator.contains("max"));
    args.push(result(T::DTYPE));
    if has_places {
        args.push(result(DType::Int64));
    }
    let mut call = SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
    let grid = call.bind().unwrap();
    call.run(grid, true).unwrap();
    let values = call.output::<T>(at).unwrap().iter().map(|v| v.number()).collect();
    let places = if has_places { call.output::<i64>(at + 1).unwrap() } else { vec![] };
    Some((values, places))
}

/// Compares the fast kernel with the plain one. `flags` makes those behind the lists.
fn compare<T: Float>(
    operator: &str,
    shape: &[usize],
    more: &[Vec<i64>],
    flags: fn() -> Vec<CallArg>,
    out: [usize; 2],
) {
    let mut x: Vec<T> = numbers(shape.iter().product(), 7).iter().map(|v| T::of(*v)).collect();
    // Equal neighbours, infinities, both zeros, NaN that are near each other.
    let edges = [0.0, -0.0, 0.0, f32::INFINITY, 1.0, f32::NAN, 2.0, -f32::NAN, f32::NEG_INFINITY];
    let n = x.len();
    if n > 100 {
        for (i, v) in edges.into_iter().enumerate() {
            (x[i], x[40 + 5 * i]) = (T::of(v), T::of(v));
        }
        x[n - 60..].fill(T::of(f32::NEG_INFINITY));
    }
    for order in [[0, 1, 2, 3], [0, 2, 3, 1]].map(|o| DimOrder::new(&o).unwrap()) {
        let run = |variant, isa| call((operator, variant), isa, order, (shape, &x), more, flags(), out);
        let (want, want_places) = run("reference", Isa::Portable).unwrap();
        for isa in Isa::ALL {
            let Some((got, places)) = run("float", isa) else { continue };
            let what = format!("{operator} {} {isa:?} {shape:?} {more:?} {order:?}", T::DTYPE);
            assert_eq!(places, want_places, "{what}");
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let is_right = match want_places.is_empty() {
                    true => got == want || (got - want).abs() <= T::ERROR * want.abs().max(1.0),
                    false => got.to_bits() == want.to_bits(),
                };
                assert!(is_right || (got.is_nan() && want.is_nan()), "{what} {i}: {got} {want}");
            }
        }
    }
}

fn adaptive<T: Float>() {
    for (shape, out) in [
        ([2, 3, 7, 7], [1, 1]),
        ([1, 3, 10, 70], [3, 2]),
        ([1, 35, 5, 6], [7, 4]),
        ([0, 2, 3, 3], [2, 2]),
        ([1, 2, 3, 3], [0, 2]),
    ] {
        let size = vec![out.map(|v| v as i64).to_vec()];
        compare::<T>("aten::_adaptive_avg_pool2d.out", &shape, &size, Vec::new, out);
        compare::<T>("aten::adaptive_max_pool2d.out", &shape, &size, Vec::new, out);
    }
}

#[test]
fn adaptive_windows_of_every_float() {
    adaptive::<f32>();
    adaptive::<f64>();
    adaptive::<f16>();
    adaptive::<bf16>();
}

fn fixed<T: Float>() {
    let list = |v: i64| vec![v; 2];
    for (shape, [kernel, stride, padding], out) in [
        ([1, 3, 12, 40], [3, 2, 1], [6, 20]),
        ([2, 35, 7, 7], [2, 2, 0], [3, 3]),
        ([1, 2, 20, 37], [3, 1, 0], [18, 35]),
        ([1, 2, 11, 70], [3, 3, 1], [4, 24]),
        ([0, 3, 4, 4], [2, 2, 0], [2, 2]),
    ] {
        let more = [list(kernel), list(stride), list(padding)];
        let mean = "aten::avg_pool2d.out";
        compare::<T>(
            mean,
            &shape,
            &more,
            || vec![CallArg::bool(false), CallArg::bool(true), CallArg::None],
            out,
        );
        compare::<T>(
            mean,
            &shape,
            &more,
            || vec![CallArg::bool(false), CallArg::bool(false), CallArg::int(-5)],
            out,
        );
        compare::<T>(
            mean,
            &shape,
            &more,
            || vec![CallArg::bool(false), CallArg::bool(false), CallArg::None],
            out,
        );
        let more = [list(kernel), list(stride), list(padding), list(1)];
        compare::<T>("aten::max_pool2d_with_indices.out", &shape, &more, || vec![CallArg::bool(false)], out);
    }
    let more = [list(3), list(2), list(1), list(2)];
    compare::<T>(
        "aten::max_pool2d_with_indices.out",
        &[1, 3, 12, 40],
        &more,
        || vec![CallArg::bool(false)],
        [5, 19],
    );
}

#[test]
fn fixed_windows_of_every_float() {
    fixed::<f32>();
    fixed::<f64>();
    fixed::<f16>();
    fixed::<bf16>();
}
