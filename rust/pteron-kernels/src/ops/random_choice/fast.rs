//! Random orders by typed slices, and choices with replacement by search in running sums: the numbers that the plain kernels
//! give. Other dtypes, and choices without replacement, are left to these.

use super::{bind_choice, bind_order, total};
use crate::chunked::random_in_ranges;
use crate::compute::{BLOCK, Convert};
use crate::draws::{self, Draws, blocks};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::grid_kernel::take_scratch;
use crate::routine::{Preparation, dtype_of};
use crate::vector_math::SimdLevel;
use pteron_core::{ArgSpec, Args, DType, Element, Error, PrepareContext, RandomDraws, Result};
use std::ops::Range;

fn order<T: Element + Convert>(level: SimdLevel, source: RandomDraws, args: &Args<'_>) -> Result<()> {
    let out = args.output(1)?.into_slice::<T>()?;
    for (i, slot) in out.iter_mut().enumerate() {
        *slot = T::from_i64(i as i64);
    }
    let (n, mut words) = (out.len(), [0u64; BLOCK]);
    for at in (0..n).step_by(BLOCK) {
        let words = &mut words[..(n - at).min(BLOCK)];
        blocks::fill(level, source, at as u64, blocks::Bits, words);
        for (i, word) in words.iter().enumerate() {
            let place = at + i;
            // Fisher and Yates: the place takes one of the numbers that are not placed yet.
            out.swap(place, place + draws::below(*word, (n - place) as u64) as usize);
        }
    }
    Ok(())
}

fn order_of<T: Element + Convert>(ctx: &PrepareContext<'_>, most: i64) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    random_in_ranges(
        format!("randperm.{}", T::DTYPE.name()),
        0,
        move |args, source: &mut RandomDraws| {
            bind_order(args, source, most)?;
            let n = args.args().tensor(1)?.numel();
            // One chunk: every step depends on the one before.
            Ok(Split::new(1, 1, n.saturating_mul(4)))
        },
        move |source, args, _, _| order::<T>(level, *source, args),
    )
}

/// randperm.
pub(super) fn randperm(ctx: &PrepareContext<'_>) -> Preparation {
    let dtype = dtype_of(ctx, 1)?;
    let most = super::most(dtype)?;
    match dtype {
        DType::Int64 => order_of::<i64>(ctx, most),
        DType::Int32 => order_of::<i32>(ctx, most),
        DType::Float32 => order_of::<f32>(ctx, most),
        DType::Float64 => order_of::<f64>(ctx, most),
        _ => ctx.decline("takes int32, int64, float32 and float64"),
    }
}

/// Rows whose sums are taken at once: a sum waits for the one before.
const ROWS: usize = 4;

/// Turns `ROWS` rows of weights, one behind the other, into their running sums. Are all weights finite and 0 or more, and
/// no row's sum zero?
fn running_sums(rows: &mut [f64], choices: usize) -> bool {
    let mut is_right = rows.iter().fold(true, |all, w| all & (*w >= 0.0 && *w < f64::INFINITY));
    let mut parts = rows.chunks_exact_mut(choices.max(1));
    while let Some(first) = parts.next() {
        let mut sums = [0.0; ROWS];
        if let (Some(b), Some(c), Some(d)) = (parts.next(), parts.next(), parts.next()) {
            for (((a, b), c), d) in first.iter_mut().zip(b).zip(c).zip(d) {
                for (sum, w) in sums.iter_mut().zip([a, b, c, d]) {
                    *sum += *w;
                    *w = *sum;
                }
            }
        }
        is_right &= sums.iter().all(|sum| *sum > 0.0);
    }
    is_right
}

/// What rows `units` choose.
fn choose(source: RandomDraws, args: &Args<'_>, units: Range<usize>, memory: &mut [u8]) -> Result<()> {
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let meta = x.meta();
    let last = meta.rank().checked_sub(1).ok_or_else(|| Error::internal("weights without a dimension"))?;
    let (choices, step) = (meta.shape()[last], meta.strides()[last] as isize);
    let apart = if last > 0 { meta.strides()[0] as isize } else { 0 };
    let mut out = Writer::<i64>::new(args.output(4)?)?;
    let (samples, out_step) = (out.meta().shape()[last], out.meta().strides()[last]);
    let out_apart = if last > 0 { out.meta().strides()[0] } else { 0 };
    let too_many = || Error::internal("a row has too many weights");
    let sums = take_scratch::<f64>(&mut &mut *memory, choices.checked_mul(ROWS).ok_or_else(too_many)?)?;
    let mut draws = Draws::new(source);
    for first in units.clone().step_by(ROWS) {
        for (i, row) in sums.chunks_exact_mut(choices).enumerate() {
            // Behind the last row it is taken again.
            let at = (first + i).min(units.end - 1);
            x.read(at as isize * apart, step, row)?;
        }
        let is_right = running_sums(sums, choices);
        for (row, sums) in (first..units.end).zip(sums.chunks_exact(choices)) {
            let weight = |i: usize| x.get((row as isize * apart + i as isize * step) as usize);
            if !is_right {
                total((0..choices).map(weight))?;
            }
            let sum = sums.last().copied().unwrap_or_default();
            for sample in 0..samples {
                let share = sum * draws.uniform((row * samples + sample) as u64, 53);
                // A sum that overflows leaves no number as a share, which is below nothing.
                let mut chosen = sums.partition_point(|s| share.is_nan() || share >= *s);
                if chosen == choices {
                    // Rounding leaves the share above every sum: the last positive weight.
                    chosen = choices - 1;
                    while chosen > 0 && weight(chosen)? <= 0.0 {
                        chosen -= 1;
                    }
                }
                out.put(row * out_apart + sample * out_step, chosen as i64)?;
            }
        }
    }
    Ok(())
}

