//! searchsorted and bucketize of one row of sorted numbers, several values in step: their searches need not wait for one
//! another, and choose without branches, which nothing could predict. Each looks at the numbers that the plain search looks
//! at, so that rows with NaN, or out of order, give the same places.

use super::{Form, bind, check, from_the_right};
use crate::chunk::CHUNK;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{BindArgs, DType, Element, PrepareContext, Result};
use std::marker::PhantomData;

/// Values whose searches are in step.
const GROUP: usize = 8;

/// A place in the row.
trait Place: Element {
    fn of(place: usize) -> Self;
}
impl Place for i64 {
    #[inline(always)]
    fn of(place: usize) -> i64 {
        place as i64
    }
}
impl Place for i32 {
    #[inline(always)]
    fn of(place: usize) -> i32 {
        place as i32
    }
}

struct InStep<T, O> {
    level: SimdLevel,
    form: Form,
    types: PhantomData<(T, O)>,
}

/// The kernel for values and one row of one dtype, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    let common = check(ctx, form)?;
    let has_sorter = form.extras.is_some_and(|[_, sorter]| ctx.tensor(sorter).is_some());
    let (Some(row), Some(values), Some(out)) =
        (ctx.tensor(form.sequence), ctx.tensor(form.values), ctx.tensor(form.out))
    else {
        return ctx.decline("takes values in a tensor");
    };
    if has_sorter || row.shape.len() != 1 || values.dim_order != out.dim_order {
        return ctx.decline("takes one row in order, and places that lie in memory as the values do");
    }
    if row.dtype != common || values.dtype != common {
        return ctx.decline("takes values and numbers of one dtype");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = if form.extras.is_some() { "searchsorted" } else { "bucketize" };
    let name = format!("{operator}.{}", common.name());
    macro_rules! of {
        ($t:ty) => {
            match out.dtype {
                DType::Int32 => framed(name, InStep::<$t, i32> { level, form, types: PhantomData }),
                _ => framed(name, InStep::<$t, i64> { level, form, types: PhantomData }),
            }
        };
    }
    match common {
        DType::Float32 => of!(f32),
        DType::Float64 => of!(f64),
        DType::Int32 => of!(i32),
        DType::Int64 => of!(i64),
        _ => ctx.decline("takes float32, float64, int32 and int64"),
    }
}

impl<T: Element + PartialOrd, O: Place> UnitKernel for InStep<T, O> {
    type Problem = ();

    fn bind(&self, args: &mut BindArgs<'_>, _: &mut ()) -> Result<Split> {
        bind(args, self.form)?;
        let view = args.args();
        let steps = view.tensor(self.form.sequence)?.numel().checked_ilog2().unwrap_or(0) + 1;
        Ok(Split::sized(view.tensor(self.form.values)?.numel(), 1, CHUNK, f64::from(steps)))
    }

    fn run(&self, _: &(), chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let is_right = from_the_right(chunk.args(), self.form)?;
        let row = chunk.input::<T>(self.form.sequence)?.as_slice()?;
        let values = chunk.input_units::<T>(self.form.values, 1)?.as_slice()?;
        let places = chunk.output_units::<O>(self.form.out, 1)?.into_slice()?;
        match is_right {
            true => self.level.dispatch_narrow(Search::<T, O, true> { row, values, places }),
            false => self.level.dispatch_narrow(Search::<T, O, false> { row, values, places }),
        }
        Ok(())
    }
}

struct Search<'a, T, O, const RIGHT: bool> {
    row: &'a [T],
    values: &'a [T],
    places: &'a mut [O],
}

/// Is the number behind the place of the value? What does not compare is not.
#[inline(always)]
fn is_behind<T: PartialOrd, const RIGHT: bool>(number: T, value: T) -> bool {
    if RIGHT { number > value } else { number >= value }
}

impl<T: Element + PartialOrd, O: Place, const RIGHT: bool> SimdTask for Search<'_, T, O, RIGHT> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Search { row, values, places } = self;
        let (groups, rest) = values.as_chunks::<GROUP>();
        let (in_groups, others) = places.as_chunks_mut::<GROUP>();
        // Places of rows of so many numbers are 32 bits wide, of which vectors hold more.
        match i32::try_from(row.len()) {
            Ok(count) if count > 0 => {
                for (values, places) in groups.iter().zip(in_groups) {
                    in_step::<T, O, RIGHT>(row, count as u32, values, places);
                }
            }
            _ => {
                for (value, place) in groups.as_flattened().iter().zip(in_groups.as_flattened_mut()) {
                    *place = O::of(alone::<T, RIGHT>(row, *value));
                }
            }
        }
        for (value, place) in rest.iter().zip(others) {
            *place = O::of(alone::<T, RIGHT>(row, *value));
        }
    }
}

