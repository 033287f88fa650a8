//! Padding: constant, reflection, replication.
//!
//! Shape: every padded extent grows by its two paddings. Dtype: kept. Edge cases: a negative padding
//! crops; a reflection must be smaller than what it reflects.

use crate::chunk::{CHUNK, part};
use crate::compute::{Compute, Kind, by_kind};
use crate::elements::Writer;
use crate::grid_kernel::{GridKernel, Part, prepared};
use crate::operator::{Operator, kernel, operator};
use crate::ops::layout::same_dtype;
use crate::ops::masked_choice::check_representable;
use crate::routine::{Preparation, dtype_of};
use crate::strided::copy::{RegionCopy, StridedRegion};
use crate::strided::mapped_copy::{self, Mapping};
use pteron_core::{Args, BindArgs, DType, Dims, Error, Grid, MAX_RANK, PrepareContext, Result};

mod constant;

/// The paddings of every dimension, leading and trailing, and the padded shape. With `dims`, the input has that
/// many spatial ones.
fn paddings(args: &Args<'_>, dims: Option<usize>) -> Result<([[i64; 2]; MAX_RANK], Dims)> {
    let (x, pad) = (args.tensor(0)?, args.int_list(1)?);
    let mut out = [[0; 2]; MAX_RANK];
    let mut shape = *x.shape();
    let count = pad.len() / 2;
    if pad.len() % 2 != 0
        || count > shape.len()
        || dims.is_some_and(|n| n != count || !(n + 1..=n + 2).contains(&shape.len()))
    {
        return Err(Error::kernel("paddings come in pairs, one for each padded dimension")
            .argument("pad")
            .got(format!("{} paddings for shape {shape}", pad.len())));
    }
    for i in 0..count {
        let d = shape.len() - 1 - i;
        out[d] = [pad.get(2 * i)?, pad.get(2 * i + 1)?];
        let extent = i64::try_from(shape[d])
            .ok()
            .and_then(|n| n.checked_add(out[d][0])?.checked_add(out[d][1]))
            .filter(|n| *n >= 0)
            // PyTorch crops before it fills: what is not there cannot be taken away.
            .filter(|_| dims.is_some() || crops_at_most(out[d], shape[d]));
        let Some(extent) = extent else {
            return Err(Error::kernel("a padding leaves no valid extent")
                .argument("pad")
                .got(format!("{:?} for extent {}", out[d], shape[d])));
        };
        shape[d] = extent as usize;
    }
    Ok((out, shape))
}

/// Do negative paddings take away no more than there is?
fn crops_at_most([before, after]: [i64; 2], extent: usize) -> bool {
    before.min(0).unsigned_abs().saturating_add(after.min(0).unsigned_abs()) <= extent as u64
}

/// Fills, then copies what is left of the input.
struct Constant;

impl GridKernel for Constant {
    /// The copy of what is left, and the elements of the output.
    type Problem = (RegionCopy, usize);

    fn new_problem(&self) -> (RegionCopy, usize) {
        (RegionCopy::EMPTY, 0)
    }

    fn bind(&self, args: &mut BindArgs<'_>, (copy, numel): &mut (RegionCopy, usize)) -> Result<Grid> {
        let (pads, shape) = paddings(&args.args(), None)?;
        args.resize(3, &shape)?;
        let view = args.args();
        let (x, out) = (view.tensor(0)?, view.tensor(3)?);
        let (mut from, mut to) = (StridedRegion::of(x.strides()), StridedRegion::of(out.strides()));
        let mut kept = *x.shape();
        for d in 0..kept.len() {
            let [before, after] = pads[d];
            // A negative padding takes elements away from the input.
            from.offset += before.min(0).unsigned_abs() as isize * from.strides[d];
            to.offset += before.max(0) as isize * to.strides[d];
            kept[d] = (kept[d] as i64 + before.min(0) + after.min(0)).max(0) as usize;
        }
        *copy = RegionCopy::new(&kept, from, x.numel(), to, out.numel())?;
        *numel = out.numel();
        // Nothing is left to fill where nothing is padded.
        let filled = if copy.numel() == *numel { 0 } else { numel.div_ceil(CHUNK) };
        Ok(Grid::phases(&[filled, copy.numel().div_ceil(CHUNK)], CHUNK / 2))
    }

    fn run(
        &self,
        (copy, numel): &(RegionCopy, usize),
        Part { args, phase, chunk, .. }: Part<'_>,
    ) -> Result<()> {
        let mut out = args.output(3)?;
        if phase > 0 {
            return copy.run(&args.tensor(0)?, &mut out, part(chunk, CHUNK, copy.numel()));
        }
        let (value, range) = (args.scalar(2)?, part(chunk, CHUNK, *numel));
        if out.dtype() == DType::Bool {
            // True for every number but zero: 0.5 must not become an integer before.
            return Writer::<i64>::new(out)?.fill_range(range, i64::from(value.to_bool()));
        }
        by_kind!(Kind::of(out.dtype())?, C, Writer::<C>::new(out)?.fill_range(range, C::from_scalar(value)))
    }
}

