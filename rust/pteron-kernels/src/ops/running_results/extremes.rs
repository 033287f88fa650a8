//! Running extremes and their positions: cummax, cummin.

use super::lines::Lines;
use crate::chunked::in_ranges;
use crate::compute::{BLOCK, Class, Compute};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::ops::layout::same_dtype;
use crate::routine::{Preparation, dtype_of};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

pub(super) fn prepare<const LARGEST: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    if dtype_of(ctx, 3)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices").got(dtype_of(ctx, 3)?.name()));
    }
    match Class::required(dtype_of(ctx, 0)?)? {
        Class::I64 => prepare_in::<i64, LARGEST>(),
        _ => prepare_in::<f64, LARGEST>(),
    }
}

fn prepare_in<C: Compute, const LARGEST: bool>() -> Preparation {
    in_ranges(
        0,
        |args, extremes: &mut Extremes| extremes.bind(args),
        |extremes, args, range, _| extremes.scan::<C, LARGEST>(args, range),
    )
}

/// Operands input, values, positions.
#[derive(Default)]
struct Extremes {
    lines: Lines<3>,
}

/// An extreme so far, and where it is. Of equal ones the last; from the first NaN on the last NaN.
#[inline(always)]
fn step<C: Compute, const LARGEST: bool>(old: (C, i64), v: C, at: i64) -> (C, i64) {
    let is_behind = if LARGEST { v < old.0 } else { v > old.0 };
    let keeps = !v.is_nan() & (old.0.is_nan() | is_behind);
    (if keeps { old.0 } else { v }, if keeps { old.1 } else { at })
}

impl Extremes {
    fn bind(&mut self, args: &mut BindArgs<'_>) -> Result<Split> {
        super::bind::<2, 3>(args)?;
        let view = args.args();
        let outputs = [view.output(2)?.strides(), view.output(3)?.strides()];
        self.lines = Lines::of(&view, [view.tensor(0)?.strides(), outputs[0], outputs[1]])?;
        Ok(self.lines.split(2))
    }

    /// Lines whose elements lie closer together than the lines do go one by one, others all at once.
    fn scan<C: Compute, const LARGEST: bool>(&self, args: &Args<'_>, range: Range<usize>) -> Result<()> {
        let x = Reader::<C>::new(args.tensor(0)?)?;
        let (mut values, mut positions) =
            (Writer::<C>::new(args.output(2)?)?, Writer::<i64>::new(args.output(3)?)?);
        let Lines { starts, length, strides } = &self.lines;
        let (beside, is_along) = (self.lines.beside(), self.lines.is_along());
        let (mut buffer, mut best, mut places) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK], [0i64; BLOCK]);
        starts.each_run(range.start, range.len(), |_, base, count| {
            if !is_along {
                for first in (0..count).step_by(BLOCK) {
                    let lines = (count - first).min(BLOCK);
                    let base: [isize; 3] = std::array::from_fn(|k| base[k] + first as isize * beside[k]);
                    for i in 0..*length {
                        let at: [isize; 3] = std::array::from_fn(|k| base[k] + i as isize * strides[k]);
                        let block = x.block(at[0], beside[0], lines, &mut buffer)?;
                        for ((best, place), v) in best.iter_mut().zip(&mut places).zip(block) {
                            let old = if i == 0 { (*v, 0) } else { (*best, *place) };
                            (*best, *place) = step::<C, LARGEST>(old, *v, i as i64);
                        }
                        values.write(at[1], beside[1], &best[..lines])?;
                        positions.write(at[2], beside[2], &places[..lines])?;
                    }
                }
                return Ok(());
            }
            for line in 0..count as isize {
                let base: [isize; 3] = std::array::from_fn(|k| base[k] + line * beside[k]);
                let mut state: Option<(C, i64)> = None;
                for first in (0..*length).step_by(BLOCK) {
                    let n = (*length - first).min(BLOCK);
                    let at: [isize; 3] = std::array::from_fn(|k| base[k] + first as isize * strides[k]);
                    let block = x.block(at[0], strides[0], n, &mut buffer)?;
                    for (i, (v, slots)) in block.iter().zip(best.iter_mut().zip(&mut places)).enumerate() {
                        let place = (first + i) as i64;
                        let now = step::<C, LARGEST>(state.unwrap_or((*v, place)), *v, place);
                        (*slots.0, *slots.1) = now;
                        state = Some(now);
                    }
                    values.write(at[1], strides[1], &best[..n])?;
                    positions.write(at[2], strides[2], &places[..n])?;
                }
            }
            Ok(())
        })
    }
}
