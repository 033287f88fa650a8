//! Distinct elements of a dense tensor, by typed slices: those of a sorted tensor, and those that differ from their
//! neighbour. Slices of a tensor, other dim orders, bool and 16-bit floats are left to the plain kernel.
//!
//! Neighbours: where groups begin is listed without branches, since data decides them. Sorted: keys with positions
//! ([`crate::ordering`]), which radix orders.

use super::{Form, bind};
use crate::elements::Reader;
use crate::grid_kernel::take_scratch;
use crate::ops::data_dependent::no_room;
use crate::ordering::{Entries, Key, Line, is_narrow, scratch_bytes};
use crate::reduction::plain::row_major;
use crate::routine::{FindFn, Finding, Preparation};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Element, Error, PrepareContext, Result, WorkerScratch};

/// An element with the type that orders it.
trait Item: Element + PartialEq {
    type Key: Key;
    /// Does it differ from itself?
    fn is_nan(self) -> bool;
}

macro_rules! items {
    ($($t:ty => $key:ty, |$v:ident| $is_nan:expr;)*) => { $(
        impl Item for $t {
            type Key = $key;
            #[inline(always)]
            fn is_nan(self) -> bool {
                let $v = self;
                $is_nan
            }
        }
    )* };
}
items! {
    u8 => i64, |_v| false;
    i8 => i64, |_v| false;
    i16 => i64, |_v| false;
    i32 => i64, |_v| false;
    i64 => i64, |_v| false;
    f32 => f32, |v| v.is_nan();
    f64 => f64, |v| v.is_nan();
}

/// The outputs of a call: distinct elements, groups of elements, sizes of groups; the last two are empty if nobody wants
/// them.
struct Outputs<'a, T> {
    distinct: &'a mut [T],
    places: &'a mut [i64],
    counts: &'a mut [i64],
    /// Are sizes wanted?
    has_counts: bool,
}

impl<'a, T: Item> Outputs<'a, T> {
    fn of(form: Form, args: &Args<'a>) -> Result<Self> {
        Ok(Outputs {
            distinct: args.output(form.out)?.into_slice()?,
            places: args.output(form.out + 1)?.into_slice()?,
            counts: args.output(form.out + 2)?.into_slice()?,
            has_counts: args.bool(form.wants_counts)?,
        })
    }

    /// Writes group `group`: its first element and how many it has.
    #[inline(always)]
    fn put(&mut self, group: usize, first: T, size: usize) -> Result<()> {
        let room = self.distinct.len();
        *self.distinct.get_mut(group).ok_or_else(|| no_room(room))? = first;
        if self.has_counts {
            let room = self.counts.len();
            *self.counts.get_mut(group).ok_or_else(|| no_room(room))? = size as i64;
        }
        Ok(())
    }
}

