//! any and all over neighbouring dimensions, into bool: elements are true where they are not zero, NaN among them.

use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::reduction::shape::{DimsArg, ReducedDims, Volumes};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{ArgSpec, BindArgs, Bool8, DType, Element, PrepareContext, Result, Scratch};
use std::marker::PhantomData;

/// Elements of a chunk, about.
const CHUNK: usize = 32 << 10;
/// Elements of a part of a long stretch of one result. Parts are looked at by several threads.
const PART: usize = 256 << 10;
/// Elements that are looked at before a result can end the search.
const GROUP: usize = 64;

/// An element that is true or false.
trait Truth: Element {
    /// Is it not zero?
    fn is_true(self) -> bool;
}

macro_rules! truth {
    ($($t:ty, |$v:ident| $is_true:expr;)*) => { $(
        impl Truth for $t {
            #[inline(always)]
            fn is_true(self) -> bool {
                let $v = self;
                $is_true
            }
        }
    )* };
}
truth! {
    Bool8, |v| v.0 != 0;
    u8, |v| v != 0;
    i8, |v| v != 0;
    i16, |v| v != 0;
    i32, |v| v != 0;
    i64, |v| v != 0;
    f16, |v| v.to_bits() & 0x7fff != 0;
    bf16, |v| v.to_bits() & 0x7fff != 0;
    f32, |v| v != 0.0;
    f64, |v| v != 0.0;
}

/// Units are the stretches of `reduced × inner` elements; where there is one alone, with one result, its parts.
struct Reduce<T> {
    level: SimdLevel,
    dims: ReducedDims,
    out: usize,
    is_any: bool,
    /// Parts that there is room for.
    parts: usize,
    element: PhantomData<T>,
}

/// The kernel of `any`, or else of `all`, if it takes the call.
pub fn prepare(ctx: &PrepareContext<'_>, is_any: bool, out: usize, form: DimsArg) -> Preparation {
    let Some(dtype) = ctx.tensor(0).map(|t| t.dtype) else { return ctx.decline("an argument is no tensor") };
    match dtype {
        DType::Bool => prepare_of::<Bool8>(ctx, is_any, out, form),
        DType::UInt8 => prepare_of::<u8>(ctx, is_any, out, form),
        DType::Int8 => prepare_of::<i8>(ctx, is_any, out, form),
        DType::Int16 => prepare_of::<i16>(ctx, is_any, out, form),
        DType::Int32 => prepare_of::<i32>(ctx, is_any, out, form),
        DType::Int64 => prepare_of::<i64>(ctx, is_any, out, form),
        DType::Float16 => prepare_of::<f16>(ctx, is_any, out, form),
        DType::BFloat16 => prepare_of::<bf16>(ctx, is_any, out, form),
        DType::Float32 => prepare_of::<f32>(ctx, is_any, out, form),
        DType::Float64 => prepare_of::<f64>(ctx, is_any, out, form),
        _ => ctx.decline("takes bool, signed integers, uint8 and floats of at least 16 bits"),
    }
}

