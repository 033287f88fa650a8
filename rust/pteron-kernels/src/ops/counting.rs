//! Counts of numbers and their inverse: histc, bincount, repeat_interleave.
//!
//! Shape: histc has `bins`; the others as many elements as the data says, known after the run, and the
//! output must be large enough for them. Dtype: histc keeps that of its floats; bincount gives int64, or
//! the weights' float32, else float64; repeat_interleave keeps int32 and int64. Edge cases: histc leaves
//! out NaN and what is out of range; negative counts are errors. `bins` is the fast kernel of bincount.

use crate::compute::{BLOCK, Class, Compute};
use crate::elements::{Reader, UpdateView, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::data_dependent::no_room;
use crate::ops::layout::same_dtype;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine, dtype_of};
use crate::shape::check_rank;
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result, Scalar};

mod bins;

/// A float of the dtype that histc computes in.
trait Edge:
    Compute + std::ops::Sub<Output = Self> + std::ops::Mul<Output = Self> + std::ops::Div<Output = Self>
{
    fn is_finite(self) -> bool;
}

impl Edge for f32 {
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Edge for f64 {
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

fn bind_histogram(args: &mut BindArgs<'_>) -> Result<()> {
    let bins = args.args().int(1)?;
    if bins <= 0 {
        return Err(Error::kernel("a histogram needs at least one bin")
            .argument("bins")
            .got(bins.to_string()));
    }
    args.resize(4, &[bins as usize])
}

/// The range that is asked for, or that of the data.
fn edges<C: Edge>(args: &Args<'_>, x: &Reader<'_, C>) -> Result<(C, C)> {
    let number = |s: Scalar| C::from_scalar(s);
    let (mut low, mut high) = (number(args.scalar(2)?), number(args.scalar(3)?));
    if low == high && x.meta().numel() > 0 {
        (low, high) = (C::HIGHEST, C::LOWEST);
        let mut buffer = [C::ZERO; BLOCK];
        x.blocks(&row_major(x.meta()), 0, &mut buffer, |_, block| {
            for v in block {
                low = if *v < low || v.is_nan() { *v } else { low };
                high = if *v > high || v.is_nan() { *v } else { high };
            }
            Ok(())
        })?;
    }
    if low == high {
        (low, high) = (low - C::ONE, high.plus(C::ONE));
    }
    if !low.is_finite() || !high.is_finite() || low > high {
        return Err(Error::kernel("a histogram needs a finite range")
            .argument("min")
            .expected("finite numbers, max not below min; without them, data without NaN and infinity")
            .got(format!("{low:?} to {high:?}")));
    }
    Ok((low, high))
}

fn histogram<C: Edge>(args: &Args<'_>) -> Result<()> {
    let x = Reader::<C>::new(args.tensor(0)?)?;
    let (low, high) = edges(args, &x)?;
    let bins = args.output(4)?.numel();
    Writer::<f64>::new(args.output(4)?)?.fill(0.0)?;
    let mut out = UpdateView::<f64>::new(args, 4)?;
    let mut buffer = [C::ZERO; BLOCK];
    x.blocks(&row_major(x.meta()), 0, &mut buffer, |_, block| {
        for v in block.iter().filter(|v| **v >= low && **v <= high) {
            let bin = ((*v - low) * C::from_i64(bins as i64) / (high - low)).to_i64() as usize;
            // The upper edge belongs to the last bin.
            out.update(bin.min(bins - 1), |count| count + 1.0)?;
        }
        Ok(())
    })
}

/// Calls `visit(position, count)` for every element of argument `i`, none of which may be negative.
fn for_each_count(args: &Args<'_>, i: usize, mut visit: impl FnMut(usize, i64) -> Result<()>) -> Result<()> {
    let x = Reader::<i64>::new(args.tensor(i)?)?;
    let mut buffer = [0; BLOCK];
    x.blocks(&row_major(x.meta()), 0, &mut buffer, |at, block| {
        block.iter().enumerate().try_for_each(|(i, count)| {
            if *count < 0 {
                return Err(Error::kernel("counts cannot be negative")
                    .argument("self")
                    .got(format!("{count} at position {}", at + i)));
            }
            visit(at + i, *count)
        })
    })
}

fn length_of_counts(args: &Args<'_>) -> Result<usize> {
    let mut length = args.int(2)?.max(0) as usize;
    for_each_count(args, 0, |_, v| {
        length = length.max((v as usize).saturating_add(1));
        Ok(())
    })?;
    Ok(length)
}

fn bind_counts(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (shape, least) = (*view.tensor(0)?.shape(), view.int(2)?);
    check_rank("self", 1, &shape)?;
    if let Some(weights) = view.optional_tensor(1)? {
        crate::shape::check_same("weights", &shape, weights.shape())?;
    }
    if least < 0 {
        return Err(Error::kernel("the least length cannot be negative")
            .argument("minlength")
            .got(least.to_string()));
    }
    let most = args.bound(3)?;
    args.resize(3, &most)
}

fn counts(args: &Args<'_>) -> Result<()> {
    let most = args.output(3)?.numel();
    if args.int(2)? > most as i64 {
        return Err(no_room(most));
    }
    let weights = args.optional_tensor(1)?.map(Reader::<f64>::new).transpose()?;
    let at = weights.as_ref().map(|w| row_major(w.meta()));
    // int64 counts stay below the number of elements, which a float64 holds exactly.
    Writer::<f64>::new(args.output(3)?)?.fill(0.0)?;
    let mut out = UpdateView::<f64>::new(args, 3)?;
    for_each_count(args, 0, |position, v| {
        if v >= most as i64 {
            return Err(no_room(most));
        }
        let weight = match (&weights, &at) {
            (Some(weights), Some(at)) => weights.get(at.offset(position) as usize)?,
            _ => 1.0,
        };
        out.update(v as usize, |sum| sum + weight)
    })
}

fn finish_counts(args: &mut BindArgs<'_>) -> Result<()> {
    let length = length_of_counts(&args.args())?;
    args.resize(3, &[length])
}

fn prepare_counts(ctx: &PrepareContext<'_>) -> Preparation {
    let (x, out) = (dtype_of(ctx, 0)?, dtype_of(ctx, 3)?);
    if !x.is_integer() || Class::of(x).is_none() {
        return Err(Error::kernel("only integers are counted").argument("self").got(x.name()));
    }
    let expected = match ctx.tensor(1).map(|t| t.dtype) {
        None => DType::Int64,
        Some(DType::Float32) => DType::Float32,
        Some(_) => DType::Float64,
    };
    if out != expected {
        return Err(Error::kernel("counts have another dtype")
            .argument("out")
            .expected(expected.name())
            .got(out.name()));
    }
    Routine::prepare_with_finish(bind_counts, |args, _| counts(args), finish_counts)
}

fn bind_repeats(args: &mut BindArgs<'_>) -> Result<()> {
    check_rank("repeats", 1, args.args().tensor(0)?.shape())?;
    let most = args.bound(2)?;
    args.resize(2, &most)
}

fn repeats(args: &Args<'_>) -> Result<()> {
    let mut out = Writer::<i64>::new(args.output(2)?)?;
    let most = out.meta().numel();
    let mut done = 0;
    for_each_count(args, 0, |position, times| {
        if times > (most - done) as i64 {
            return Err(no_room(most));
        }
        for _ in 0..times {
            out.put(done, position as i64)?;
            done += 1;
        }
        Ok(())
    })?;
    match args.optional_int(1)? {
        Some(size) if size != done as i64 => {
            Err(Error::kernel("the repeats do not add up to the output size")
                .argument("output_size")
                .expected(done.to_string())
                .got(size.to_string()))
        }
        _ => Ok(()),
    }
}

fn finish_repeats(args: &mut BindArgs<'_>) -> Result<()> {
    let mut total = 0;
    for_each_count(&args.args(), 0, |_, times| {
        total += times as usize;
        Ok(())
    })?;
    args.resize(2, &[total])
}

/// histc, bincount, repeat_interleave.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::histc.out(Tensor self, int bins=100, Scalar min=0, Scalar max=0, *, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 4)?;
            match Class::of(dtype_of(ctx, 0)?) {
                Some(Class::F64) => Routine::prepare(bind_histogram, |args, _| histogram::<f64>(args)),
                Some(Class::F32) => Routine::prepare(bind_histogram, |args, _| histogram::<f32>(args)),
                _ => Err(Error::kernel("a histogram needs floats")
                    .argument("self")
                    .got(dtype_of(ctx, 0)?.name())),
            }
        },
    ),
    kernel(
        "aten::bincount.out(Tensor self, Tensor? weights=None, SymInt minlength=0, *, Tensor(a!) out) -> Tensor(a!)",
        prepare_counts,
    )
    .fast("bins", bins::prepare),
    kernel(
        "aten::repeat_interleave.Tensor_out(Tensor repeats, *, SymInt? output_size=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| {
            same_dtype(ctx, 0, 2)?;
            if !matches!(dtype_of(ctx, 0)?, DType::Int32 | DType::Int64) {
                return Err(Error::kernel("repeats are int32 or int64")
                    .argument("repeats")
                    .got(dtype_of(ctx, 0)?.name()));
            }
            Routine::prepare_with_finish(bind_repeats, |args, _| repeats(args), finish_repeats)
        },
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn the_upper_edge_counts_and_nan_does_not() {
        let x = Tensor::of(&[5], &[0f32, 1.0, 2.0, f32::NAN, 9.0]);
        let histogram = |low: f64, high: f64| {
            run_out(
                "aten::histc.out",
                &[x.clone().into(), 2i64.into(), low.into(), high.into()],
                DType::Float32,
                &[2],
            )
        };
        assert_eq!(histogram(0.0, 2.0).unwrap().values::<f32>(), [1.0, 2.0]);
        assert!(error_text(histogram(0.0, 0.0)).contains("finite range"));
        assert!(error_text(histogram(2.0, 0.0)).contains("finite range"));
    }

    #[test]
    fn counts_grow_to_what_the_data_says() {
        let x = Tensor::of(&[3], &[1i32, 4, 1]);
        let count = |room: usize| {
            run_out("aten::bincount.out", &[x.clone().into(), Arg::None, 0i64.into()], DType::Int64, &[room])
        };
        assert_eq!(count(9).unwrap().values::<i64>(), [0, 2, 0, 0, 1]);
        assert!(error_text(count(4)).contains("at most 4"));
        let x = Tensor::of(&[2], &[1i64, -1]);
        let e = run_out("aten::bincount.out", &[x.into(), Arg::None, 0i64.into()], DType::Int64, &[9]);
        assert!(error_text(e).contains("negative"));
    }

    #[test]
    fn repeats_are_checked() {
        let x = Tensor::of(&[3], &[1i64, 0, 2]);
        let repeat = |size: Arg, room: usize| {
            run_out("aten::repeat_interleave.Tensor_out", &[x.clone().into(), size], DType::Int64, &[room])
        };
        assert_eq!(repeat(Arg::None, 7).unwrap().values::<i64>(), [0, 2, 2]);
        assert!(error_text(repeat(Arg::None, 2)).contains("at most 2"));
        assert!(error_text(repeat(Arg::Int(4), 7)).contains("add up"));
    }
}
