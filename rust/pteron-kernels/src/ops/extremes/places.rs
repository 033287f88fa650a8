//! max, min, argmax and argmin of floats over neighbouring dimensions: the largest or smallest element and its place. The first
//! NaN wins, of equal elements the first. Unsafe island (vector loads).

use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::columns::{Columns, Number};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::reduction::plain::check_not_empty;
use crate::reduction::shape::{DimsArg, ReducedDims, Volumes};
use crate::routine::Preparation;
use crate::vector_math::simd::MOST_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Error, PrepareContext, Result};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements of a chunk, about.
const CHUNK: usize = 32 << 10;
/// Neighbouring results of a unit.
const COLUMNS: usize = 64;

/// Which outputs an operator has, and which dimensions it reduces.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub is_largest: bool,
    /// Positions of the outputs.
    pub value: Option<usize>,
    pub place: usize,
    /// Bits of the dimensions.
    pub set: fn(&Args<'_>) -> Result<u32>,
}

/// Does `v`, which comes later, replace the best?
#[inline(always)]
fn beats<N: Number, const LARGEST: bool>(v: N, best: N) -> bool {
    !best.is_nan() && (v.is_nan() || if LARGEST { v > best } else { v < best })
}

/// Units are rows whose elements are neighbours, or else some neighbouring results.
struct Places<T> {
    level: SimdLevel,
    dims: ReducedDims,
    form: Form,
    element: PhantomData<T>,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Float32) => prepare_of::<f32>(ctx, form),
        Some(DType::Float64) => prepare_of::<f64>(ctx, form),
        Some(DType::Float16) => prepare_of::<f16>(ctx, form),
        Some(DType::BFloat16) => prepare_of::<bf16>(ctx, form),
        _ => ctx.decline("takes floats of at least 16 bits"),
    }
}

fn prepare_of<T: Columns>(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
    let outputs = [form.value, Some(form.place)].into_iter().flatten();
    let (Some(input), Some(dims)) = (
        ctx.tensor(0),
        outputs.map(|out| ReducedDims::neighbours(ctx, out, DimsArg::One)).reduce(Option::and).flatten(),
    ) else {
        return ctx.decline("takes reduced dimensions that are neighbours in memory");
    };
    let is_one = matches!(ctx.args.get(1), Some(ArgSpec::Int(_)));
    if !is_one && !input.dim_order.is_contiguous() {
        return ctx.decline("takes all dimensions of a row-major tensor");
    }
    if !input.shape.numel().is_ok_and(|n| i32::try_from(n).is_ok()) {
        return ctx.decline("takes fewer than 2^31 elements");
    }
    if ctx.tensor(form.place).is_none_or(|t| t.dtype != DType::Int64) {
        return ctx.decline("gives places in int64");
    }
    if form.value.is_some_and(|out| ctx.tensor(out).is_none_or(|t| t.dtype != T::DTYPE)) {
        return ctx.decline("gives values of the dtype of its input");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let what = if form.is_largest { "largest" } else { "smallest" };
    let name = format!("{what}_and_place.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, Places { level, dims, form, element: PhantomData::<T> })
}

impl<T: Columns> UnitKernel for Places<T> {
    type Problem = Volumes;

    fn bind(&self, args: &mut BindArgs<'_>, volumes: &mut Volumes) -> Result<Split> {
        let set = (self.form.set)(&args.args())?;
        check_not_empty(&args.args(), set)?;
        for out in [self.form.value, Some(self.form.place)].into_iter().flatten() {
            *volumes = self.dims.bind(args, out)?;
        }
        if i32::try_from(volumes.reduced).is_err() {
            return Err(Error::internal("a dimension is longer than its upper bound"));
        }
        if volumes.reduced == 0 {
            return Ok(Split::NONE);
        }
        let (units, size) = volumes.units(COLUMNS);
        Ok(Split::sized(units, size, CHUNK, 0.25))
    }

    fn run(&self, volumes: &Volumes, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let input = chunk.input::<T>(0)?;
        let values = self.form.value.map(|out| chunk.output_shared::<T>(out)).transpose()?;
        let places = chunk.output_shared::<i64>(self.form.place)?;
        let Volumes { outer, reduced, inner } = *volumes;
        let results = outer * inner;
        if input.len() < results * reduced
            || places.len() < results
            || values.as_ref().is_some_and(|v| v.len() < results)
        {
            return Err(Error::internal("an extreme would leave its tensors"));
        }
        let task = Task { input, values, places, volumes: *volumes, units: chunk.units.clone() };
        match self.form.is_largest {
            true => self.level.dispatch(Of::<T, true>(task)),
            false => self.level.dispatch(Of::<T, false>(task)),
        }
        Ok(())
    }
}

/// The units of a chunk; the tensors have the elements that `volumes` says.
struct Task<'a, T: Columns> {
    input: ChunkOf<'a, T>,
    values: Option<ChunkOfMut<'a, T>>,
    places: ChunkOfMut<'a, i64>,
    volumes: Volumes,
    units: Range<usize>,
}

struct Of<'a, T: Columns, const LARGEST: bool>(Task<'a, T>);

