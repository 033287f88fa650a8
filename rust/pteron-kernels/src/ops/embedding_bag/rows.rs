//! Sums of bags of whole rows of a row-major table of floats, without weights of samples. Rows are added in the order of the
//! indices, in float32 for 16-bit floats, as the plain kernel does it.

use super::{OUT, SUM, bags, bind, check_offsets, clear};
use crate::chunk::CHUNK;
use crate::compute::{BLOCK, Compute};
use crate::elements::{Reader, Writer};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::real::{Float, by_float};
use crate::routine::Preparation;
use crate::shape::check_index;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Error, PrepareContext, Result};
use std::marker::PhantomData;
use std::ops::Range;

struct Rows<T> {
    level: SimdLevel,
    element: PhantomData<T>,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(weight), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = weight.dim_order.is_contiguous() && out.dim_order.is_contiguous();
    let is_position =
        |i: usize| ctx.tensor(i).is_some_and(|t| matches!(t.dtype, DType::Int64 | DType::Int32));
    if !is_plain
        || weight.dtype != out.dtype
        || ![1, 2, OUT + 1, OUT + 2, OUT + 3].into_iter().all(is_position)
    {
        return ctx.decline("takes row-major tensors of one dtype, positions of int32 or int64");
    }
    let is_sum = matches!(ctx.args.get(4), Some(ArgSpec::Int(Some(SUM))));
    if !is_sum || !matches!(ctx.args.get(6), Some(ArgSpec::None)) {
        return ctx.decline("takes sums without weights of samples");
    }
    by_float!(ctx, weight.dtype, rows(ctx))
}

fn rows<T: Float>(ctx: &PrepareContext<'_>) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("embedding_bag.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Rows::<T> { level, element: PhantomData })
}

impl<T: Float> UnitKernel for Rows<T> {
    /// Columns; units are bags.
    type Problem = usize;

    const CHECKS: bool = true;

    fn bind(&self, args: &mut BindArgs<'_>, columns: &mut usize) -> Result<Split> {
        bind(args)?;
        let view = args.args();
        let (bags, indices) = (bags(&view)?, view.tensor(1)?.numel());
        *columns = view.tensor(0)?.shape()[1];
        let work = indices.saturating_mul((*columns).max(8)) / bags.max(1) + *columns;
        Ok(Split::sized(bags, work, CHUNK, 0.2))
    }

    fn check(&self, args: &Args<'_>) -> Result<()> {
        clear(args)?;
        check_offsets(args)
    }

    fn run(&self, columns: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let (args, units, columns) = (chunk.args(), chunk.units.clone(), *columns);
        let table: &[T] = chunk.input(0)?.as_slice()?;
        let out = chunk.output_units(OUT, columns)?.into_slice()?;
        let task = Task::<T> { args, bags: units, table, columns, out };
        self.level.dispatch_narrow(task)
    }
}

struct Task<'a, T> {
    args: &'a Args<'a>,
    bags: Range<usize>,
    table: &'a [T],
    columns: usize,
    out: &'a mut [T],
}

