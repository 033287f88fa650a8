//! index_reduce: slices of a source meet the slices of a tensor that positions name.
//!
//! Shape: that of `self`. Dtype: kept, the source has the same; positions are int32 or int64 and checked.
//! Edge cases: NaN wins every extreme; means of integers round down; without `include_self` a named slice
//! starts from the first that meets it. `rows` and `lines` are the fast kernels.

use crate::compute::{BLOCK, Class, Compute};
use crate::elements::{Reader, UpdateView};
use crate::grid_kernel::take_scratch;
use crate::operator::{Operator, kernel};
use crate::ops::indexing::check_positions;
use crate::ops::layout::same_dtype;
use crate::routine::{Routine, dtype_of};
use crate::shape::{check_index, wrap_dim};
use crate::strided::copy::copy_whole;
use crate::strided::loops::{Walk, signed};
use pteron_core::{Args, BindArgs, DType, Dims, Error, Result, sizes};

mod joins;
mod lines;
mod rows;

/// How a slice meets the one that is there.
#[derive(Clone, Copy, PartialEq)]
enum Meet {
    Multiply,
    Mean,
    Maximum,
    Minimum,
}

impl Meet {
    fn of(args: &Args<'_>) -> Result<Meet> {
        Ok(match args.optional_string(4)? {
            Some("prod") => Meet::Multiply,
            Some("mean") => Meet::Mean,
            Some("amax") => Meet::Maximum,
            Some("amin") => Meet::Minimum,
            other => {
                return Err(Error::kernel("unknown reduction")
                    .argument("reduce")
                    .expected("prod, mean, amax or amin")
                    .got(format!("{other:?}")));
            }
        })
    }

    fn apply<C: Compute>(self, old: C, new: C) -> C {
        match self {
            Meet::Multiply => old.times(new),
            Meet::Mean => old.plus(new),
            Meet::Maximum if old.is_nan() || old > new => old,
            Meet::Minimum if old.is_nan() || old < new => old,
            Meet::Maximum | Meet::Minimum => new,
        }
    }
}

/// Where the output stands.
const REDUCED: usize = 6;

fn along(shape: &Dims, strides: &Dims, dim: usize) -> (usize, usize) {
    (shape.get(dim).copied().unwrap_or(1), strides.get(dim).copied().unwrap_or(0))
}

/// Slices of the source meet those that positions name in a copy of the input, one position after the other.
fn bind_index_reduce(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (x, index, source) = (view.tensor(0)?, view.tensor(2)?, view.tensor(3)?);
    let dim = wrap_dim(view.int(1)?, x.rank())?;
    let mut wanted = *x.shape();
    if let Some(extent) = wanted.get_mut(dim) {
        *extent = index.numel();
    }
    if index.rank() > 1 || source.shape() != &wanted || (x.rank() == 0 && index.numel() != 1) {
        return Err(Error::kernel("there must be one slice of the source for every position")
            .argument("source")
            .expected(wanted.to_string())
            .got(source.shape().to_string()));
    }
    let shape = *x.shape();
    args.resize(REDUCED, &shape)
}

fn index_reduce<C: Compute>(args: &Args<'_>, mut scratch: &mut [u8], divide: fn(C, i64) -> C) -> Result<()> {
    let reduction = Meet::of(args)?;
    let (includes_self, index) = (args.bool(5)?, Reader::<i64>::new(args.tensor(2)?)?);
    copy_whole(&args.tensor(0)?, &mut args.output(REDUCED)?)?;
    let src = Reader::<C>::new(args.tensor(3)?)?;
    let mut y = UpdateView::<C>::new(args, REDUCED)?;
    let meta = y.meta;
    let dim = wrap_dim(args.int(1)?, meta.rank())?;
    let (extent, stride) = along(meta.shape(), meta.strides(), dim);
    let (_, src_stride) = along(src.meta().shape(), src.meta().strides(), dim);
    let (rest, from) = without_dim(src.meta().shape(), src.meta().strides(), dim);
    let (_, to) = without_dim(src.meta().shape(), meta.strides(), dim);
    let meetings = sorted(&index, extent, take_scratch(&mut scratch, index.meta().numel())?)?;
    let mut buffer = [C::ZERO; BLOCK];
    for met in meetings.chunk_by(|a, b| a.slice == b.slice) {
        let times = met.len() as i64 + i64::from(includes_self);
        for (i, Meeting { slice, position }) in met.iter().enumerate() {
            let (is_first, is_last) = (i == 0 && !includes_self, i + 1 == met.len());
            let (source, target) = (*position as usize * src_stride, *slice as usize * stride);
            for start in (0..rest).step_by(BLOCK) {
                let values = &mut buffer[..BLOCK.min(rest - start)];
                src.gather(&from, source as isize, start, values)?;
                y.update_all(&to, target as isize, start, values, |old, value| {
                    let met = if is_first { value } else { reduction.apply(old, value) };
                    if is_last && reduction == Meet::Mean { divide(met, times) } else { met }
                })?;
            }
        }
    }
    Ok(())
}

/// A slice, and the position that names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Meeting {
    slice: u64,
    position: u64,
}