/// multinomial with replacement.
pub(super) fn multinomial(ctx: &PrepareContext<'_>) -> Preparation {
    let is_taken = dtype_of(ctx, 0)?.is_float()
        && dtype_of(ctx, 4)? == DType::Int64
        && matches!(ctx.args.get(2), Some(ArgSpec::Bool(Some(true))));
    if !is_taken {
        return ctx.decline("takes choices with replacement from floats");
    }
    let choices = match ctx.tensor(0).map(|t| &t.shape[..]) {
        Some([n] | [_, n]) => *n,
        _ => return ctx.decline("takes weights of a vector or of the rows of a matrix"),
    };
    let too_many = || Error::limit("a row has too many weights").got(choices.to_string());
    let bytes = choices.checked_mul(ROWS * size_of::<f64>()).ok_or_else(too_many)?;
    random_in_ranges(
        "multinomial.with_replacement",
        bytes,
        |args, source: &mut RandomDraws| {
            bind_choice(args, source)?;
            let shape = *args.args().tensor(0)?.shape();
            let (choices, rows) = shape.split_last().map_or((1, 1), |(n, rows)| (*n, rows.iter().product()));
            // A multiple of the rows that are taken at once, and a fixed one: chunks must not depend on threads.
            let per_chunk = ((16 << 10) / choices.max(1)).next_multiple_of(ROWS).max(ROWS);
            Ok(Split::new(rows, per_chunk, per_chunk.min(rows).saturating_mul(choices).saturating_mul(2)))
        },
        |source, args, units, memory| choose(*source, args, units, memory),
    )
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::{DType, DimOrder, Isa, Result};

    fn order(variant: &str, dtype: DType, n: usize, isa: Isa) -> Option<Vec<u8>> {
        let out = CallArg::Tensor(HostTensor::zeros(dtype, &[n]).unwrap());
        let args = vec![CallArg::int(n as i64), out];
        let cpu = profile(isa)?;
        let mut call = SingleCall::new(prepare_of("aten::randperm.out", variant), &cpu, args).unwrap()?;
        call.call().unwrap();
        Some(call.output_bytes(1).unwrap().to_vec())
    }

    #[test]
    fn orders_are_those_of_the_plain_kernel() {
        for n in [0, 1, 2, 255, 256, 700] {
            for dtype in [DType::Int64, DType::Int32, DType::Float32, DType::Float64] {
                let want = order("reference", dtype, n, Isa::Portable);
                for isa in Isa::ALL.into_iter().filter(|isa| profile(*isa).is_some()) {
                    assert_eq!(order("slices", dtype, n, isa), want, "{n} {dtype:?} {isa:?}");
                }
            }
        }
        assert_eq!(order("slices", DType::Int16, 4, Isa::Portable), None);
    }

    fn choice(variant: &str, weights: HostTensor, shape: &[usize]) -> Result<Vec<i64>> {
        let samples = CallArg::int(shape[shape.len() - 1] as i64);
        let out = CallArg::Tensor(HostTensor::zeros(DType::Int64, shape)?);
        let args = vec![CallArg::Tensor(weights), samples, CallArg::bool(true), CallArg::None, out];
        let cpu = profile(Isa::Portable).expect("every processor");
        let mut call =
            SingleCall::new(prepare_of("aten::multinomial.out", variant), &cpu, args)?.expect("taken");
        call.call()?;
        call.output(4)
    }

    #[test]
    fn choices_are_those_of_the_plain_kernel() {
        for (rows, choices) in [(1, 1), (3, 5), (4, 64), (9, 17)] {
            let weights: Vec<f32> = numbers(rows * choices, 5).iter().map(|w| w.max(0.0)).collect();
            let weights: Vec<f32> = (0..rows * choices)
                .map(|i| if i % choices == choices / 2 { 1.0 } else { weights[i] })
                .collect();
            let of = |variant, order: &[u8]| {
                let x =
                    HostTensor::in_order(&[rows, choices], DimOrder::new(order).unwrap(), &weights).unwrap();
                choice(variant, x, &[rows, 30]).unwrap()
            };
            for dims in [[0, 1], [1, 0]] {
                let order = DimOrder::new(&dims).unwrap();
                if order.is_contiguous() || rows == 1 {
                    assert_eq!(of("sums", &dims), of("reference", &dims), "{rows} {choices}");
                }
            }
            let row = || HostTensor::new(&[choices], &weights[..choices]).unwrap();
            let [found, want] = ["sums", "reference"].map(|v| choice(v, row(), &[40]).unwrap());
            assert_eq!(found, want);
        }
        // The last weight changes no sum.
        let tiny = || HostTensor::new(&[3], &[1.0, 1e-300, 0.0]).unwrap();
        assert!(choice("sums", tiny(), &[50]).unwrap().iter().all(|c| *c == 0));
    }

    #[test]
    fn rows_without_a_distribution_are_errors() {
        for bad in [[1.0, -1.0], [0.0, 0.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
            let weights: Vec<f64> = [[1.0, 1.0]; 5].into_iter().chain([bad]).flatten().collect();
            let x = || HostTensor::new(&[6, 2], &weights).unwrap();
            let [found, want] =
                ["sums", "reference"].map(|v| choice(v, x(), &[6, 3]).unwrap_err().to_string());
            assert_eq!(found, want);
        }
    }
}