impl<T: Float> SimdTask for Task<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let Task { args, bags, table, columns, out } = self;
        let (indices, offsets) = (Reader::<i64>::new(args.tensor(1)?)?, Reader::<i64>::new(args.tensor(2)?)?);
        let mut notes = Writer::<i64>::new(args.output(OUT + 1)?)?;
        let (has_notes, rows, padding) = (notes.meta().numel() > 0, args.tensor(0)?.shape()[0], args.int(8)?);
        let outside = || Error::internal("a bag would leave its table");
        let is_half = T::as_sums(&mut []).is_none();
        let (mut sums, mut wide) = ([T::Sum::ZERO; BLOCK], [T::Sum::ZERO; BLOCK]);
        for (i, bag) in bags.enumerate() {
            let start = offsets.get(bag)? as usize;
            let end = match bag + 1 < offsets.meta().numel() {
                true => offsets.get(bag + 1)? as usize,
                false => indices.meta().numel(),
            };
            for position in start..end {
                check_index(indices.get(position)?, rows).map_err(|e| e.argument("indices"))?;
            }
            if has_notes {
                notes.fill_range(start..end, bag as i64)?;
            }
            let out = out.get_mut(i * columns..(i + 1) * columns).ok_or_else(outside)?;
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let sums = &mut sums[..out.len()];
                sums.fill(T::Sum::ZERO);
                for position in start..end {
                    let index = indices.get(position)?;
                    if index == padding {
                        continue;
                    }
                    let at = index as usize * columns + block * BLOCK;
                    let row = table.get(at..at + sums.len()).ok_or_else(outside)?;
                    if is_half {
                        T::widen(s, row, &mut wide);
                        sums.iter_mut().zip(&wide).for_each(|(sum, v)| *sum += *v);
                    } else {
                        sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v.wide());
                    }
                }
                T::narrow(s, sums, out);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use half::{bf16, f16};
    use pteron_core::{Element, Isa, Result};

    /// Rows of a table, its columns, indices and offsets; is the last of these an end?
    type Case<'a> = ([usize; 2], &'a [i64], &'a [i64], bool);

    /// The four outputs of sums over indices of which 2 is padding; only `has_notes` tells the bags of indices.
    fn run<T: Element>(
        variant: &str,
        isa: Isa,
        ([rows, columns], indices, offsets, has_end): Case<'_>,
        has_notes: bool,
        of: impl Fn(f32) -> T,
    ) -> Option<Result<[Vec<u8>; 4]>> {
        let mut table: Vec<T> = numbers(rows * columns, 3).into_iter().map(&of).collect();
        table.iter_mut().step_by(9).zip([-0.0, f32::NAN, f32::INFINITY]).for_each(|(v, edge)| *v = of(edge));
        let bags = offsets.len() - usize::from(has_end);
        let list = |v: &[i64]| CallArg::Tensor(HostTensor::new(&[v.len()], v).unwrap());
        let sevens = |n: usize| list(&vec![7; n]);
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[rows, columns], &table).unwrap()),
            list(indices),
            list(offsets),
            CallArg::bool(false),
            CallArg::int(0),
            CallArg::bool(false),
            CallArg::None,
            CallArg::bool(has_end),
            CallArg::int(2),
            CallArg::Tensor(HostTensor::new(&[bags, columns], &vec![of(1.0); bags * columns]).unwrap()),
            sevens(if has_notes { indices.len() } else { 0 }),
            sevens(offsets.len()),
            sevens(bags),
        ];
        let prepare = prepare_of("aten::_embedding_bag_forward_only.out", variant);
        let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap().expect("taken");
        Some((|| {
            let grid = call.bind()?;
            call.run(grid, true)?;
            Ok([9, 10, 11, 12].map(|i| call.output_bytes(i).unwrap().to_vec()))
        })())
    }

    fn check<T: Element>(of: impl Fn(f32) -> T) {
        let indices: Vec<i64> = (0..23).map(|i| i * i % 7).collect();
        let cases: [Case<'_>; 5] = [
            ([7, 5], &indices, &[0, 3, 3, 4, 20], false),
            ([7, 300], &indices, &[0, 1, 23], true),
            ([7, 3], &[], &[0, 0], false),
            ([7, 3], &[], &[0], true),
            ([7, 0], &indices, &[0, 9], false),
        ];
        for case in cases {
            for has_notes in [true, false] {
                let want = run("reference", Isa::Portable, case, has_notes, &of).unwrap().unwrap();
                for isa in Isa::ALL {
                    let Some(got) = run("rows", isa, case, has_notes, &of) else { continue };
                    assert!(got.unwrap() == want, "{:?} {isa:?} {case:?}", T::DTYPE);
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_plain_kernel() {
        check(|v| v);
        check(f64::from);
        check(f16::from_f32);
        check(bf16::from_f32);
    }

    #[test]
    fn bad_offsets_and_indices_are_refused() {
        let cases: [Case<'_>; 5] = [
            ([7, 3], &[0, 7], &[0], false),
            ([7, 3], &[0, -1], &[0], false),
            ([7, 3], &[0, 1], &[1], false),
            ([7, 3], &[0, 1], &[0, 2, 1], false),
            ([7, 3], &[0, 1], &[0, 1], true),
        ];
        for case in cases {
            for variant in ["reference", "rows"] {
                let result = run(variant, Isa::Portable, case, true, |v| v).unwrap();
                assert!(result.is_err(), "{variant} {case:?}");
            }
        }
    }
}