/// All positions by the slice that they name, in their own order; they are checked.
fn sorted<'a>(index: &Reader<'_, i64>, extent: usize, meetings: &'a mut [Meeting]) -> Result<&'a [Meeting]> {
    for (position, meeting) in meetings.iter_mut().enumerate() {
        let slice = check_index(index.get(position)?, extent).map_err(|e| e.argument("index"))?;
        *meeting = Meeting { slice: slice as u64, position: position as u64 };
    }
    meetings.sort_unstable();
    Ok(meetings)
}

/// Elements beside one dimension, and a walk over them by `strides`.
fn without_dim(shape: &Dims, strides: &Dims, dim: usize) -> (usize, Walk) {
    let walk = Walk::new((0..shape.len()).filter(|d| *d != dim), shape, &signed(strides));
    (walk.numel(), walk)
}

/// index_reduce.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::index_reduce.out(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True, Tensor(a!) out) -> Tensor(a!)",
    |ctx| {
        same_dtype(ctx, 0, REDUCED)?;
        same_dtype(ctx, 3, REDUCED)?;
        check_positions(ctx, 2)?;
        // A meeting for each position.
        let most = ctx.tensor(2).map_or(Ok(0), |index| index.shape.numel())?;
        let scratch = sizes::checked_nbytes(&Dims::new(&[most, 2])?, DType::Int64)?;
        match Class::required(dtype_of(ctx, 0)?)? {
            // Integers round down, as PyTorch does; the divisor is positive.
            Class::I64 => Routine::prepare_with_scratch(scratch, bind_index_reduce, |args, s| {
                index_reduce::<i64>(args, s.worker, i64::div_euclid)
            }),
            _ => Routine::prepare_with_scratch(scratch, bind_index_reduce, |args, s| {
                index_reduce::<f64>(args, s.worker, |sum, count| sum / count as f64)
            }),
        }
    },
)
.fast("rows", rows::prepare)
.fast("lines", lines::prepare)];

#[cfg(test)]
mod tests {
    use crate::compute::BLOCK;
    use crate::testing::{Arg, Tensor, run_out};
    use pteron_core::DType;

    #[test]
    fn slices_meet_in_the_order_of_their_positions() {
        let (extent, count) = (7, 500usize);
        let x: Vec<f64> = (0..extent).map(|i| 1.0 + i as f64).collect();
        let at: Vec<i64> = (0..count as i64).map(|i| i * i % 5).collect();
        let source: Vec<f64> = (0..count).map(|i| 1.0 + (i % 3) as f64 / 64.0).collect();
        for includes_self in [false, true] {
            for (reduce, one) in [("prod", false), ("mean", true)] {
                let mut want = x.clone();
                for slot in 0..extent {
                    let met: Vec<f64> =
                        (0..count).filter(|i| at[*i] == slot as i64).map(|i| source[i]).collect();
                    let own = includes_self.then_some(x[slot]);
                    let terms = own.into_iter().chain(met.iter().copied());
                    want[slot] = match met.len() {
                        0 => x[slot],
                        n if one => terms.sum::<f64>() / (n + usize::from(includes_self)) as f64,
                        _ => terms.product(),
                    };
                }
                let inputs: [Arg; 6] = [
                    Tensor::of(&[extent], &x).into(),
                    0.into(),
                    Tensor::of(&[count], &at).into(),
                    Tensor::of(&[count], &source).into(),
                    reduce.into(),
                    includes_self.into(),
                ];
                let got = run_out("aten::index_reduce.out", &inputs, DType::Float64, &[extent]).unwrap();
                assert_eq!(got.values::<f64>(), want, "{reduce} {includes_self}");
            }
        }
    }

    #[test]
    fn slices_of_more_than_a_block_meet_along_any_dimension() {
        let (outer, extent, inner) = (2, 3, BLOCK / 2 + 3);
        let at = [2i64, 0, 2];
        let x: Vec<f64> = (0..outer * extent * inner).map(|i| (i % 11) as f64 - 5.0).collect();
        let source: Vec<f64> = (0..outer * at.len() * inner).map(|i| (i % 7) as f64 - 3.0).collect();
        for reduce in ["prod", "amax", "amin"] {
            let meet = |old: f64, new: f64| match reduce {
                "prod" => old * new,
                "amax" => old.max(new),
                _ => old.min(new),
            };
            let mut want = x.clone();
            for (i, value) in source.iter().enumerate() {
                let (row, column) = (i / inner, i % inner);
                let slot = at[row % at.len()] as usize;
                let old = &mut want[(row / at.len() * extent + slot) * inner + column];
                *old = meet(*old, *value);
            }
            let inputs: [Arg; 6] = [
                Tensor::of(&[outer, extent, inner], &x).into(),
                1.into(),
                Tensor::of(&[at.len()], &at).into(),
                Tensor::of(&[outer, at.len(), inner], &source).into(),
                reduce.into(),
                true.into(),
            ];
            let shape = [outer, extent, inner];
            let got = run_out("aten::index_reduce.out", &inputs, DType::Float64, &shape).unwrap();
            assert_eq!(got.values::<f64>(), want, "{reduce}");
        }
    }
}