/// The places of a group of values in the `count` numbers of a row that has some.
#[allow(clippy::needless_range_loop, reason = "indexed loops are vectorised")]
#[inline(always)]
fn in_step<T: Element + PartialOrd, O: Place, const RIGHT: bool>(
    row: &[T],
    count: u32,
    values: &[T; GROUP],
    places: &mut [O; GROUP],
) {
    let last = row.len() - 1;
    let (mut low, mut high) = ([0u32; GROUP], [count; GROUP]);
    for _ in 0..=count.ilog2() {
        for k in 0..GROUP {
            let middle = low[k] + (high[k] - low[k]) / 2;
            let number = row[(middle as usize).min(last)];
            // A search that is done stays where it is: the middle is both ends.
            let is_before = (low[k] < high[k]) & !is_behind::<T, RIGHT>(number, values[k]);
            // By bits: choices become branches.
            let mask = u32::from(is_before).wrapping_neg();
            high[k] = (high[k] & mask) | (middle & !mask);
            low[k] = ((middle + 1) & mask) | (low[k] & !mask);
        }
    }
    for k in 0..GROUP {
        places[k] = O::of(low[k] as usize);
    }
}

/// The place of one value.
#[inline(always)]
fn alone<T: Element + PartialOrd, const RIGHT: bool>(row: &[T], value: T) -> usize {
    let (mut low, mut high) = (0, row.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if is_behind::<T, RIGHT>(row[middle], value) { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{Arg, Tensor, numbers, prepare_of, run_out};
    use pteron_core::{DType, Element, Isa};

    /// `values` in `row` by the fast kernels of both operators, as the plain one has them.
    fn check<T: Element>(row: &[T], values: &[T]) {
        for (isa, is_right, is_narrow) in
            Isa::ALL.into_iter().flat_map(|i| [(i, false, false), (i, true, false), (i, true, true)])
        {
            let Some(cpu) = profile(isa) else { continue };
            let dtype = if is_narrow { DType::Int32 } else { DType::Int64 };
            let flags = || [CallArg::bool(is_narrow), CallArg::bool(is_right)];
            let plain_flags = || [Arg::Bool(is_narrow), Arg::Bool(is_right)];
            let (row_of, values_of) = (Tensor::of(&[row.len()], row), Tensor::of(&[values.len()], values));
            for (operator, is_search) in
                [("aten::searchsorted.Tensor_out", true), ("aten::bucketize.Tensor_out", false)]
            {
                let mut tensors = vec![
                    CallArg::Tensor(HostTensor::new(&[row.len()], row).unwrap()),
                    CallArg::Tensor(HostTensor::new(&[values.len()], values).unwrap()),
                ];
                let mut plain = vec![Arg::Tensor(row_of.clone()), Arg::Tensor(values_of.clone())];
                if !is_search {
                    tensors.reverse();
                    plain.reverse();
                }
                tensors.extend(flags());
                plain.extend(plain_flags());
                if is_search {
                    tensors.extend([CallArg::None, CallArg::None]);
                    plain.extend([Arg::None, Arg::None]);
                }
                let out = tensors.len();
                tensors.push(CallArg::Tensor(HostTensor::zeros(dtype, &[values.len()]).unwrap()));
                let mut call =
                    SingleCall::new(prepare_of(operator, "in_step"), &cpu, tensors).unwrap().expect("taken");
                let grid = call.bind().unwrap();
                call.run(grid, true).unwrap();
                let want = run_out(operator, &plain, dtype, &[values.len()]).unwrap();
                assert_eq!(call.output_bytes(out).unwrap(), want.bytes, "{isa:?} {operator} {}", row.len());
            }
        }
    }

    #[test]
    fn places_as_the_plain_search_has_them() {
        for length in [0, 1, 2, 3, 7, 8, 9, 30, 1000] {
            let mut row = numbers(length, 3);
            row.sort_by(f32::total_cmp);
            let mut values = numbers(61, 4);
            values.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0]);
            // Numbers of the row, where the sides differ.
            values.extend(row.iter().step_by(3).take(40));
            check(&row, &values);
            let wide = |x: &[f32]| x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
            check(&wide(&row), &wide(&values));
            let whole = |x: &[f32]| x.iter().map(|v| (v * 10.0) as i32).collect::<Vec<_>>();
            check(&whole(&row), &whole(&values));
            let long = |x: &[f32]| x.iter().map(|v| (v * 10.0) as i64).collect::<Vec<_>>();
            check(&long(&row), &long(&values));
        }
    }

    #[test]
    fn rows_that_are_out_of_order() {
        let values = numbers(100, 1);
        check(&numbers(37, 2), &values);
        // Numbers that are none stand behind the others.
        let mut row = vec![-1.0f32, 0.0, 2.0];
        row.extend([f32::NAN; 5]);
        check(&row, &values);
        check(&[f32::NAN; 3], &values);
    }
}
