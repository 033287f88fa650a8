//! Places in sorted numbers: searchsorted, bucketize.
//!
//! Shape: that of the values. Dtype: sequence and values compare in the dtype they promote to, bool is
//! refused; places are int64, or int32 on request. Edge cases: NaN goes behind every number, and every
//! number behind a NaN of the sequence; from the right, equal numbers count as smaller.

use crate::compute::{BLOCK, Class, Compute, unsupported};
use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::promotion::Promotion;
use crate::reduction::plain::{Reduction, row_major};
use crate::routine::{Preparation, Routine, RunFn, dtype_of};
use crate::shape::{check_index, check_same};
use half::{bf16, f16};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Error, PrepareContext, Result};

mod in_step;

/// Where the arguments of an operator stand.
#[derive(Clone, Copy)]
struct Form {
    sequence: usize,
    values: usize,
    /// Is the value a number instead of a tensor?
    is_number: bool,
    /// The arguments `side` and `sorter`.
    extras: Option<[usize; 2]>,
    out: usize,
}

/// `out_int32` and `right` stand at the same places in every operator here.
const NARROW: usize = 2;
const RIGHT: usize = 3;
const SEARCH: Form = Form { sequence: 0, values: 1, is_number: false, extras: Some([4, 5]), out: 6 };
const SEARCH_NUMBER: Form = Form { is_number: true, ..SEARCH };
const BUCKETS: Form = Form { sequence: 1, values: 0, is_number: false, extras: None, out: 4 };
const BUCKETS_NUMBER: Form = Form { is_number: true, ..BUCKETS };

/// Do equal numbers count as smaller?
fn from_the_right(args: &Args<'_>, form: Form) -> Result<bool> {
    let right = args.bool(RIGHT)?;
    let side = form.extras.map_or(Ok(None), |[side, _]| args.optional_string(side))?;
    match side {
        None => Ok(right),
        Some("right") => Ok(true),
        Some("left") if !right => Ok(false),
        Some(other) => Err(Error::kernel("the side to search from is not clear")
            .argument("side")
            .expected("left or right, and not against the argument right")
            .got(other)),
    }
}

fn bind(args: &mut BindArgs<'_>, form: Form) -> Result<()> {
    let view = args.args();
    let sequence = *view.tensor(form.sequence)?.shape();
    let shape = if form.is_number { pteron_core::Dims::EMPTY } else { *view.tensor(form.values)?.shape() };
    from_the_right(&view, form)?;
    let may_have_rows = form.extras.is_some() && !shape.is_empty();
    let rows = |s: &[usize]| s.split_last().map(|(_, rows)| rows.to_vec());
    if sequence.len() != 1 && !(may_have_rows && !sequence.is_empty() && rows(&sequence) == rows(&shape)) {
        return Err(Error::kernel("the sorted numbers do not fit the values")
            .argument(if form.extras.is_some() { "sorted_sequence" } else { "boundaries" })
            .expected("one dimension, or for searchsorted the same extents but the last")
            .got(format!("{sequence} for {shape}")));
    }
    if let Some([_, sorter]) = form.extras
        && let Some(sorter) = view.optional_tensor(sorter)?
    {
        check_same("sorter", &sequence, sorter.shape())?;
    }
    args.resize(form.out, &shape)
}

/// Positions that put the sequence in order; they are checked all before one is used.
fn read_sorter<'a>(args: &Args<'a>, form: Form) -> Result<Option<(Reader<'a, i64>, Reduction)>> {
    let Some([_, sorter]) = form.extras else { return Ok(None) };
    let Some(sorter) = args.optional_tensor(sorter)? else { return Ok(None) };
    let extent = sorter.shape().last().copied().unwrap_or(1);
    let last = 1 << (sorter.rank().max(1) - 1);
    let (reduction, sorter) = (Reduction::new(sorter.meta(), last), Reader::<i64>::new(sorter)?);
    let mut buffer = [0; BLOCK];
    sorter.blocks(&row_major(sorter.meta()), 0, &mut buffer, |_, block| {
        block.iter().try_for_each(|at| check_index(*at, extent).map(|_| ()))
    })?;
    Ok(Some((sorter, reduction)))
}

