//! Conversions between dtypes of tensors that lie in the same order: floats of sixteen and 32 bits and bool through f32
//! with the processor's instructions, integers, float64 and f32 to bool in loops that the compiler vectorises. float16 becomes
//! integers and float64, and these float16, through blocks of f32; bfloat16, the upper half of an f32, mostly without.
//!
//! Floats become integers by truncation through int64, keeping the low bits; NaN becomes 0; anything but zero
//! becomes true.

use crate::elementwise::operand::{Convert, Half, Sink, Source, convert};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::grid_kernel::Preparation;
use crate::vector_math::half_bits::{brain16_from, brain16_to};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{BindArgs, Bool8, DType, Element, PrepareContext, Result};

const OUT: usize = 3;
/// Elements of a chunk.
const CHUNK: usize = 32 << 10;

/// Converts the elements of a chunk.
type RunFn = fn(SimdLevel, &mut Chunk<'_, '_>) -> Result<()>;

struct Cast {
    level: SimdLevel,
    run: RunFn,
}

/// The elements of the chunk and room for as many results.
fn sides<'a, A: Element, B: Element>(chunk: &mut Chunk<'a, '_>) -> Result<(&'a [A], &'a mut [B])> {
    Ok((chunk.input_units::<A>(0, 1)?.as_slice()?, chunk.output_units::<B>(OUT, 1)?.into_slice()?))
}

/// Of `A` to `B`, both computed with as f32.
fn through_f32<A: Source + Element, B: Sink + Element>(
    level: SimdLevel,
    chunk: &mut Chunk<'_, '_>,
) -> Result<()> {
    let (from, to) = sides::<A, B>(chunk)?;
    convert(level, from, to);
    Ok(())
}

/// An element that becomes a `B`.
trait Into<B>: Element {
    fn converted(self) -> B;
}

/// Numbers that become others as Rust converts them, and truth values; `each_of` has their loops.
macro_rules! conversions {
    (numbers { $($a:ty => $($b:ty),*;)* } truth values { $($t:ty),* }) => {
        $( $(
            impl Into<$b> for $a {
                #[inline(always)]
                fn converted(self) -> $b {
                    self as $b
                }
            }
        )* )*
        $(
            impl Into<Bool8> for $t {
                #[inline(always)]
                fn converted(self) -> Bool8 {
                    Bool8::from(self != (0 as $t))
                }
            }
            impl Into<$t> for Bool8 {
                #[inline(always)]
                fn converted(self) -> $t {
                    u8::from(self.get()) as $t
                }
            }
        )*

        fn each_of(from: DType, to: DType) -> Option<RunFn> {
            $( $( if (from, to) == (<$a>::DTYPE, <$b>::DTYPE) {
                return Some(each::<$a, $b>);
            } )* )*
            $( if (from, to) == (<$t>::DTYPE, DType::Bool) {
                return Some(each::<$t, Bool8>);
            }
            if (from, to) == (DType::Bool, <$t>::DTYPE) {
                return Some(each::<Bool8, $t>);
            } )*
            None
        }
    };
}
conversions! {
    numbers {
        i64 => i32, f32, f64, u8;
        i32 => i64, f32, f64, u8;
        i16 => f32, i32, i64;
        i8 => f32, i32, i64;
        u8 => f32, i32, i64;
        f64 => f32;
        f32 => f64;
    }
    truth values { i64, i32, u8, f64, f32 }
}

struct Each<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
}

impl<A: Into<B>, B: Element> SimdTask for Each<'_, A, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = from.converted();
        }
    }
}

fn each<A: Into<B>, B: Element>(level: SimdLevel, chunk: &mut Chunk<'_, '_>) -> Result<()> {
    let (from, to) = sides::<A, B>(chunk)?;
    level.dispatch(Each { from, to });
    Ok(())
}

/// An integer that floats are truncated to.
trait Whole: Element {
    fn low_bits(v: i32) -> Self;
    fn low_bits_of_long(v: i64) -> Self;
}
macro_rules! whole {
    ($($t:ty),*) => { $(
        impl Whole for $t {
            #[inline(always)]
            fn low_bits(v: i32) -> Self { v as $t }
            #[inline(always)]
            fn low_bits_of_long(v: i64) -> Self { v as $t }
        }
    )* };
}
whole!(i64, i32, i16, i8, u8);

