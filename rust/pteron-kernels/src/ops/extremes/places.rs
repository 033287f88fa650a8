//! max, min, argmax and argmin over neighbouring dimensions: the largest or smallest element and its place. Of floats the first
//! NaN wins, of equal elements the first. Floats are compared in vectors ([`super::float_places`]), integers in loops that the
//! compiler vectorises ([`super::integer_places`]).

use super::scan::{COLUMNS, Scanned, Task};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::reduction::plain::check_not_empty;
use crate::reduction::shape::{DimsArg, ReducedDims, Volumes};
use crate::routine::Preparation;
use crate::vector_math::SimdLevel;
use half::{bf16, f16};
use pteron_core::{ArgSpec, Args, BindArgs, DType, Error, PrepareContext, Result};
use std::marker::PhantomData;

/// Elements of a chunk, about.
const CHUNK: usize = 32 << 10;

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
        Some(DType::UInt8) => prepare_of::<u8>(ctx, form),
        Some(DType::Int8) => prepare_of::<i8>(ctx, form),
        Some(DType::Int16) => prepare_of::<i16>(ctx, form),
        Some(DType::Int32) => prepare_of::<i32>(ctx, form),
        Some(DType::Int64) => prepare_of::<i64>(ctx, form),
        _ => ctx.decline("takes signed integers, uint8 and floats of at least 16 bits"),
    }
}

fn prepare_of<T: Scanned>(ctx: &PrepareContext<'_>, form: Form) -> Preparation {
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

impl<T: Scanned> UnitKernel for Places<T> {
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
        T::scan(self.level, task, self.form.is_largest);
        Ok(())
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
                        let got = call("neighbours", isa);
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
        // Small ones are alike, large ones are the ends of the type; NaN is 0.
        check::<i64>(|v| v as i64, |v| v as u64);
        check::<i32>(|v| v as i32, |v| v as u64);
        check::<i16>(|v| v as i16, |v| v as u64);
        check::<i8>(|v| v as i8, |v| v as u64);
        check::<u8>(|v| v as u8, u64::from);
    }
}
