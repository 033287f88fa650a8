//! Moves between a row of elements and the elements that positions name: gather, scatter, index and their
//! kin. Unsafe island: every row and every position is checked before the first element moves.

use crate::complex_number::Number;
use crate::compute::{Class, Compute, Convert, store_fn, unsupported};
use crate::shape::check_index;
use crate::strided::copy::by_size;
use half::{bf16, f16};
use pteron_core::{Bool8, Complex64, DType, Error, Result, Scalar, TensorMeta, TensorView, TensorViewMut};

/// A row: element `i` lies at `start + i * step`.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Offset of the first element.
    pub start: isize,
    /// Elements from one to the next, not negative.
    pub step: isize,
}

/// Elements by position: the one that position `p` names at place `i` of a row lies at
/// `row.start + i * row.step + p * stride`.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Where position 0 lies.
    pub row: Row,
    /// Elements from one position to the next, not negative.
    pub stride: isize,
    /// Positions are below it.
    pub extent: usize,
}

#[cold]
fn outside() -> Error {
    Error::internal("a kernel reached outside a tensor")
}

/// An error that names the first of `positions` that is not in `0..extent`.
#[inline]
pub fn check_positions(positions: &[i64], extent: usize) -> Result<()> {
    let last = extent as i64 - 1;
    // A negative position, or one beyond the last, leaves its sign; no test per element.
    let signs = positions.iter().fold(0, |signs, p| signs | p | last.wrapping_sub(*p));
    if signs < 0 {
        return positions.iter().try_for_each(|p| check_index(*p, extent).map(|_| ()));
    }
    Ok(())
}

impl Row {
    /// An error unless `count` elements, each with `beyond` more behind it, are among `numel`.
    #[inline]
    fn check(self, count: usize, beyond: usize, numel: usize) -> Result<()> {
        let last = (count as isize - 1)
            .checked_mul(self.step)
            .and_then(|reach| reach.checked_add(self.start)?.checked_add_unsigned(beyond));
        match last {
            Some(last) if self.start >= 0 && self.step >= 0 && last < numel as isize => Ok(()),
            _ => Err(outside()),
        }
    }
}

impl Named {
    #[inline]
    fn check(self, positions: &[i64], numel: usize) -> Result<()> {
        check_positions(positions, self.extent)?;
        let stride = usize::try_from(self.stride).map_err(|_| outside())?;
        let beyond = self.extent.saturating_sub(1).checked_mul(stride).ok_or_else(outside)?;
        self.row.check(positions.len(), beyond, numel)
    }
}

/// Moves elements, of one size or with one way to meet: `target[i] ← source[i]`, where one side is a row and
/// the other is named.
///
/// # Safety
/// All elements lie inside their tensors, which do not overlap.
type MoveFn = unsafe fn(named: Named, positions: &[i64], row: Row, source: *const u8, target: *mut u8);

/// # Safety
/// As [`MoveFn`], for elements of the size of `T`.
unsafe fn gather_elements<T: Copy>(
    named: Named,
    positions: &[i64],
    row: Row,
    source: *const u8,
    target: *mut u8,
) {
    // SAFETY: contract of `MoveFn`. Unaligned access, since complex elements are aligned to half their size.
    unsafe {
        let (source, target) =
            (source.cast::<T>().offset(named.row.start), target.cast::<T>().offset(row.start));
        if (named.row.step, named.stride, row.step) == (0, 1, 1) {
            for (i, p) in positions.iter().enumerate() {
                target.add(i).write_unaligned(source.offset(*p as isize).read_unaligned());
            }
            return;
        }
        for (i, p) in positions.iter().enumerate() {
            let i = i as isize;
            let value = source.offset(i * named.row.step + *p as isize * named.stride).read_unaligned();
            target.offset(i * row.step).write_unaligned(value);
        }
    }
}

/// # Safety
/// As [`MoveFn`], for elements of the size of `T`.
unsafe fn scatter_elements<T: Copy>(
    named: Named,
    positions: &[i64],
    row: Row,
    source: *const u8,
    target: *mut u8,
) {
    // SAFETY: positions and rows are inside both tensors, as the caller promises of `named` and `row`.
    unsafe {
        let (source, target) =
            (source.cast::<T>().offset(row.start), target.cast::<T>().offset(named.row.start));
        for (i, p) in positions.iter().enumerate() {
            let i = i as isize;
            let value = source.offset(i * row.step).read_unaligned();
            target.offset(i * named.row.step + *p as isize * named.stride).write_unaligned(value);
        }
    }
}

/// How a value meets the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meet {
    /// It takes its place.
    Replace,
    /// Sum; integers wrap.
    Add,
    /// Product; integers wrap.
    Multiply,
    /// The larger; NaN wins.
    Maximum,
    /// The smaller; NaN wins.
    Minimum,
}

