//! Distinct elements and slices: _unique2, unique_consecutive, unique_dim, unique_dim_consecutive.
//!
//! Shape: known after the run; the output must have room for the case that all are distinct. Dtype: kept;
//! places and counts are int64. Edge cases: results are in rising order (or in the order of the input, for
//! neighbours), also where no order is asked for; every NaN is distinct and comes last; both zeros are equal,
//! the first of them stands for them. Places and counts that are not asked for are empty, as PyTorch has it,
//! but for slices, which always have them; slices of a vector along dimension 0 (not -1) are elements to
//! unique_consecutive.

use crate::compute::Class;
use crate::elements::{Reader, Writer};
use crate::grid_kernel::take_scratch;
use crate::operator::{Operator, kernel};
use crate::ops::data_dependent::no_room;
use crate::ops::layout::same_dtype;
use crate::ordering::Key;
use crate::reduction::plain::row_major;
use crate::routine::{FindFn, Finding, Preparation, dtype_of};
use crate::shape::wrap_dim;
use crate::strided::copy::{StridedRegion, copy_region};
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, DType, Dims, Error, PrepareContext, Result, WorkerScratch};

mod elements;

/// Room in the scratch for `count` pairs of key and position.
fn entries<'a>(scratch: &'a mut WorkerScratch<'_>, count: usize) -> Result<&'a mut [[u64; 2]]> {
    take_scratch(&mut &mut *scratch.worker, count)
}

/// Where an operator has its arguments.
#[derive(Clone, Copy)]
struct Form {
    /// The dimension of the slices; absent or None: elements.
    dim: Option<usize>,
    /// Are results sorted? Else only neighbours are compared.
    is_sorted: bool,
    /// Is dimension 0 of a vector (not its other name, -1) as if no dimension were named?
    takes_vectors_apart: bool,
    wants_places: usize,
    wants_counts: usize,
    out: usize,
}

/// The items that are compared: where each begins, and the elements of one.
struct Items {
    starts: Walk,
    rest: Walk,
    /// Shape of the result before its distinct extent, and which extent that is.
    shape: Dims,
    dim: usize,
}

impl Form {
    fn items(&self, args: &Args<'_>) -> Result<Items> {
        let x = args.tensor(0)?;
        let Some(dim) = self.slices_of(args)? else {
            let shape = Dims::filled(1, x.numel())?;
            return Ok(Items {
                starts: row_major(x.meta()),
                rest: Walk::row_major(&[], &signed(&[])),
                shape,
                dim: 0,
            });
        };
        if x.rank() == 0 {
            return Err(Error::kernel("a tensor without dimensions has no slices").argument("self"));
        }
        let dim = wrap_dim(dim, x.rank())?;
        if x.shape().iter().enumerate().any(|(d, n)| d != dim && *n == 0) {
            return Err(Error::kernel("slices without elements cannot be compared")
                .argument("self")
                .got(x.shape().to_string()));
        }
        let strides = signed(x.strides());
        let beside = (0..x.rank()).filter(|d| *d != dim);
        Ok(Items {
            starts: Walk::new(std::iter::once(dim), x.shape(), &strides),
            rest: Walk::new(beside, x.shape(), &strides),
            shape: *x.shape(),
            dim,
        })
    }

    /// The dimension that a call names; None: elements.
    fn slices_of(&self, args: &Args<'_>) -> Result<Option<i64>> {
        let Some(i) = self.dim else { return Ok(None) };
        let dim = args.optional_int(i)?;
        let is_of_elements = self.takes_vectors_apart && dim == Some(0) && args.tensor(0)?.rank() == 1;
        Ok(dim.filter(|_| !is_of_elements))
    }
}

/// Orders the items, groups equal ones and writes everything; the number of groups.
fn find<C: Key>(form: Form, args: &Args<'_>, scratch: &mut WorkerScratch<'_>) -> Result<usize> {
    let items = form.items(args)?;
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let (count, width) = (items.starts.numel(), items.rest.numel());
    let at = |item: u64, i: usize| {
        x.get((items.starts.offset(item as usize) + items.rest.offset(i)) as usize).unwrap_or_default()
    };
    let order = entries(scratch, count)?;
    for (i, slot) in order.iter_mut().enumerate() {
        *slot = [at(i as u64, 0).key(), i as u64];
    }
    if form.is_sorted {
        order.sort_unstable_by(|a, b| {
            let rest = || (1..width).map(|i| at(a[1], i).key()).cmp((1..width).map(|i| at(b[1], i).key()));
            a[0].cmp(&b[0]).then_with(rest).then(a[1].cmp(&b[1]))
        });
    }
    let mut places = Writer::<i64>::new(args.output(form.out + 1)?)?;
    let mut counts = Writer::<i64>::new(args.output(form.out + 2)?)?;
    let (has_places, most_counts) = (places.meta().numel() > 0, counts.meta().numel());
    let to = row_major(places.meta());
    let (mut groups, mut size) = (0usize, 0i64);
    for i in 0..count {
        let [_, item] = order[i];
        let is_new = groups == 0 || (0..width).any(|k| at(item, k) != at(order[groups - 1][1], k));
        if is_new {
            // Behind `i`, where the order is not needed any more, the list of groups grows.
            order[groups] = order[i];
            groups += 1;
            size = 0;
        }
        size += 1;
        if most_counts > 0 {
            if groups > most_counts {
                return Err(no_room(most_counts));
            }
            counts.put(groups - 1, size)?;
        }
        if has_places {
            places.put(to.offset(item as usize) as usize, groups as i64 - 1)?;
        }
    }
    let firsts = order.get(..groups).ok_or_else(|| Error::internal("more groups than items"))?;
    write(form, args, &items, firsts)?;
    Ok(groups)
}