fn prepare_constant(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 3)?;
    let dtype = dtype_of(ctx, 0)?;
    Kind::of(dtype)?;
    check_representable(ctx.args.get(2), dtype)?;
    prepared("reference", Constant)
}

/// Which input index an output index shows, before the shift by the leading padding.
type MapFn = fn(i64, i64) -> i64;

fn reflect(i: i64, extent: i64) -> i64 {
    if i < 0 {
        -i
    } else if i >= extent {
        2 * (extent - 1) - i
    } else {
        i
    }
}

fn replicate(i: i64, extent: i64) -> i64 {
    i.clamp(0, extent - 1)
}

/// The last `dims` dimensions list where they read.
fn map(args: &Args<'_>, dims: usize, is_reflection: bool) -> Result<Mapping> {
    let x = args.tensor(0)?;
    let (pads, shape) = paddings(args, Some(dims))?;
    if x.shape()[usize::from(x.rank() == dims + 2)..].contains(&0) {
        return Err(Error::kernel("only the batch of what is padded may be empty")
            .argument("self")
            .got(x.shape().to_string()));
    }
    for (d, extent) in x.shape().iter().enumerate().skip(shape.len() - dims) {
        let most = if is_reflection { *extent as i64 - 1 } else { i64::MAX };
        if pads[d].iter().any(|p| *p > most) {
            return Err(Error::kernel("the padding is larger than what it repeats")
                .argument("padding")
                .expected(format!("at most {most}"))
                .got(format!("{:?}", pads[d])));
        }
    }
    if shape.iter().skip(shape.len() - dims).all(|n| *n == 0) {
        return Err(Error::kernel("a padding leaves no valid extent")
            .argument("padding")
            .got(shape.to_string()));
    }
    let listed = (shape.len() - dims..shape.len()).fold(0, |set, d| set | 1 << d);
    Ok(Mapping::new(&x, shape, listed))
}

fn list(args: &Args<'_>, d: usize, first: usize, list: &mut [usize], from: MapFn) -> Result<()> {
    let before = paddings(args, None)?.0[d][0];
    let extent = args.tensor(0)?.shape().get(d).copied().unwrap_or(1) as i64;
    for (i, slot) in list.iter_mut().enumerate() {
        *slot = from((first + i) as i64 - before, extent) as usize;
    }
    Ok(())
}

fn prepare<const DIMS: usize, const REFLECT: bool>(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 2)?;
    Kind::of(dtype_of(ctx, 0)?)?;
    mapped_copy::prepare(
        ctx,
        2,
        |args| map(args, DIMS, REFLECT),
        |args, d, first, out| list(args, d, first, out, if REFLECT { reflect } else { replicate }),
    )
}

/// Padding.
pub static OPERATORS: &[Operator] = &[
    operator("aten::constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out) -> Tensor(a!)")
        .fast("rows", constant::prepare)
        .plain(prepare_constant),
    kernel(
        "aten::reflection_pad1d.out(Tensor self, SymInt[2] padding, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<1, true>,
    ),
    kernel(
        "aten::reflection_pad2d.out(Tensor self, SymInt[4] padding, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<2, true>,
    ),
    kernel(
        "aten::reflection_pad3d.out(Tensor self, SymInt[6] padding, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<3, true>,
    ),
    kernel(
        "aten::replication_pad1d.out(Tensor self, SymInt[2] padding, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<1, false>,
    ),
    kernel(
        "aten::replication_pad2d.out(Tensor self, SymInt[4] padding, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<2, false>,
    ),
    kernel(
        "aten::replication_pad3d.out(Tensor self, SymInt[6] padding, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<3, false>,
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn constant_padding_grows_and_crops() {
        let x = Tensor::of(&[3], &[1i32, 2, 3]);
        let pad = |p: &[i64], n| {
            run_out(
                "aten::constant_pad_nd.out",
                &[x.clone().into(), p.to_vec().into(), Arg::Int(9)],
                DType::Int32,
                &[n],
            )
        };
        assert_eq!(pad(&[1, -1], 3).unwrap().values::<i32>(), [9, 1, 2]);
        assert_eq!(pad(&[-3, 2], 2).unwrap().values::<i32>(), [9, 9]);
        assert!(error_text(pad(&[-4, 3], 2)).contains("extent"));
        assert!(error_text(pad(&[-4, 0], 2)).contains("extent"));
        assert!(error_text(pad(&[i64::MAX, 1], 2)).contains("extent"));
        assert!(error_text(pad(&[1], 2)).contains("pairs"));
    }

    #[test]
    fn reflections_must_fit() {
        let x = Tensor::of(&[1, 3], &[1f32, 2.0, 3.0]);
        let pad = |op: &str, p: [i64; 2], n| {
            run_out(op, &[x.clone().into(), p.to_vec().into()], DType::Float32, &[1, n])
        };
        let y = pad("aten::reflection_pad1d.out", [2, 1], 6).unwrap();
        assert_eq!(y.values::<f32>(), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
        let y = pad("aten::replication_pad1d.out", [2, 1], 6).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        assert!(error_text(pad("aten::reflection_pad1d.out", [3, 0], 6)).contains("larger than"));
    }
}