impl Meet {
    #[inline(always)]
    fn apply<C: Compute>(self, old: C, new: C) -> C {
        match self {
            Meet::Replace => new,
            Meet::Add => old.plus(new),
            Meet::Multiply => old.times(new),
            Meet::Maximum if old.is_nan() || old > new => old,
            Meet::Minimum if old.is_nan() || old < new => old,
            Meet::Maximum | Meet::Minimum => new,
        }
    }
}

/// Sums and products of float16 and bfloat16 in float32, of other floats in themselves, rounded each time.
///
/// # Safety
/// As [`MoveFn`], for the dtype of `T`.
unsafe fn meet_elements<T: Convert, C: Compute, const MEET: u8>(
    named: Named,
    positions: &[i64],
    row: Row,
    source: *const u8,
    target: *mut u8,
) {
    let meet = [Meet::Add, Meet::Multiply, Meet::Maximum, Meet::Minimum][MEET as usize];
    // SAFETY: positions and rows are inside both tensors, as the caller promises of `named` and `row`.
    unsafe {
        let (source, target) =
            (source.cast::<T>().offset(row.start), target.cast::<T>().offset(named.row.start));
        for (i, p) in positions.iter().enumerate() {
            let i = i as isize;
            let new = C::read(source.offset(i * row.step).read());
            let place = target.offset(i * named.row.step + *p as isize * named.stride);
            place.write(meet.apply(C::read(place.read()), new).write());
        }
    }
}

fn meet_fn<T: Convert, C: Compute>(meet: Meet) -> MoveFn {
    match meet {
        Meet::Replace => scatter_elements::<T>,
        Meet::Add => meet_elements::<T, C, 0>,
        Meet::Multiply => meet_elements::<T, C, 1>,
        Meet::Maximum => meet_elements::<T, C, 2>,
        Meet::Minimum => meet_elements::<T, C, 3>,
    }
}

fn move_fn(dtype: DType, meet: Meet) -> Result<MoveFn> {
    Ok(match (dtype, meet) {
        (_, Meet::Replace) => by_size!(dtype.size(), T => scatter_elements::<T> as MoveFn),
        (DType::UInt8, _) => meet_fn::<u8, i64>(meet),
        (DType::Int8, _) => meet_fn::<i8, i64>(meet),
        (DType::Int16, _) => meet_fn::<i16, i64>(meet),
        (DType::Int32, _) => meet_fn::<i32, i64>(meet),
        (DType::Int64, _) => meet_fn::<i64, i64>(meet),
        (DType::UInt16, _) => meet_fn::<u16, i64>(meet),
        (DType::UInt32, _) => meet_fn::<u32, i64>(meet),
        (DType::Bool, _) => meet_fn::<Bool8, i64>(meet),
        (DType::Complex64, Meet::Add | Meet::Multiply) => meet_fn::<Complex64, Number>(meet),
        (DType::Float16, _) => meet_fn::<f16, f32>(meet),
        (DType::BFloat16, _) => meet_fn::<bf16, f32>(meet),
        (DType::Float32, _) => meet_fn::<f32, f32>(meet),
        (DType::Float64, _) => meet_fn::<f64, f64>(meet),
        _ => return Err(unsupported(dtype)),
    })
}

/// Writes the elements of `source` that `positions` name to a row of `target`, which has the same dtype.
#[inline]
pub fn gather(
    source: &TensorView<'_>,
    named: Named,
    positions: &[i64],
    target: &mut TensorViewMut<'_>,
    row: Row,
) -> Result<()> {
    if positions.is_empty() {
        return Ok(());
    }
    named.check(positions, source.numel())?;
    row.check(positions.len(), 0, target.numel())?;
    if source.dtype().size() != target.dtype().size() {
        return Err(outside());
    }
    let function = by_size!(source.dtype().size(), T => gather_elements::<T> as MoveFn);
    // SAFETY: both sides were checked just now; an input and an output do not overlap.
    unsafe { function(named, positions, row, source.as_ptr(), target.as_ptr()) };
    Ok(())
}

/// Scatters rows into an output, with one way to meet what is there.
pub struct Scatter<'a> {
    target: TensorViewMut<'a>,
    dtype: DType,
    function: MoveFn,
}

impl<'a> Scatter<'a> {
    /// Into `target`; an error for dtypes that do not meet that way.
    pub fn new(target: TensorViewMut<'a>, meet: Meet) -> Result<Self> {
        let dtype = target.dtype();
        Ok(Scatter { function: move_fn(dtype, meet)?, target, dtype })
    }