/// A float that is truncated.
trait Fractional: Element {
    /// Is its magnitude less than 2^31?
    fn is_short(self) -> bool;
    /// Its integer part.
    ///
    /// # Safety
    /// The magnitude is less than 2^31.
    unsafe fn short(self) -> i32;
    /// Its integer part, or the nearest of the type; 0 for NaN.
    fn long(self) -> i64;
}
macro_rules! fractional {
    ($($t:ty),*) => { $(
        impl Fractional for $t {
            #[inline(always)]
            fn is_short(self) -> bool { self.abs() < 2_147_483_648.0 }
            #[inline(always)]
            unsafe fn short(self) -> i32 {
                // SAFETY: the caller promises a magnitude that fits.
                unsafe { self.to_int_unchecked() }
            }
            #[inline(always)]
            fn long(self) -> i64 { self as i64 }
        }
    )* };
}
fractional!(f32, f64);
impl Fractional for bf16 {
    #[inline(always)]
    fn is_short(self) -> bool {
        // The bits of 2^31.
        self.to_bits() & 0x7fff < 0x4f00
    }
    #[inline(always)]
    unsafe fn short(self) -> i32 {
        // SAFETY: the caller promises a magnitude that fits.
        unsafe { brain16_to(self.to_bits()).to_int_unchecked() }
    }
    #[inline(always)]
    fn long(self) -> i64 {
        brain16_to(self.to_bits()) as i64
    }
}

struct Truncate<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
}

impl<A: Fractional, B: Whole> SimdTask for Truncate<'_, A, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        /// Elements that are asked together whether they fit 32 bits.
        const GROUP: usize = 64;
        for (from, to) in self.from.chunks(GROUP).zip(self.to.chunks_mut(GROUP)) {
            let mut fits = true;
            for v in from {
                fits &= v.is_short();
            }
            if fits {
                for (to, v) in to.iter_mut().zip(from) {
                    // SAFETY: no number of the group is NaN or has a magnitude of 2^31 or more: `fits` says so.
                    *to = B::low_bits(unsafe { v.short() });
                }
            } else {
                for (to, v) in to.iter_mut().zip(from) {
                    *to = B::low_bits_of_long(v.long());
                }
            }
        }
    }
}

fn truncate<A: Fractional, B: Whole>(level: SimdLevel, chunk: &mut Chunk<'_, '_>) -> Result<()> {
    let (from, to) = sides::<A, B>(chunk)?;
    level.dispatch(Truncate { from, to });
    Ok(())
}

/// Numbers on the way between a float of sixteen bits and something else.
const BLOCK: usize = 256;

/// What numbers become that come from blocks of f32.
trait FromBlocks: Element {
    fn fill<S: Simd>(s: S, from: &[f32], to: &mut [Self]);
}
macro_rules! truncated_from_blocks {
    ($($t:ty),*) => { $(
        impl FromBlocks for $t {
            #[inline(always)]
            fn fill<S: Simd>(s: S, from: &[f32], to: &mut [Self]) {
                Truncate { from, to }.run(s);
            }
        }
    )* };
}
truncated_from_blocks!(i64, i32, i16, i8, u8);
impl FromBlocks for f64 {
    #[inline(always)]
    fn fill<S: Simd>(s: S, from: &[f32], to: &mut [f64]) {
        Each { from, to }.run(s);
    }
}

struct WidenHalves<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
}

impl<A: Half, B: FromBlocks> SimdTask for WidenHalves<'_, A, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut block = [0f32; BLOCK];
        for (from, to) in self.from.chunks(BLOCK).zip(self.to.chunks_mut(BLOCK)) {
            Convert { from: from.as_ptr(), to: block.as_mut_ptr(), n: from.len() }.run(s);
            B::fill(s, &block[..from.len()], to);
        }
    }
}

fn widen_halves<A: Half, B: FromBlocks>(level: SimdLevel, chunk: &mut Chunk<'_, '_>) -> Result<()> {
    let (from, to) = sides::<A, B>(chunk)?;
    level.dispatch(WidenHalves { from, to });
    Ok(())
}

/// Rounded to f32 first, as in eager. bfloat16, which needs no instructions of its own, comes without a block.
macro_rules! to_brain {
    ($($t:ty),*) => { $(
        impl Into<bf16> for $t {
            #[inline(always)]
            fn converted(self) -> bf16 {
                bf16::from_bits(brain16_from(Into::<f32>::converted(self)))
            }
        }
    )* };
}
to_brain!(i64, i32, i16, i8, u8, f64);

/// The same for float16.
struct NarrowToHalves<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
}