impl<T: Columns, const LARGEST: bool> SimdTask for Of<'_, T, LARGEST> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Volumes { reduced, inner, .. } = self.0.volumes;
        let width = T::Number::width::<S>();
        for unit in self.0.units.clone() {
            // SAFETY: the unit is one of the volumes', whose elements and results the tensors have; no other chunk has it.
            unsafe {
                if inner == 1 {
                    self.row(s, unit, reduced);
                    continue;
                }
                let parts = inner.div_ceil(COLUMNS);
                let (stretch, first) = (unit / parts, unit % parts * COLUMNS);
                let end = inner.min(first + COLUMNS);
                for c in (first..end).step_by(width) {
                    match end - c >= width {
                        // A constant number: no partial loads.
                        true => self.columns(s, stretch, c, width),
                        false => self.columns(s, stretch, c, end - c),
                    }
                }
            }
        }
    }
}

impl<T: Columns, const LARGEST: bool> Of<'_, T, LARGEST> {
    /// Result `row`, of `n` neighbours.
    ///
    /// # Safety
    /// The row and its result exist; `n` is positive.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, row: usize, n: usize) {
        let width = T::Number::width::<S>();
        // SAFETY: the row exists, and so do its elements below `n`.
        unsafe {
            let x = self.0.input.as_ptr().add(row * n);
            let (mut best, mut place, mut at) = ((*x).wide(), 0, 1);
            if n >= width {
                (best, place) = self.lanes(s, x, n);
                at = n - n % width;
            }
            for i in at..n {
                let v = (*x.add(i)).wide();
                if beats::<_, LARGEST>(v, best) {
                    (best, place) = (v, i);
                }
            }
            *self.0.places.as_ptr().add(row) = place as i64;
            if let Some(values) = &self.0.values {
                *values.as_ptr().add(row) = *x.add(place);
            }
        }
    }

    /// The extreme of as many of `n` neighbours as whole blocks have, and its place.
    ///
    /// # Safety
    /// They are readable, and a block at least.
    #[inline(always)]
    unsafe fn lanes<S: Simd>(&self, s: S, x: *const T, n: usize) -> (T::Number, usize) {
        let width = T::Number::width::<S>();
        assert!(width <= MOST_LANES);
        let mut best = [T::Number::ZERO; MOST_LANES];
        let mut places = [T::Number::NOWHERE; MOST_LANES];
        // SAFETY: blocks lie among the elements; there is room for the lanes of one.
        unsafe {
            let mut state = (T::load_block(s, x, width), T::Number::places(s, 0));
            for at in (width..n - n % width).step_by(width) {
                let v = T::load_block(s, x.add(at), width);
                state = T::Number::overtake::<S, LARGEST>(s, state, v, T::Number::places(s, at));
            }
            T::Number::store_block(s, best.as_mut_ptr(), state.0, width);
            T::Number::store_places(s, places.as_mut_ptr(), state.1, width);
        }
        // Of all lanes the best, of those that are alike the one whose place is the first.
        let place = |lane: usize| places[lane].into() as usize + lane;
        let mut first = 0;
        for lane in 1..width {
            let (v, so_far) = (best[lane], best[first]);
            let is_alike = v == so_far || (v.is_nan() && so_far.is_nan());
            if beats::<_, LARGEST>(v, so_far) || (is_alike && place(lane) < place(first)) {
                first = lane;
            }
        }
        (best[first], place(first))
    }

    /// Results `c..c + n` of a stretch, at most those of a block.
    ///
    /// # Safety
    /// They and their elements exist.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, stretch: usize, c: usize, n: usize) {
        let Volumes { reduced, inner, .. } = self.0.volumes;
        let mut places = [T::Number::NOWHERE; MOST_LANES];
        // SAFETY: the elements and the results exist; there is room for the places of a block.
        unsafe {
            let x = self.0.input.as_ptr().add(stretch * reduced * inner + c);
            let mut state = (T::load_block(s, x, n), T::Number::places(s, 0));
            for i in 1..reduced {
                let v = T::load_block(s, x.add(i * inner), n);
                state = T::Number::overtake::<S, LARGEST>(s, state, v, T::Number::places(s, i));
            }
            let result = stretch * inner + c;
            T::Number::store_places(s, places.as_mut_ptr(), state.1, n);
            for (i, place) in places.iter().enumerate().take(n) {
                *self.0.places.as_ptr().add(result + i) = (*place).into();
            }
            if let Some(values) = &self.0.values {
                T::store_block(s, values.as_ptr().add(result), state.0, n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use half::{bf16, f16};
    use pteron_core::{DType, DimOrder, Element, Isa};

    /// Ties, both zeros, infinities, and NaN in some rows and columns.
    fn elements(n: usize) -> Vec<f32> {
        let mut x: Vec<f32> = numbers(n, 5).iter().map(|v| (v * 4.0).round() / 4.0).collect();
        let edges = [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
        for (i, v) in x.iter_mut().enumerate().filter(|(i, _)| i % 37 == 0) {
            *v = edges[i / 37 % 4];
        }
        for (i, v) in x.iter_mut().enumerate().filter(|(i, _)| i % 211 > 200) {
            *v = if i % 2 == 0 { f32::NAN } else { -f32::NAN };
        }
        x
    }

    fn check<T: Element>(of: fn(f32) -> T, bits: fn(T) -> u64) {
        let shapes: [(&[usize], &[usize]); 7] = [
            (&[3, 200], &[]),
            (&[5, 3], &[]),
            (&[2, 70, 3], &[]),
            (&[3, 7, 65], &[]),
            (&[1, 1, 300], &[]),
            (&[2, 19, 4, 5], &[0, 2, 3, 1]),
            (&[0, 4], &[]),
        ];
        for (shape, order) in shapes {
            let order = match order {
                [] => DimOrder::contiguous(shape.len()),
                order => DimOrder::new(&order.iter().map(|d| *d as u8).collect::<Vec<_>>()).unwrap(),
            };
            let x: Vec<T> = elements(shape.iter().product()).into_iter().map(of).collect();
            let dims: Vec<Option<usize>> = (0..shape.len()).map(Some).chain([None]).collect();
            for dim in dims {
                for operator in
                    ["aten::max.dim_max", "aten::min.dim_min", "aten::argmax.out", "aten::argmin.out"]
                {
                    let has_value = operator.contains("dim_");
                    let is_empty = dim.map_or(shape.contains(&0), |d| shape[d] == 0);
                    if is_empty || (has_value && dim.is_none()) {
                        continue;
                    }
                    let kept: Vec<usize> = shape
                        .iter()
                        .enumerate()
                        .map(|(d, n)| if dim.is_none_or(|k| k == d) { 1 } else { *n })
                        .collect();
                    let call = |variant: &str, isa: Isa| {
                        let result =
                            |dtype| CallArg::Tensor(HostTensor::zeros_in_order(dtype, &kept, order).unwrap());
                        let dim = dim.map_or(CallArg::None, |d| CallArg::int(d as i64));
                        let mut args = vec![CallArg::Tensor(HostTensor::in_order(shape, order, &x).unwrap())];
                        args.extend([dim, CallArg::bool(true)]);
                        if has_value {
                            args.push(result(T::DTYPE));
                        }
                        args.push(result(DType::Int64));
                        let at = args.len() - 1;
                        let prepare = prepare_of(operator, variant);
                        let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap()?;
                        let grid = call.bind().unwrap();
                        call.run(grid, true).unwrap();
                        let values: Vec<u64> = match has_value {
                            true => call.output::<T>(3).unwrap().into_iter().map(bits).collect(),
                            false => vec![],
                        };
                        Some((call.output::<i64>(at).unwrap(), values))
                    };
                    let want = call("reference", Isa::Portable).unwrap();
                    for isa in Isa::ALL.into_iter().filter(|isa| profile(*isa).is_some()) {
                        // All dimensions of channels-last tensors are the plain kernel's.
                        let is_taken = dim.is_some() || order.is_contiguous();
                        let got = call("float", isa);
                        assert_eq!(got.is_some(), is_taken, "{operator} {shape:?} {dim:?}");
                        assert!(got.is_none_or(|got| got == want), "{isa:?} {operator} {shape:?} {dim:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn extremes_and_their_places_are_those_of_the_plain_kernel() {
        // A NaN is a NaN, whatever its bits.
        check::<f32>(|v| v, |v| if v.is_nan() { 1 } else { u64::from(v.to_bits()) });
        check::<f64>(f64::from, |v| if v.is_nan() { 1 } else { v.to_bits() });
        check::<f16>(f16::from_f32, |v| if v.is_nan() { 1 } else { u64::from(v.to_bits()) });
        check::<bf16>(bf16::from_f32, |v| if v.is_nan() { 1 } else { u64::from(v.to_bits()) });
    }
}
