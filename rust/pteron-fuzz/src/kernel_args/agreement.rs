//! Do two kernels of one operator say the same?

use super::call::{Outcome, Output};
use super::contents::{number, part_size};
use crate::oracles::first_far;
use pteron_core::{DType, ErrorKind};

/// Operators that draw random numbers.
const RANDOM: [&str; 9] = [
    "rand",
    "bernoulli",
    "dropout",
    "normal",
    "uniform",
    "poisson",
    "exponential",
    "multinomial",
    "binomial",
];

/// Panics where `fast` and `reference` disagree. Numbers are compared if all inputs were small whole numbers.
pub fn check_agreement(operator: &str, variant: &str, fast: &Outcome, reference: &Outcome, is_exact: bool) {
    let (fast, reference) = match (fast, reference) {
        (Outcome::Done(fast), Outcome::Done(reference)) => (fast, reference),
        // Complex numbers have kernels of their own.
        (Outcome::Done(_), Outcome::Refused { .. }) if variant.starts_with("complex") => return,
        (Outcome::Done(_), Outcome::Refused { error, .. }) => {
            panic!("{variant} computes what the reference kernel refuses: {error}")
        }
        (Outcome::Refused { error, .. }, Outcome::Done(_)) if error.kind() != ErrorKind::LimitExceeded => {
            panic!("{variant} refuses what the reference kernel computes: {error}")
        }
        _ => return,
    };
    assert_eq!(fast.len(), reference.len(), "{variant} has other outputs");
    for (at, (f, r)) in fast.iter().zip(reference).enumerate() {
        let (Output::Tensor(dtype, shape, f), Output::Tensor(_, expected, r)) = (f, r) else { continue };
        assert_eq!(shape, expected, "{variant} gives output {at} another shape than the reference kernel");
        if is_exact && !RANDOM.iter().any(|name| operator.contains(name)) {
            check_numbers(variant, at, *dtype, f, r);
        }
    }
}

fn check_numbers(variant: &str, output: usize, dtype: DType, fast: &[u8], reference: &[u8]) {
    if fast == reference {
        return;
    }
    let size = part_size(dtype);
    let numbers =
        |bytes: &[u8]| -> Option<Vec<f64>> { bytes.chunks_exact(size).map(|e| number(dtype, e)).collect() };
    let (Some(f), Some(r)) = (numbers(fast), numbers(reference)) else {
        panic!("{variant}: output {output} of {dtype} is {fast:?}, the reference kernel's {reference:?}")
    };
    let tolerance = match dtype {
        DType::Float64 | DType::Complex128 => 1e-10,
        DType::Float32 | DType::Complex64 => 1e-4,
        DType::Float16 | DType::Complex32 => 4e-3,
        _ => 3e-2,
    };
    if let Some(at) = first_far(&r, &f, tolerance) {
        panic!("{variant}: element {at} of output {output} is {}, the reference kernel's {}", f[at], r[at]);
    }
}