impl<A: Into<f32>, B: Half> SimdTask for NarrowToHalves<'_, A, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut block = [0f32; BLOCK];
        for (from, to) in self.from.chunks(BLOCK).zip(self.to.chunks_mut(BLOCK)) {
            for (to, from) in block.iter_mut().zip(from) {
                *to = from.converted();
            }
            Convert { from: block.as_ptr(), to: to.as_mut_ptr(), n: from.len().min(to.len()) }.run(s);
        }
    }
}

fn narrow_to_halves<A: Into<f32>, B: Half>(level: SimdLevel, chunk: &mut Chunk<'_, '_>) -> Result<()> {
    let (from, to) = sides::<A, B>(chunk)?;
    level.dispatch(NarrowToHalves { from, to });
    Ok(())
}

/// The conversion from floats to integers, and between floats of sixteen bits and what is no float of 32 bits or bool.
fn of_kinds(from: DType, to: DType) -> Option<RunFn> {
    fn to_whole<B: Whole + FromBlocks>(from: DType) -> Option<RunFn> {
        match from {
            DType::Float32 => Some(truncate::<f32, B>),
            DType::Float64 => Some(truncate::<f64, B>),
            DType::BFloat16 => Some(truncate::<bf16, B>),
            _ => of_halves::<B>(from),
        }
    }
    fn of_halves<B: FromBlocks>(from: DType) -> Option<RunFn> {
        match from {
            DType::Float16 => Some(widen_halves::<f16, B>),
            DType::BFloat16 => Some(widen_halves::<bf16, B>),
            _ => None,
        }
    }
    fn to_half<A: Into<f32> + Into<bf16>>(to: DType) -> Option<RunFn> {
        match to {
            DType::Float16 => Some(narrow_to_halves::<A, f16>),
            DType::BFloat16 => Some(each::<A, bf16>),
            _ => None,
        }
    }
    /// One row for each type that is no float of sixteen or 32 bits: to it, from it.
    macro_rules! rows {
        ($($dtype:ident: $to:ident, $t:ty;)*) => {
            $( if to == DType::$dtype {
                return $to::<$t>(from);
            }
            if from == DType::$dtype {
                return to_half::<$t>(to);
            } )*
        };
    }
    rows! {
        Int64: to_whole, i64;
        Int32: to_whole, i32;
        Int16: to_whole, i16;
        Int8: to_whole, i8;
        UInt8: to_whole, u8;
        Float64: of_halves, f64;
    }
    None
}

/// The conversion between floats of sixteen and 32 bits and bool.
fn through_f32_of(from: DType, to: DType) -> Option<RunFn> {
    fn to_dtype<A: Source + Element>(to: DType) -> Option<RunFn> {
        match to {
            _ if to == A::DTYPE => None,
            DType::Float32 => Some(through_f32::<A, f32>),
            DType::Float16 => Some(through_f32::<A, f16>),
            DType::BFloat16 => Some(through_f32::<A, bf16>),
            DType::Bool => Some(through_f32::<A, Bool8>),
            _ => None,
        }
    }
    match from {
        DType::Float32 => to_dtype::<f32>(to),
        DType::Float16 => to_dtype::<f16>(to),
        DType::BFloat16 => to_dtype::<bf16>(to),
        DType::Bool => to_dtype::<Bool8>(to),
        _ => None,
    }
}

/// The conversion from one dtype to another, if it is one of this file's.
fn conversion(from: DType, to: DType) -> Option<RunFn> {
    of_kinds(from, to).or_else(|| each_of(from, to)).or_else(|| through_f32_of(from, to))
}

/// The kernel of a conversion of this file.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let Some(run) = conversion(input.dtype, out.dtype) else {
        return ctx.decline("no fast conversion between these dtypes");
    };
    if input.dim_order != out.dim_order {
        return ctx.decline("takes one memory order");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("cast.{}_to_{}.{}", input.dtype.name(), out.dtype.name(), level.isa().name());
    framed(name, Cast { level, run })
}

impl UnitKernel for Cast {
    type Problem = ();

    fn bind(&self, args: &mut BindArgs<'_>, _: &mut ()) -> Result<Split> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(OUT, &shape)?;
        let numel = args.args().tensor(0)?.numel();
        Ok(Split::new(numel, CHUNK, numel.min(CHUNK) / 4))
    }

