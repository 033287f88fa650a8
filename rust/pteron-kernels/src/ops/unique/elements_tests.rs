//! Distinct elements against the plain kernel.

use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::{numbers, prepare_of};
use pteron_core::{DType, Element, Isa, Result};

/// What `variant` finds with all outputs, or without places and counts: bytes and shapes.
fn found<T: Element>(
    variant: &str,
    is_sorted: bool,
    x: &[T],
    has_more: bool,
    room: usize,
) -> Result<Vec<(Vec<u8>, usize)>> {
    let tensor = |dtype, shape: &[usize]| {
        Ok::<_, pteron_core::Error>(CallArg::Tensor(HostTensor::zeros(dtype, shape)?))
    };
    let flag = || CallArg::bool(has_more);
    // Two dimensions, where that is possible.
    let shape = if x.len().is_multiple_of(2) { vec![2, x.len() / 2] } else { vec![x.len()] };
    let mut args = vec![CallArg::Tensor(HostTensor::new(&shape, x)?)];
    let operator = if is_sorted { "aten::_unique2.out" } else { "aten::unique_consecutive.out" };
    if is_sorted {
        args.extend([CallArg::bool(true), flag(), flag()]);
    } else {
        args.extend([flag(), flag(), CallArg::None]);
    }
    let places = if has_more { shape } else { vec![0] };
    args.extend([tensor(T::DTYPE, &[room])?, tensor(DType::Int64, &places)?]);
    args.push(tensor(DType::Int64, &[if has_more { room } else { 0 }])?);
    let cpu = profile(Isa::Portable).expect("every processor");
    let mut call = SingleCall::new(prepare_of(operator, variant), &cpu, args)?.expect("taken");
    call.call()?;
    (4..7).map(|i| Ok((call.output_bytes(i)?.to_vec(), call.shape(i)?.numel()?))).collect()
}

fn check<T: Element>(x: &[T]) {
    for is_sorted in [false, true] {
        for has_more in [false, true] {
            let of = |variant| found(variant, is_sorted, x, has_more, x.len()).unwrap();
            assert_eq!(of("elements"), of("reference"), "{:?} {is_sorted} {has_more} {}", T::DTYPE, x.len());
        }
    }
}

#[test]
fn as_the_plain_kernel_for_every_dtype() {
    let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-300, 5.0];
    for n in [0usize, 1, 2, 3, 16, 63, 300] {
        // Neighbours are often equal, and few numbers come often.
        let whole: Vec<i64> = numbers(n, 3).iter().map(|v| (*v * 1.5) as i64).collect();
        let runs: Vec<i64> = (0..n).map(|i| whole[i / 3]).collect();
        for x in [&whole, &runs] {
            check(x);
            check(&x.iter().map(|v| *v as u8).collect::<Vec<_>>());
            check(&x.iter().map(|v| *v as i8).collect::<Vec<_>>());
            check(&x.iter().map(|v| *v as i16 * 300).collect::<Vec<_>>());
            check(&x.iter().map(|v| *v as i32 * 100_000_000).collect::<Vec<_>>());
            check(&x.iter().map(|v| v.wrapping_mul(1 << 60)).collect::<Vec<_>>());
            let floats: Vec<f64> = x.iter().map(|v| special[v.rem_euclid(8) as usize]).collect();
            check(&floats);
            check(&floats.iter().map(|v| *v as f32).collect::<Vec<_>>());
        }
    }
}

#[test]
fn more_groups_than_room_are_an_error() {
    for is_sorted in [false, true] {
        let few = |room| found("elements", is_sorted, &[1i32, 1, 2, 2, 3, 3], true, room);
        assert_eq!(few(3).unwrap()[0].1, 3);
        assert!(few(2).unwrap_err().to_string().contains("room"));
    }
}