    /// Writes a row of `source`, which has the same dtype, to the elements that `positions` name, in order.
    #[inline]
    pub fn row(&mut self, source: &TensorView<'_>, row: Row, named: Named, positions: &[i64]) -> Result<()> {
        if positions.is_empty() {
            return Ok(());
        }
        named.check(positions, self.target.numel())?;
        row.check(positions.len(), 0, source.numel())?;
        if source.dtype() != self.dtype {
            return Err(outside());
        }
        // SAFETY: both sides were checked just now; an input and an output do not overlap.
        unsafe { (self.function)(named, positions, row, source.as_ptr(), self.target.as_ptr()) };
        Ok(())
    }
}

/// Calls `then` with a tensor of one element that holds `value` in `dtype`.
pub fn with_number(
    dtype: DType,
    value: Scalar,
    then: impl FnOnce(&TensorView<'_>) -> Result<()>,
) -> Result<()> {
    let mut memory = [0u64; 2];
    let refusal = || unsupported(dtype);
    let place = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: an element of any dtype has at most 16 bytes.
    unsafe {
        if dtype == DType::Complex64 {
            store_fn::<Number>(dtype).ok_or_else(refusal)?(&[Number::from_scalar(value)], place, 1);
        } else if Class::of(dtype) == Some(Class::I64) {
            store_fn::<i64>(dtype).ok_or_else(refusal)?(&[value.to_i64()], place, 1);
        } else {
            store_fn::<f64>(dtype).ok_or_else(refusal)?(&[value.to_f64()], place, 1);
        }
    }
    let meta = TensorMeta::contiguous(dtype, &[1])?;
    // SAFETY: the memory holds the element and outlives the view.
    then(&unsafe { TensorView::from_raw(memory.as_ptr().cast(), &meta) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_reachable() {
        let data = [1f32, 2.0, 3.0, 4.0];
        let mut out = [0f32; 4];
        let meta = TensorMeta::contiguous(DType::Float32, &[4]).unwrap();
        // SAFETY: both blocks have four elements and outlive the views.
        let (source, mut target) = unsafe {
            (
                TensorView::from_raw(data.as_ptr().cast(), &meta),
                TensorViewMut::from_raw(out.as_mut_ptr().cast(), &meta),
            )
        };
        let row = |start, step| Row { start, step };
        let named = |start, step, stride, extent| Named { row: row(start, step), stride, extent };
        gather(&source, named(0, 0, 1, 4), &[3, 0], &mut target, row(0, 1)).unwrap();
        for (bad, to) in [
            (named(0, 0, 1, 5), row(0, 1)),
            (named(1, 0, 1, 4), row(0, 1)),
            (named(0, 1, 1, 4), row(0, 1)),
            (named(-1, 1, 1, 2), row(0, 1)),
            (named(0, 0, -1, 1), row(0, 1)),
            (named(0, 0, isize::MAX, 4), row(0, 1)),
            (named(0, 0, 1, 4), row(3, 1)),
            (named(0, 0, 1, 4), row(0, 4)),
            (named(0, 0, 1, 4), row(0, isize::MAX)),
        ] {
            assert!(gather(&source, bad, &[0, 0], &mut target, to).is_err());
        }
        for wrong in [-1, 4, i64::MIN, i64::MAX] {
            let e = gather(&source, named(0, 0, 1, 4), &[0, wrong], &mut target, row(0, 1)).unwrap_err();
            assert!(e.to_string().contains(&wrong.to_string()), "{e}");
        }
        assert_eq!(out, [4.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn values_meet_in_order_and_nan_wins() {
        let data = [2f32, f32::NAN, 5.0, 7.0];
        let meta = TensorMeta::contiguous(DType::Float32, &[4]).unwrap();
        for (meet, expected) in [
            (Meet::Replace, [5.0, 7.0]),
            (Meet::Add, [8.0, 8.0]),
            (Meet::Multiply, [10.0, 7.0]),
            (Meet::Minimum, [1.0, 1.0]),
            (Meet::Maximum, [5.0, 7.0]),
        ] {
            let mut out = [1f32, 1.0, 1.0, 1.0];
            // SAFETY: both blocks have four elements and outlive the views.
            let (source, target) = unsafe {
                (
                    TensorView::from_raw(data.as_ptr().cast(), &meta),
                    TensorViewMut::from_raw(out.as_mut_ptr().cast(), &meta),
                )
            };
            let mut scatter = Scatter::new(target, meet).unwrap();
            let named = Named { row: Row { start: 0, step: 0 }, stride: 1, extent: 4 };
            scatter.row(&source, Row { start: 0, step: 1 }, named, &[0, 2, 0, 3]).unwrap();
            assert_eq!([out[0], out[3]], expected, "{meet:?}");
            assert!(out[2].is_nan() && out[1] == 1.0);
        }
    }
}
