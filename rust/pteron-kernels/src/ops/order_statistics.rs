//! Elements by their rank among others: median, nanmedian, kthvalue, mode.
//!
//! Shape: the dimension vanishes or becomes 1. Dtype: values keep theirs, positions are int64; all but
//! mode refuse bool. Edge cases: the median of an even number is the lower one; NaN is larger than
//! every number, and the median of anything with NaN is the first NaN; of equal elements a rank takes
//! the one that comes earlier for a lower rank, mode the last of the smallest value that is most frequent.

use crate::chunked::{CHUNK, in_ranges};
use crate::compute::{BLOCK, Class, unsupported};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ordering::{Entries, Key, Line, is_narrow, scratch_bytes};
use crate::reduction::plain::{Reduction, bind_reduced, check_not_empty, row_major};
use crate::routine::{Preparation, dtype_of};
use crate::shape::{all_dims, wrap_dim};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::ops::Range;

/// Which element is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Median,
    MedianOfNumbers,
    Kth,
    Mode,
}

/// Where the arguments of an operator stand; one whole tensor has no dimension and no positions.
#[derive(Clone, Copy)]
struct Form {
    wanted: Wanted,
    dim: Option<usize>,
    values: usize,
}

const fn along(wanted: Wanted, dim: usize, values: usize) -> Form {
    Form { wanted, dim: Some(dim), values }
}

const MEDIAN: Form = along(Wanted::Median, 1, 3);
const NANMEDIAN: Form = along(Wanted::MedianOfNumbers, 1, 3);
const MODE: Form = along(Wanted::Mode, 1, 3);
const KTH: Form = along(Wanted::Kth, 2, 4);
const WHOLE: Form = Form { wanted: Wanted::Median, dim: None, values: 1 };
const NANWHOLE: Form = Form { wanted: Wanted::MedianOfNumbers, dim: None, values: 1 };

fn reduced(args: &Args<'_>, form: Form) -> Result<u32> {
    let rank = args.tensor(0)?.rank();
    form.dim.map_or(Ok(all_dims(rank)), |i| Ok(1 << wrap_dim(args.int(i)?, rank)?))
}

fn bind(args: &mut BindArgs<'_>, form: Form) -> Result<()> {
    let view = args.args();
    let set = reduced(&view, form)?;
    let Some(dim) = form.dim else {
        return args.resize(form.values, &[]);
    };
    check_not_empty(&view, set)?;
    if form.wanted == Wanted::Kth {
        let (k, shape) = (view.int(1)?, view.tensor(0)?.shape());
        let extent = shape.get(wrap_dim(view.int(dim)?, shape.len())?).copied().unwrap_or(1);
        if k < 1 || k > extent as i64 {
            return Err(Error::kernel("k is out of range")
                .argument("k")
                .expected(format!("between 1 and {extent}"))
                .got(k.to_string()));
        }
    }
    let keepdim = view.bool(dim + 1)?;
    bind_reduced(args, set, keepdim, form.values)?;
    bind_reduced(args, set, keepdim, form.values + 1)
}

/// The last entry of the smallest key that appears most often; every NaN stands for itself.
fn most_frequent(entries: &mut Entries<'_>, count: usize, numbers: usize) -> usize {
    entries.sort();
    let mut best = (0, 0);
    let mut run = 0;
    for i in 0..count {
        run = if i > 0 && i < numbers && entries.key(i - 1) == entries.key(i) { run + 1 } else { 1 };
        let ends = i + 1 >= count.min(numbers) || entries.key(i + 1) != entries.key(i);
        if ends && run > best.0 {
            best = (run, entries.position(i));
        }
    }
    best.1
}

/// The position of the element that is wanted among `count` of which `nans` are NaN; there is one at least.
fn choose(entries: &mut Entries<'_>, count: usize, nans: usize, wanted: Wanted, k: usize) -> usize {
    let numbers = count - nans;
    entries.at_rank(match wanted {
        Wanted::Mode => return most_frequent(entries, count, numbers),
        Wanted::Kth => k - 1,
        Wanted::Median if nans > 0 => numbers,
        Wanted::Median | Wanted::MedianOfNumbers => numbers.saturating_sub(1) / 2,
    })
}

fn bind_lines(args: &mut BindArgs<'_>, form: Form) -> Result<Split> {
    bind(args, form)?;
    let view = args.args();
    let reduction = Reduction::new(view.tensor(0)?.meta(), reduced(&view, form)?);
    Ok(Split::within(reduction.outer.numel(), reduction.count(), CHUNK, 8))
}

/// Finds the element of every line of a range.
fn find<C: Key>(args: &Args<'_>, form: Form, lines: Range<usize>, scratch: &mut [u8]) -> Result<()> {
    let x = args.tensor(0)?;
    let is_narrow = is_narrow(x.dtype());
    let reduction = Reduction::new(x.meta(), reduced(args, form)?);
    let k = if form.wanted == Wanted::Kth { args.int(1)? as usize } else { 0 };
    let x = Reader::<C>::new(x)?;
    let mut values = Writer::<C>::new(args.output(form.values)?)?;
    let mut positions = form.dim.map(|_| Writer::<i64>::new(args.output(form.values + 1)?)).transpose()?;
    let to = row_major(values.meta());
    let to_positions = positions.as_ref().map(|p| row_major(p.meta()));
    for number in lines {
        if reduction.count() == 0 {
            return if form.dim.is_none() && C::from_f64(f64::NAN).is_nan() {
                values.put(0, C::from_f64(f64::NAN))
            } else {
                Err(Error::kernel("an empty tensor of integers has no median").argument("self"))
            };
        }
        let base = reduction.outer.offset(number);
        let mut nans = 0;
        x.blocks(reduction.inner(), base, &mut [C::ZERO; BLOCK], |_, block| {
            nans += block.iter().map(|v| usize::from(v.is_nan())).sum::<usize>();
            Ok(())
        })?;
        let line = Line { walk: reduction.inner(), base, is_narrow, descending: false };
        let mut entries = Entries::load(&x, line, scratch)?;
        let at = choose(&mut entries, reduction.count(), nans, form.wanted, k);
        let value = x.get((base + reduction.inner().offset(at)) as usize)?;
        values.put(to.offset(number) as usize, value)?;
        if let (Some(positions), Some(to)) = (&mut positions, &to_positions) {
            positions.put(to.offset(number) as usize, at as i64)?;
        }
    }
    Ok(())
}

fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    same_dtype(ctx, 0, form.values)?;
    let dtype = dtype_of(ctx, 0)?;
    if form.dim.is_some() && dtype_of(ctx, form.values + 1)? != DType::Int64 {
        return Err(Error::kernel("positions are int64").argument("indices"));
    }
    let shape = ctx.tensor(0).map(|t| t.shape).unwrap_or(pteron_core::Dims::EMPTY);
    let bytes = match form.dim {
        Some(_) => scratch_bytes(shape.iter().copied().max().unwrap_or(1))?,
        None => scratch_bytes(shape.numel()?)?,
    };
    match Class::of(dtype) {
        Some(class) if dtype != DType::Bool || form.wanted == Wanted::Mode => in_ranges(
            bytes,
            move |args, _: &mut ()| bind_lines(args, form),
            move |_, args, lines, scratch| match class {
                Class::F32 => find::<f32>(args, form, lines, scratch),
                Class::F64 => find::<f64>(args, form, lines, scratch),
                Class::I64 => find::<i64>(args, form, lines, scratch),
            },
        ),
        _ => Err(unsupported(dtype)),
    }
}

macro_rules! statistics {
    ($($schema:literal: $form:ident),* $(,)?) => { &[ $(
        kernel($schema, |ctx| prepare(ctx, $form)),
    )* ] };
}

/// median, nanmedian, kthvalue, mode.
pub static OPERATORS: &[Operator] = statistics! {
    "aten::median.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": WHOLE,
    "aten::nanmedian.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": NANWHOLE,
    "aten::median.dim_values(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)": MEDIAN,
    "aten::nanmedian.dim_values(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)": NANMEDIAN,
    "aten::kthvalue.values(Tensor self, SymInt k, int dim=-1, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)": KTH,
    "aten::mode.values(Tensor self, int dim=-1, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)": MODE,
};

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, call, error_text, run_out};
    use pteron_core::DType;

    fn values_and_positions(operator: &str, mut args: Vec<Arg>) -> (Vec<f32>, Vec<i64>) {
        args.push(Tensor::output(DType::Float32, &[1]).into());
        args.push(Tensor::output(DType::Int64, &[1]).into());
        let n = args.len();
        let r = call(operator, &args).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[n - 2], &r[n - 1]) else { panic!("no tensors") };
        (v.values(), i.values())
    }

    #[test]
    fn medians_meet_nan() {
        let x = Tensor::of(&[1, 5], &[4f32, f32::NAN, 1.0, 3.0, f32::NAN]);
        let args = || vec![x.clone().into(), 1i64.into(), false.into()];
        let (v, i) = values_and_positions("aten::median.dim_values", args());
        assert!(v[0].is_nan() && i == [1]);
        assert_eq!(values_and_positions("aten::nanmedian.dim_values", args()), (vec![3.0], vec![3]));
        let none = Tensor::of(&[2], &[f32::NAN, f32::NAN]);
        let (v, i) =
            values_and_positions("aten::nanmedian.dim_values", vec![none.into(), 0i64.into(), true.into()]);
        assert!(v[0].is_nan() && i == [0]);
    }

    #[test]
    fn the_smallest_of_the_most_frequent_wins() {
        let x = Tensor::of(&[6], &[1f32, 2.0, -0.0, 2.0, 0.0, f32::NAN]);
        assert_eq!(
            values_and_positions("aten::mode.values", vec![x.into(), 0i64.into(), true.into()]).1,
            [4]
        );
    }

    #[test]
    fn nothing_has_a_median_among_floats_only() {
        let x = Tensor::of::<f32>(&[0], &[]);
        assert!(
            run_out("aten::median.out", &[x.into()], DType::Float32, &[]).unwrap().values::<f32>()[0]
                .is_nan()
        );
        let x = Tensor::of::<i64>(&[0], &[]);
        assert!(error_text(run_out("aten::median.out", &[x.into()], DType::Int64, &[])).contains("empty"));
    }

    #[test]
    fn ranks_are_checked() {
        let x = Tensor::of(&[3], &[5f32, 1.0, 3.0]);
        let kth = |k: i64| vec![x.clone().into(), k.into(), (-1i64).into(), true.into()];
        assert_eq!(values_and_positions("aten::kthvalue.values", kth(2)), (vec![3.0], vec![2]));
        let mut args = kth(4);
        args.push(Tensor::output(DType::Float32, &[1]).into());
        args.push(Tensor::output(DType::Int64, &[1]).into());
        assert!(error_text(call("aten::kthvalue.values", &args)).contains("between 1 and 3"));
    }
}