fn search<C: Compute>(args: &Args<'_>, form: Form, round: fn(C) -> C) -> Result<()> {
    let sequence = args.tensor(form.sequence)?;
    let last = 1 << (sequence.rank().max(1) - 1);
    let (rows, sequence) = (Reduction::new(sequence.meta(), last), Reader::<C>::new(sequence)?);
    let sorter = read_sorter(args, form)?;
    let is_right = from_the_right(args, form)?;
    let mut out = Writer::<i64>::new(args.output(form.out)?)?;
    let place = |row: usize, value: C| -> Result<i64> {
        let (mut low, mut high) = (0, rows.count());
        while low < high {
            let middle = low + (high - low) / 2;
            let at = match &sorter {
                Some((sorter, rows)) => {
                    sorter.get((rows.outer.offset(row) + rows.inner().offset(middle)) as usize)? as usize
                }
                None => middle,
            };
            let here = round(sequence.get((rows.outer.offset(row) + rows.inner().offset(at)) as usize)?);
            // What does not compare lies behind.
            let is_behind = if is_right { here > value } else { here >= value };
            if is_behind { high = middle } else { low = middle + 1 }
        }
        Ok(low as i64)
    };
    if form.is_number {
        let value = round(C::from_scalar(args.scalar(form.values)?));
        return out.put(0, place(0, value)?);
    }
    let values = args.tensor(form.values)?;
    let per_row = values.shape().last().copied().unwrap_or(1).max(1);
    let has_rows = sequence.meta().rank() > 1;
    let values = Reader::<C>::new(values)?;
    let to = row_major(out.meta());
    let mut buffer = [C::ZERO; BLOCK];
    values.blocks(&row_major(values.meta()), 0, &mut buffer, |first, block| {
        for (i, value) in block.iter().enumerate() {
            let position = first + i;
            let row = if has_rows { position / per_row } else { 0 };
            out.put(to.offset(position) as usize, place(row, round(*value))?)?;
        }
        Ok(())
    })
}

fn check(ctx: &PrepareContext<'_>, form: Form) -> Result<DType> {
    let is_narrow = matches!(ctx.args.get(NARROW), Some(ArgSpec::Bool(Some(true))));
    let (expected, out) = (if is_narrow { DType::Int32 } else { DType::Int64 }, dtype_of(ctx, form.out)?);
    if out != expected {
        return Err(Error::kernel("places have another dtype")
            .argument("out")
            .expected(expected.name())
            .got(out.name()));
    }
    if let Some([_, sorter]) = form.extras
        && let Some(sorter) = ctx.tensor(sorter)
        && sorter.dtype != DType::Int64
    {
        return Err(Error::kernel("positions are int64").argument("sorter").got(sorter.dtype.name()));
    }
    let mut promotion = Promotion::default();
    promotion.argument(ctx, form.sequence)?;
    promotion.argument(ctx, form.values)?;
    promotion.result()
}

fn prepare(
    ctx: &PrepareContext<'_>,
    form: Form,
    bind: crate::routine::BindFn,
    runs: [RunFn; 5],
) -> Preparation {
    let [int, double, single, half, brain] = runs;
    let common = check(ctx, form)?;
    let run = match (common, Class::of(common)) {
        (DType::Float64, _) => double,
        (DType::Float32, _) => single,
        (DType::Float16, _) => half,
        (DType::BFloat16, _) => brain,
        (common, Some(Class::I64)) if common != DType::Bool => int,
        _ => return Err(unsupported(common)),
    };
    Routine::prepare(bind, run)
}