/// Writes the first item of each group, as the shape that `finish` gives the output lies in memory.
fn write(form: Form, args: &Args<'_>, items: &Items, firsts: &[[u64; 2]]) -> Result<()> {
    let x = args.tensor(0)?;
    let mut out = args.output(form.out)?;
    let mut shape = items.shape;
    shape[items.dim] = firsts.len();
    if shape.numel()? > out.numel() {
        return Err(no_room(out.shape().get(items.dim).copied().unwrap_or(0)));
    }
    let strides = out.meta().dim_order().strides(&shape);
    let is_flat = items.rest.numel() == 1 && shape.len() == 1;
    shape[items.dim] = 1;
    for (group, [_, item]) in firsts.iter().enumerate() {
        let offset = items.starts.offset(*item as usize);
        let from_strides = if is_flat { [0; pteron_core::MAX_RANK] } else { signed(x.strides()) };
        let from = StridedRegion { offset, strides: from_strides };
        let to = StridedRegion { offset: (group * strides[items.dim]) as isize, strides: signed(&strides) };
        copy_region(&shape, &x, from, &mut out, to)?;
    }
    Ok(())
}

/// Shapes of the outputs: with room for all items, or for the groups that were found.
fn bind(args: &mut BindArgs<'_>, form: Form, groups: Option<usize>) -> Result<()> {
    let view = args.args();
    let items = form.items(&view)?;
    let most = items.starts.numel();
    let is_of_slices = form.slices_of(&view)?.is_some();
    let has_places = is_of_slices || view.bool(form.wants_places)?;
    let has_counts = is_of_slices || view.bool(form.wants_counts)?;
    let places = if is_of_slices { Dims::filled(1, most)? } else { *view.tensor(0)?.shape() };
    let room = |args: &BindArgs<'_>, out: usize, d: usize| -> Result<usize> {
        Ok(most.min(args.bound(out)?.get(d).copied().unwrap_or(0)))
    };
    let mut shape = items.shape;
    shape[items.dim] = groups.map_or_else(|| room(args, form.out, items.dim), Ok)?;
    args.resize(form.out, &shape)?;
    let counts = match groups {
        _ if !has_counts => 0,
        Some(groups) => groups,
        None => room(args, form.out + 2, 0)?,
    };
    args.resize(form.out + 2, &[counts])?;
    if groups.is_some() {
        return Ok(());
    }
    args.resize(form.out + 1, if has_places { &places } else { &[0] })
}

fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    same_dtype(ctx, 0, form.out)?;
    for i in [form.out + 1, form.out + 2] {
        if dtype_of(ctx, i)? != DType::Int64 {
            return Err(Error::kernel("places and counts are int64").got(dtype_of(ctx, i)?.name()));
        }
    }
    let class = Class::required(dtype_of(ctx, 0)?)?;
    let most = ctx.tensor(0).map_or(Ok(0), |t| t.shape.numel())?;
    let too_long = || Error::limit("the tensor is too long to order").got(most.to_string());
    let scratch = most.max(1).checked_mul(size_of::<[u64; 2]>()).ok_or_else(too_long)?;
    let find: FindFn = if class == Class::I64 {
        Box::new(move |args, scratch| find::<i64>(form, args, scratch))
    } else {
        Box::new(move |args, scratch| find::<f64>(form, args, scratch))
    };
    Finding::prepare(scratch, Box::new(move |args, groups| bind(args, form, groups)), find)
}

const ELEMENTS: Form =
    Form { dim: None, is_sorted: true, takes_vectors_apart: false, wants_places: 2, wants_counts: 3, out: 4 };
const NEIGHBOURS: Form = Form {
    dim: Some(3),
    is_sorted: false,
    takes_vectors_apart: true,
    wants_places: 1,
    wants_counts: 2,
    out: 4,
};
const SLICES: Form = Form {
    dim: Some(1),
    is_sorted: true,
    takes_vectors_apart: false,
    wants_places: 3,
    wants_counts: 4,
    out: 5,
};
const NEIGHBOURING_SLICES: Form = Form {
    dim: Some(1),
    is_sorted: false,
    takes_vectors_apart: false,
    wants_places: 2,
    wants_counts: 3,
    out: 4,
};

/// _unique2 and its kin.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::_unique2.out(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        |ctx| prepare(ctx, ELEMENTS),
    )
    .fast("elements", |ctx| elements::prepare(ctx, ELEMENTS)),
    kernel(
        "aten::unique_consecutive.out(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        |ctx| prepare(ctx, NEIGHBOURS),
    )
    .fast("elements", |ctx| elements::prepare(ctx, NEIGHBOURS)),
    kernel(
        "aten::unique_dim.out(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        |ctx| prepare(ctx, SLICES),
    ),
    kernel(
        "aten::unique_dim_consecutive.out(Tensor self, int dim, bool return_inverse=False, bool return_counts=False, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        |ctx| prepare(ctx, NEIGHBOURING_SLICES),
    ),
];