fn prepare_of<T: Truth>(ctx: &PrepareContext<'_>, is_any: bool, out: usize, form: DimsArg) -> Preparation {
    // An empty list of dimensions reduces nothing here, unlike in sums.
    let has_no_dims = matches!(ctx.args.get(1), Some(ArgSpec::IntList(dims)) if dims.is_empty());
    if has_no_dims || ctx.tensor(out).is_none_or(|t| t.dtype != DType::Bool) {
        return ctx.decline("gives bool and takes a list of dimensions that is not empty");
    }
    let Some(dims) = ReducedDims::neighbours(ctx, out, form) else {
        return ctx.decline("takes reduced dimensions that are neighbours in memory");
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("{}.{}", if is_any { "any" } else { "all" }, T::DTYPE.name());
    let parts = dims.most(ctx).reduced.div_ceil(PART);
    framed(name, Reduce { level, dims, out, is_any, parts, element: PhantomData::<T> })
}

impl<T: Truth> UnitKernel for Reduce<T> {
    type Problem = Volumes;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 0, shared: self.parts }
    }

    fn bind(&self, args: &mut BindArgs<'_>, volumes: &mut Volumes) -> Result<Split> {
        *volumes = self.dims.bind(args, self.out)?;
        if self.is_cut(volumes) {
            return Ok(Split::sized(volumes.reduced.div_ceil(PART), PART, PART, 0.1).then_join());
        }
        let units = if volumes.inner == 0 { 0 } else { volumes.outer };
        Ok(Split::sized(units, volumes.reduced * volumes.inner, CHUNK, 0.1))
    }

    fn run(&self, volumes: &Volumes, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        if self.is_cut(volumes) {
            let (units, elements) = (chunk.units.clone(), volumes.reduced);
            let first = units.start * PART;
            let part = first..units.end.saturating_mul(PART).min(elements);
            let input = chunk.input::<T>(0)?.part(part)?.as_slice()?;
            for (found, input) in chunk.shared_units::<u8>(1)?.iter_mut().zip(input.chunks(PART)) {
                self.stretches(input, std::slice::from_mut(found), input.len(), 1);
            }
            return Ok(());
        }
        let &Volumes { reduced, inner, .. } = volumes;
        let input = chunk.input_units::<T>(0, reduced * inner)?.as_slice()?;
        let out = bytemuck::cast_slice_mut(chunk.output_units::<Bool8>(self.out, inner)?.into_slice()?);
        self.stretches(input, out, reduced, inner);
        Ok(())
    }

    fn join(&self, _: &Volumes, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let found = chunk.shared_units::<u8>(1)?;
        let decides = u8::from(self.is_any);
        let result = if found.contains(&decides) { decides } else { 1 - decides };
        chunk.output_part::<Bool8>(self.out, 0..1)?.into_slice()?.fill(Bool8(result));
        Ok(())
    }
}

impl<T: Truth> Reduce<T> {
    /// Is the call one long stretch with one result, and is there room for its parts?
    fn is_cut(&self, volumes: &Volumes) -> bool {
        let parts = volumes.reduced.div_ceil(PART);
        volumes.outer == 1 && volumes.inner == 1 && parts > 1 && parts <= self.parts
    }

    fn stretches(&self, input: &[T], out: &mut [u8], reduced: usize, inner: usize) {
        match self.is_any {
            true => self.level.dispatch_narrow(Stretches::<T, true> { input, out, reduced, inner }),
            false => self.level.dispatch_narrow(Stretches::<T, false> { input, out, reduced, inner }),
        }
    }
}

/// The stretches of a chunk.
struct Stretches<'a, T, const ANY: bool> {
    input: &'a [T],
    out: &'a mut [u8],
    reduced: usize,
    inner: usize,
}

impl<T: Truth, const ANY: bool> SimdTask for Stretches<'_, T, ANY> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Stretches { input, out, reduced, inner } = self;
        let size = reduced * inner;
        for (i, out) in out.chunks_exact_mut(inner.max(1)).enumerate() {
            let rows = &input[i * size..(i + 1) * size];
            if inner == 1 {
                // An element that decides ends the search.
                out[0] = u8::from(has(rows, ANY) == ANY);
                continue;
            }
            out.fill(u8::from(!ANY));
            for row in rows.chunks_exact(inner.max(1)) {
                for (so_far, v) in out.iter_mut().zip(row) {
                    let v = u8::from(v.is_true());
                    *so_far = if ANY { *so_far | v } else { *so_far & v };
                }
            }
        }
    }
}

/// Is there an element whose truth is `wanted`? Several at a time.
#[inline(always)]
fn has<T: Truth>(x: &[T], wanted: bool) -> bool {
    let (groups, rest) = x.as_chunks::<GROUP>();
    let found =
        |group: &[T; GROUP]| group.iter().fold(0u8, |found, v| found | u8::from(v.is_true() == wanted)) != 0;
    groups.iter().any(found) || rest.iter().any(|v| v.is_true() == wanted)
}