macro_rules! searches {
    ($($schema:literal: $form:ident $(, $fast:literal)?;)*) => { &[ $(
        operator($schema)
            $(.fast($fast, |ctx| in_step::prepare(ctx, $form)))?
            .plain(|ctx| {
                prepare(ctx, $form, |args| bind(args, $form), [
                    |args, _| search::<i64>(args, $form, |v| v),
                    |args, _| search::<f64>(args, $form, |v| v),
                    |args, _| search::<f64>(args, $form, |v| f64::from(v as f32)),
                    |args, _| search::<f64>(args, $form, |v| f16::from_f32(v as f32).to_f64()),
                    |args, _| search::<f64>(args, $form, |v| bf16::from_f32(v as f32).to_f64()),
                ])
            }),
    )* ] };
}

/// searchsorted, bucketize.
pub static OPERATORS: &[Operator] = searches! {
    "aten::searchsorted.Tensor_out(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None, Tensor(a!) out) -> Tensor(a!)": SEARCH, "in_step";
    "aten::searchsorted.Scalar_out(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None, Tensor(a!) out) -> Tensor(a!)": SEARCH_NUMBER;
    "aten::bucketize.Tensor_out(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False, Tensor(a!) out) -> Tensor(a!)": BUCKETS, "in_step";
    "aten::bucketize.Scalar_out(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False, Tensor(a!) out) -> Tensor(a!)": BUCKETS_NUMBER;
};

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    fn bucket(value: Arg, right: bool) -> Vec<i64> {
        let edges = Tensor::of(&[4], &[1f32, 2.0, 2.0, 9.0]);
        let args = [value, edges.into(), false.into(), right.into()];
        let (name, shape): (_, &[usize]) = match args[0] {
            Arg::Tensor(_) => ("aten::bucketize.Tensor_out", &[4]),
            _ => ("aten::bucketize.Scalar_out", &[]),
        };
        run_out(name, &args, DType::Int64, shape).unwrap().values()
    }

    #[test]
    fn both_sides_of_equal_numbers() {
        let x = || Tensor::of(&[4], &[0f32, 2.0, 3.0, f32::NAN]).into();
        assert_eq!(bucket(x(), false), [0, 1, 3, 4]);
        assert_eq!(bucket(x(), true), [0, 3, 3, 4]);
        assert_eq!(bucket(Arg::Double(1.5), false), [1]);
    }

    #[test]
    fn rows_and_sorters() {
        let rows = Tensor::of(&[2, 3], &[3i32, 1, 2, 30, 10, 20]);
        let x = Tensor::of(&[2, 1], &[2i32, 5]);
        let sorter = |v: [i64; 6]| Tensor::of(&[2, 3], &v);
        let args = |s: [i64; 6]| -> Vec<Arg> {
            vec![
                rows.clone().into(),
                x.clone().into(),
                false.into(),
                false.into(),
                "right".into(),
                sorter(s).into(),
            ]
        };
        let y = run_out("aten::searchsorted.Tensor_out", &args([1, 2, 0, 1, 2, 0]), DType::Int64, &[2, 1]);
        assert_eq!(y.unwrap().values::<i64>(), [2, 0]);
        let e = run_out("aten::searchsorted.Tensor_out", &args([1, 2, 3, 1, 2, 0]), DType::Int64, &[2, 1]);
        assert!(error_text(e).contains("index out of range"));
    }

    #[test]
    fn misfits_are_refused() {
        let rows = Tensor::of(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let x = Tensor::of(&[3], &[0f32; 3]);
        let args = [rows.into(), x.clone().into(), false.into(), false.into(), Arg::None, Arg::None];
        let e = run_out("aten::searchsorted.Tensor_out", &args, DType::Int64, &[3]);
        assert!(error_text(e).contains("do not fit"));
        let args = [x.clone().into(), x.into(), false.into(), true.into(), "left".into(), Arg::None];
        let e = run_out("aten::searchsorted.Tensor_out", &args, DType::Int64, &[3]);
        assert!(error_text(e).contains("side"));
    }
}