/// Groups of equal neighbours.
fn neighbours<T: Item>(form: Form, args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<usize> {
    let x = args.tensor(0)?.as_slice::<T>()?;
    let mut outputs = Outputs::<T>::of(form, args)?;
    let starts = take_scratch::<u64>(&mut &mut *scratch.worker, x.len() + 1)?;
    let groups = list_starts(x, starts, outputs.places);
    starts[groups] = x.len() as u64;
    for (group, ends) in starts[..=groups].windows(2).enumerate() {
        let [from, to] = [ends[0] as usize, ends[1] as usize];
        let first = x.get(from).ok_or_else(|| Error::internal("a group begins outside of the tensor"))?;
        outputs.put(group, *first, to - from)?;
    }
    Ok(groups)
}

/// Lists where groups begin, of which there may be one fewer than `starts`, and each element's group if there is room for
/// these; the number of groups.
fn list_starts<T: Item>(x: &[T], starts: &mut [u64], places: &mut [i64]) -> usize {
    let Some(first) = x.first() else { return 0 };
    let (mut groups, mut before) = (0usize, *first);
    let mut next = |i: usize, v: T| {
        // Written for every element, and left as it is by those that begin a group.
        starts[groups] = i as u64;
        groups += usize::from(i == 0 || v != before);
        before = v;
        groups as i64 - 1
    };
    if places.len() == x.len() {
        for (i, (v, place)) in x.iter().zip(places).enumerate() {
            *place = next(i, *v);
        }
    } else {
        for (i, v) in x.iter().enumerate() {
            next(i, *v);
        }
    }
    groups
}

/// Groups of equal elements in rising order.
fn sorted<T: Item>(form: Form, args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<usize> {
    let view = args.tensor(0)?;
    let (x, reader) = (view.as_slice::<T>()?, Reader::<T::Key>::new(view)?);
    let mut outputs = Outputs::<T>::of(form, args)?;
    let has_places = outputs.places.len() == x.len();
    let walk = row_major(view.meta());
    let line = Line { walk: &walk, base: 0, is_narrow: is_narrow(T::DTYPE), descending: false };
    let mut entries = Entries::load(&reader, line, scratch.worker)?;
    entries.sort();
    let outside = || Error::internal("an entry is outside of the tensor");
    let (mut groups, mut start, mut last) = (0usize, 0, 0);
    let mut first = T::zeroed();
    for i in 0..x.len() {
        let (key, position) = (entries.key(i), entries.position(i));
        // NaN have one key, and are all distinct.
        if i == 0 || key != last || x.get(position).is_some_and(|v| v.is_nan()) {
            if groups > 0 {
                outputs.put(groups - 1, first, i - start)?;
            }
            first = *x.get(position).ok_or_else(outside)?;
            (start, last) = (i, key);
            groups += 1;
        }
        if has_places {
            *outputs.places.get_mut(position).ok_or_else(outside)? = groups as i64 - 1;
        }
    }
    if groups > 0 {
        outputs.put(groups - 1, first, x.len() - start)?;
    }
    Ok(groups)
}

/// Does the call name no slices?
fn is_of_elements(ctx: &PrepareContext<'_>, form: Form) -> bool {
    let is_vector = ctx.tensor(0).is_some_and(|t| t.shape.len() == 1);
    match form.dim.map(|i| ctx.args.get(i)) {
        None | Some(Some(ArgSpec::None)) => true,
        Some(Some(ArgSpec::Int(Some(0)))) => form.takes_vectors_apart && is_vector,
        _ => false,
    }
}

fn prepare_for<T: Item>(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    let is_dense = |i: usize, dtype| {
        ctx.tensor(i).is_some_and(|t| t.dtype == dtype && (t.dim_order.is_contiguous() || t.shape.len() < 2))
    };
    let (out, indices) = (form.out, DType::Int64);
    let fits = is_dense(0, T::DTYPE)
        && is_dense(out, T::DTYPE)
        && is_dense(out + 1, indices)
        && is_dense(out + 2, indices)
        && is_of_elements(ctx, form);
    if !fits {
        return ctx.decline("takes the elements of dense tensors, and int64 places and counts");
    }
    let most = ctx.tensor(0).map_or(Ok(0), |t| t.shape.numel())?;
    let (kind, find): (_, FindFn) = if form.is_sorted {
        ("sorted", Box::new(move |args, scratch| sorted::<T>(form, args, scratch)))
    } else {
        ("neighbours", Box::new(move |args, scratch| neighbours::<T>(form, args, scratch)))
    };
    let name = format!("unique.{kind}.{}", T::DTYPE.name());
    let bind = Box::new(move |args: &mut BindArgs<'_>, groups| bind(args, form, groups));
    // Two words for each entry; of the beginnings of groups one for each, and one more.
    Finding::named(name, scratch_bytes(most)?, bind, find)
}

/// The kernel of elements.
pub(super) fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::UInt8) => prepare_for::<u8>(ctx, form),
        Some(DType::Int8) => prepare_for::<i8>(ctx, form),
        Some(DType::Int16) => prepare_for::<i16>(ctx, form),
        Some(DType::Int32) => prepare_for::<i32>(ctx, form),
        Some(DType::Int64) => prepare_for::<i64>(ctx, form),
        Some(DType::Float32) => prepare_for::<f32>(ctx, form),
        Some(DType::Float64) => prepare_for::<f64>(ctx, form),
        _ => ctx.decline("takes integers, float32 and float64"),
    }
}

#[cfg(test)]
#[path = "elements_tests.rs"]
mod tests;
