//! bincount of integers without weights, or with those of float32 or float64. A pass finds out whether all numbers are bins
//! of the output; then they count without an error for each. One after the other: sums of weights have an order.

use super::{bind_counts, for_each_count};
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::ops::data_dependent::no_room;
use crate::routine::{Finding, Preparation};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Element, Error, PrepareContext, Result};
use std::ops::AddAssign;

/// Where the output stands.
const OUT: usize = 3;

/// An integer that is counted.
trait Whole: Element + Ord + Into<i64> {}
impl<T: Element + Ord + Into<i64>> Whole for T {}

/// What a bin adds up.
trait Weight: Element + AddAssign {
    const ONE: Self;
}
impl Weight for i64 {
    const ONE: i64 = 1;
}
impl Weight for f32 {
    const ONE: f32 = 1.0;
}
impl Weight for f64 {
    const ONE: f64 = 1.0;
}

/// The smallest and the largest number, if there is one.
struct Extremes<'a, T>(&'a [T]);

impl<T: Whole> SimdTask for Extremes<'_, T> {
    type Output = Option<(T, T)>;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Option<(T, T)> {
        let (mut low, mut high) = (*self.0.first()?, *self.0.first()?);
        for v in self.0 {
            low = if *v < low { *v } else { low };
            high = if *v > high { *v } else { high };
        }
        Some((low, high))
    }
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Int64) => weighted::<i64>(ctx),
        Some(DType::Int32) => weighted::<i32>(ctx),
        Some(DType::Int16) => weighted::<i16>(ctx),
        Some(DType::Int8) => weighted::<i8>(ctx),
        Some(DType::UInt8) => weighted::<u8>(ctx),
        _ => ctx.decline("takes integers"),
    }
}

fn weighted<T: Whole>(ctx: &PrepareContext<'_>) -> Preparation {
    match (ctx.tensor(1).map(|t| t.dtype), ctx.tensor(OUT).map(|t| t.dtype)) {
        (None, Some(DType::Int64)) => of::<T, i64>(ctx),
        (Some(DType::Float32), Some(DType::Float32)) => of::<T, f32>(ctx),
        (Some(DType::Float64), Some(DType::Float64)) => of::<T, f64>(ctx),
        _ => ctx.decline("takes weights of float32 or float64, and sums of their dtype"),
    }
}

fn of<T: Whole, W: Weight>(ctx: &PrepareContext<'_>) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Finding::named(
        format!("bincount.{}.{}", T::DTYPE.name(), level.isa().name()),
        0,
        Box::new(|args: &mut BindArgs<'_>, found| match found {
            None => bind_counts(args),
            Some(length) => args.resize(OUT, &[length]),
        }),
        Box::new(move |args, _| count::<T, W>(level, args)),
    )
}

/// Counts, and says how many bins there are.
fn count<T: Whole, W: Weight>(level: SimdLevel, args: &Args<'_>) -> Result<usize> {
    let most = args.output(OUT)?.numel();
    let least = args.int(2)?;
    let x = ChunkOf::<T>::of(args.tensor(0)?, true)?.as_slice()?;
    let (low, high) = match level.dispatch_narrow(Extremes(x)) {
        Some((low, high)) => (low.into(), high.into()),
        None => (0, -1),
    };
    if least > most as i64 {
        return Err(no_room(most));
    }
    if low < 0 || high >= most as i64 {
        // The first number that is no bin says what is wrong.
        for_each_count(args, 0, |_, v| if v >= most as i64 { Err(no_room(most)) } else { Ok(()) })?;
        return Err(Error::internal("a number that is no bin was not found again"));
    }
    let length = high.saturating_add(1).max(least) as usize;
    let bins = ChunkOfMut::<W>::of(args.output(OUT)?, 0..length, true)?.into_slice()?;
    bins.fill(W::zeroed());
    match args.optional_tensor(1)? {
        Some(weights) => {
            let weights = ChunkOf::<W>::of(weights, true)?.as_slice()?;
            add(x.iter().zip(weights.iter().copied()), bins);
        }
        None => add(x.iter().zip(std::iter::repeat(W::ONE)), bins),
    }
    Ok(length)
}

#[inline(always)]
fn add<'a, T: Whole, W: Weight>(weighted: impl Iterator<Item = (&'a T, W)>, bins: &mut [W]) {
    for (v, weight) in weighted {
        let v: i64 = (*v).into();
        // All are inside: the extremes are.
        if let Some(bin) = bins.get_mut(v as usize) {
            *bin += weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::prepare_of;
    use pteron_core::Isa;

    /// Bins of all numbers, in an output with room for `room`.
    fn call<T: Element, W: Element>(
        variant: &str,
        isa: Isa,
        x: &[T],
        weights: Option<&[W]>,
        (least, room): (i64, usize),
    ) -> Option<Result<Vec<W>>> {
        let weights = weights.map(|w| CallArg::Tensor(HostTensor::new(&[w.len()], w).unwrap()));
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[x.len()], x).unwrap()),
            weights.unwrap_or(CallArg::None),
            CallArg::int(least),
            CallArg::Tensor(HostTensor::zeros(W::DTYPE, &[room]).unwrap()),
        ];
        let prepare = prepare_of("aten::bincount.out", variant);
        let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap().unwrap();
        Some(call.call().and_then(|()| call.output::<W>(OUT)))
    }

    fn check<T: Element, W: Element + PartialEq + std::fmt::Debug>(
        of: impl Fn(i64) -> T,
        weight: Option<fn(usize) -> W>,
    ) {
        for numbers in [vec![], vec![0], vec![7, 3, 3, 0, 99, 7], (0..300).map(|i| i * i % 101).collect()] {
            let x: Vec<T> = numbers.iter().map(|v| of(*v)).collect();
            let weights: Option<Vec<W>> = weight.map(|weight| (0..x.len()).map(weight).collect());
            for (least, room) in [(0, 120), (110, 120), (0, 100), (0, 8), (121, 120)] {
                let want =
                    call::<T, W>("reference", Isa::Portable, &x, weights.as_deref(), (least, room)).unwrap();
                for isa in Isa::ALL {
                    let Some(got) = call::<T, W>("bins", isa, &x, weights.as_deref(), (least, room)) else {
                        continue;
                    };
                    match (got, &want) {
                        (Ok(got), Ok(want)) => assert_eq!(&got, want, "{isa:?} {} {least}", T::DTYPE),
                        (Err(got), Err(want)) => assert_eq!(got.to_string(), want.to_string()),
                        (got, want) => panic!("{isa:?} {least} {room}: {got:?} instead of {want:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn counts_and_sums_are_those_of_the_plain_kernel() {
        check::<i64, i64>(|v| v, None);
        check::<i32, f32>(|v| v as i32, Some(|i| 0.1 + i as f32 * 1.3));
        check::<i16, f64>(|v| v as i16, Some(|i| 0.1 - i as f64 * 1.3));
        check::<i8, i64>(|v| v as i8, None);
        check::<u8, i64>(|v| v as u8, None);
    }

    #[test]
    fn the_first_number_that_is_no_bin_is_named() {
        for (x, text) in [(vec![1i64, 2, -5, 90], "-5 at position 2"), (vec![1, i64::MAX, -5], "at most 9")] {
            for isa in Isa::ALL {
                let Some(got) = call::<i64, i64>("bins", isa, &x, None, (0, 9)) else { continue };
                let got = got.unwrap_err().to_string();
                assert!(got.contains(text), "{isa:?}: {got}");
            }
        }
    }
}