    fn run(&self, _: &(), chunk: &mut Chunk<'_, '_>) -> Result<()> {
        (self.run)(self.level, chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_core::Isa;

    fn cast<A: Element, B: Element>(isa: Isa, x: &[A]) -> Option<Vec<B>> {
        let args = vec![
            CallArg::Tensor(HostTensor::new(&[x.len()], x).unwrap()),
            CallArg::bool(false),
            CallArg::None,
            CallArg::Tensor(HostTensor::zeros(B::DTYPE, &[x.len()]).unwrap()),
        ];
        let mut call = SingleCall::new(prepare, &profile(isa)?, args).unwrap().unwrap();
        call.call().unwrap();
        Some(call.output::<B>(OUT).unwrap())
    }

    #[test]
    fn floats_are_truncated_through_int64() {
        let mut x: Vec<f32> = (0..200).map(|i| (i as f32 - 100.0) * 7.7).collect();
        x.extend([300.0, -1.0, f32::NAN, 3e9, -3e9, 1e30, f32::NEG_INFINITY, -0.5, 2_147_483_648.0]);
        for isa in Isa::ALL {
            let Some(bytes) = cast::<f32, u8>(isa, &x) else { continue };
            let (ints, longs) = (cast::<f32, i32>(isa, &x).unwrap(), cast::<f32, i64>(isa, &x).unwrap());
            for (i, v) in x.iter().enumerate() {
                let long = *v as i64;
                assert_eq!((bytes[i], ints[i], longs[i]), (long as u8, long as i32, long), "{isa:?} {v}");
            }
        }
    }

    #[test]
    fn sixteen_bits_and_bool() {
        let x: Vec<f32> = (0..333).map(|i| (i as f32 - 100.0) * 0.37).collect();
        for isa in Isa::ALL {
            let Some(small) = cast::<f32, f16>(isa, &x) else { continue };
            let brain = cast::<f32, bf16>(isa, &x).unwrap();
            let back = cast::<f16, f32>(isa, &small).unwrap();
            let truth = cast::<f32, Bool8>(isa, &x).unwrap();
            let numbers = cast::<Bool8, f32>(isa, &truth).unwrap();
            for (i, v) in x.iter().enumerate() {
                assert_eq!(small[i].to_bits(), f16::from_f32(*v).to_bits(), "{isa:?} {v}");
                assert_eq!(brain[i].to_bits(), bf16::from_f32(*v).to_bits());
                assert_eq!(back[i], small[i].to_f32());
                assert_eq!((truth[i].get(), numbers[i]), (*v != 0.0, f32::from(u8::from(*v != 0.0))));
            }
        }
    }

    #[test]
    fn sixteen_bits_and_numbers_of_other_kinds() {
        let x: Vec<f64> =
            (0..700).map(|i| (f64::from(i) - 300.0) * 7.3).chain([f64::NAN, 1e300, -3e9]).collect();
        let ints: Vec<i32> = x.iter().map(|v| *v as i32).collect();
        for isa in Isa::ALL {
            let Some(small) = cast::<f64, f16>(isa, &x) else { continue };
            let brain = cast::<f64, bf16>(isa, &x).unwrap();
            let of_ints = cast::<i32, bf16>(isa, &ints).unwrap();
            let (wide, whole) =
                (cast::<bf16, f64>(isa, &brain).unwrap(), cast::<bf16, i16>(isa, &brain).unwrap());
            let (longs, bytes) = (cast::<f64, i64>(isa, &x).unwrap(), cast::<f16, u8>(isa, &small).unwrap());
            for (i, v) in x.iter().enumerate() {
                assert_eq!(small[i].to_bits(), f16::from_f32(*v as f32).to_bits(), "{isa:?} {v}");
                assert_eq!(brain[i].to_bits(), bf16::from_f32(*v as f32).to_bits(), "{isa:?} {v}");
                assert_eq!(of_ints[i].to_bits(), bf16::from_f32(ints[i] as f32).to_bits());
                assert_eq!(wide[i].to_bits(), brain[i].to_f64().to_bits());
                assert_eq!((longs[i], whole[i]), (*v as i64, brain[i].to_f32() as i64 as i16));
                assert_eq!(bytes[i], small[i].to_f32() as i64 as u8);
            }
        }
    }

    #[test]
    fn integers_keep_their_low_bits() {
        let x: Vec<i64> = (0..77).map(|i| i * 0x1_2345_6789 - 1000).collect();
        for isa in Isa::ALL {
            let Some(ints) = cast::<i64, i32>(isa, &x) else { continue };
            let floats = cast::<i64, f32>(isa, &x).unwrap();
            for (i, v) in x.iter().enumerate() {
                assert_eq!((ints[i], floats[i]), (*v as i32, *v as f32));
            }
        }
    }
}
