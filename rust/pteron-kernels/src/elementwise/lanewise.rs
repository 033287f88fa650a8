//! Elementwise functions on float64, integers and bool, and their comparisons: plain loops that the compiler vectorises.
//! Operands and output have one dtype (bool for comparisons); calls that need promotion are left to the plain kernels.
//!
//! Edge cases: integers wrap, the smallest integer is its own negative and magnitude; maximum and minimum
//! hand NaN on; comparisons with NaN are false but for `ne`; a number that the tensor's dtype cannot hold, and a
//! fractional number beside an integer tensor, are left to the plain kernels.
//! Unsafe island (raw pointers, since outputs may be their inputs).

use super::broadcast::{BroadcastPlan, CHUNK, Run, broadcast_shape};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::grid_kernel::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use half::{bf16, f16};
use pteron_core::{
    AliasRule, ArgSpec, Args, BindArgs, DType, Dims, Element, Error, Isa, PrepareContext, Result, Scalar,
    TensorMeta,
};
use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, BitXor, Not, Range};

/// The numbers of a function.
pub type Numbers<T> = [T; 3];

/// A function of `N` elements of type `T`, which are arguments `0..N` of the operator. The output is the last argument.
pub trait Lanewise<T: Element, const N: usize>: Send + Sync + 'static {
    /// The elements of the result.
    type Out: Element;
    /// Name in listings.
    const NAME: &'static str;
    /// Rough nanoseconds for 16 elements.
    const COST: usize;
    /// Are the other arguments what this function means? Asked once, at load.
    fn accepts(_args: &[ArgSpec<'_>]) -> bool {
        true
    }
    /// The function's numbers.
    ///
    /// Errors: an argument is no number.
    fn parameters(_args: &Args<'_>) -> Result<Numbers<T>> {
        Ok([bytemuck::Zeroable::zeroed(); 3])
    }
    /// Computes one element.
    fn of<S: Simd>(s: S, parameters: Numbers<T>, v: [T; N]) -> Self::Out;
    /// Are there operands that are not [`Lanewise::is_easy`]?
    const HAS_HARD: bool = false;
    /// Does [`Lanewise::of`] compute the element? A stretch in which it does not do so for all goes to [`Lanewise::hard`].
    #[inline(always)]
    fn is_easy<S: Simd>(_s: S, _parameters: Numbers<T>, _v: [T; N]) -> bool {
        true
    }
    /// Computes one element of any operands; the same as [`Lanewise::of`] where that does.
    #[inline(always)]
    fn hard<S: Simd>(s: S, parameters: Numbers<T>, v: [T; N]) -> Self::Out {
        Self::of(s, parameters, v)
    }
    /// Has the function no result for these operands? They are none that are [`Lanewise::is_easy`].
    #[inline(always)]
    fn is_refused(_v: [T; N]) -> bool {
        false
    }
    /// What a call with such operands fails with.
    fn refusal() -> Error {
        Error::internal("the function has a result for all operands")
    }
}

/// Defines functions of elements:
///
/// ```text
/// /// Documentation.
/// Name: [generics] operands => result = "name in listings", nanoseconds for 16 elements, |s, [operands]| one element;
/// ```
///
/// with numbers (`Name { low, high }`), where they come from (`from |args| [low, high]`) and the calls that it is for
/// (`if accepts`) as in [`super::pointwise::functions`], behind what some operands need instead, if any do
/// (`where is_easy => one element`) and which ones are refused (`unless is_refused => error`).
macro_rules! lanes {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident),* })?: [$($generics:tt)*] $t:ty => $out:ty = $op:literal, $cost:expr,
        |$s:ident, [$($v:ident),*]| $body:expr
        $(, where $easy:expr => $hard:expr $(, unless $refused:expr => $error:expr)?)?
        $(, from |$args:ident| $make:expr)? $(, if $accepts:expr)?;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;
        impl<$($generics)*> $crate::elementwise::lanewise::Lanewise<$t, { [$(stringify!($v)),*].len() }> for $name {
            type Out = $out;
            const NAME: &'static str = $op;
            const COST: usize = $cost;
            $(fn accepts(args: &[pteron_core::ArgSpec<'_>]) -> bool {
                let accepts: fn(&[pteron_core::ArgSpec<'_>]) -> bool = $accepts;
                accepts(args)
            })?
            $(fn parameters(
                $args: &pteron_core::Args<'_>,
            ) -> pteron_core::Result<$crate::elementwise::lanewise::Numbers<$t>> {
                let mut all: $crate::elementwise::lanewise::Numbers<$t> = [bytemuck::Zeroable::zeroed(); 3];
                for (slot, number) in all.iter_mut().zip($make) {
                    *slot = number;
                }
                Ok(all)
            })?
            #[inline(always)]
            fn of<S: $crate::vector_math::Simd>(
                $s: S,
                parameters: $crate::elementwise::lanewise::Numbers<$t>,
                [$($v),*]: [$t; [$(stringify!($v)),*].len()],
            ) -> $out {
                let [$($($field,)*)? ..] = parameters;
                $body
            }
            $crate::elementwise::lanewise::hard_lanes! {
                $t, $out, $s, [$($v),*], [$($($field),*)?] $(, $easy => $hard $(, $refused => $error)?)?
            }
        }
    )* };
}
pub(crate) use lanes;

/// What [`lanes`] makes of `where is_easy => one element`.
macro_rules! hard_lanes {
    ($t:ty, $out:ty, $s:ident, [$($v:ident),*], [$($field:ident),*]) => {};
    ($t:ty, $out:ty, $s:ident, [$($v:ident),*], [$($field:ident),*], $easy:expr => $hard:expr) => {
        const HAS_HARD: bool = true;
        #[inline(always)]
        fn is_easy<S: $crate::vector_math::Simd>(
            $s: S,
            parameters: $crate::elementwise::lanewise::Numbers<$t>,
            [$($v),*]: [$t; [$(stringify!($v)),*].len()],
        ) -> bool {
            let ([$($field,)* ..], _) = (parameters, $s);
            $easy
        }
        #[inline(always)]
        fn hard<S: $crate::vector_math::Simd>(
            $s: S,
            parameters: $crate::elementwise::lanewise::Numbers<$t>,
            [$($v),*]: [$t; [$(stringify!($v)),*].len()],
        ) -> $out {
            let ([$($field,)* ..], _) = (parameters, $s);
            $hard
        }
    };
    ($t:ty, $out:ty, $s:ident, [$($v:ident),*], $fields:tt, $easy:expr => $hard:expr, $refused:expr => $error:expr) => {
        $crate::elementwise::lanewise::hard_lanes! { $t, $out, $s, [$($v),*], $fields, $easy => $hard }
        #[inline(always)]
        #[allow(unused_variables, reason = "not all operands decide")]
        fn is_refused([$($v),*]: [$t; [$(stringify!($v)),*].len()]) -> bool {
            $refused
        }
        fn refusal() -> pteron_core::Error {
            $error
        }
    };
}
pub(crate) use hard_lanes;

/// Is `alpha`, argument 2, the number 1, and not a float between integers, which the operator refuses?
pub(crate) fn has_no_factor<T: Number>(args: &[ArgSpec<'_>]) -> bool {
    args.get(2).is_some_and(|alpha| alpha.number() == Some(1.0) && T::holds(alpha))
}

/// Does the type hold argument 1 exactly?
pub(crate) fn holds_number<T: Number>(args: &[ArgSpec<'_>]) -> bool {
    args.get(1).is_some_and(T::holds)
}

/// Argument 1.
pub(crate) fn number_argument<T: Number>(args: &Args<'_>) -> Result<T> {
    number_at(args, 1)
}

/// Argument `i`.
pub(crate) fn number_at<T: Number>(args: &Args<'_>, i: usize) -> Result<T> {
    Ok(T::of_scalar(args.scalar(i)?))
}

/// The integers, of which bits can be combined.
pub trait Bits:
    Element + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// Shifted to the left; 0 where `by` is no number below the width.
    fn shifted_left(self, by: Self) -> Self;
    /// Shifted to the right; nothing but the sign is left where `by` is no number below the width.
    fn shifted_right(self, by: Self) -> Self;
}

macro_rules! bits {
    ($($t:ty),*) => { $(
        impl Bits for $t {
            #[inline(always)]
            fn shifted_left(self, by: Self) -> Self {
                self.unbounded_shl(u32::try_from(by).unwrap_or(u32::MAX))
            }
            #[inline(always)]
            fn shifted_right(self, by: Self) -> Self {
                self.unbounded_shr(u32::try_from(by).unwrap_or(u32::MAX))
            }
        }
    )* };
}
bits!(u8, i8, i16, i32, i64);

/// A function of every integer type.
pub trait OfIntegers<const N: usize>:
    Lanewise<i64, N> + Lanewise<i32, N> + Lanewise<i16, N> + Lanewise<i8, N> + Lanewise<u8, N>
{
}
impl<F, const N: usize> OfIntegers<N> for F where
    F: Lanewise<i64, N> + Lanewise<i32, N> + Lanewise<i16, N> + Lanewise<i8, N> + Lanewise<u8, N>
{
}

/// A function of every integer type and of float64.
pub trait OfNumbers<const N: usize>: OfIntegers<N> + Lanewise<f64, N> {}
impl<F: OfIntegers<N> + Lanewise<f64, N>, const N: usize> OfNumbers<N> for F {}

/// Prepares `F` on integers.
pub(crate) fn integers<F: OfIntegers<N>, const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Int64) => prepare::<F, i64, N>(ctx),
        Some(DType::Int32) => prepare::<F, i32, N>(ctx),
        Some(DType::Int16) => prepare::<F, i16, N>(ctx),
        Some(DType::Int8) => prepare::<F, i8, N>(ctx),
        Some(DType::UInt8) => prepare::<F, u8, N>(ctx),
        _ => ctx.decline("takes integers"),
    }
}

/// A function of both floats of sixteen bits.
pub trait OfHalves<const N: usize>: Lanewise<f16, N> + Lanewise<bf16, N> {}
impl<F: Lanewise<f16, N> + Lanewise<bf16, N>, const N: usize> OfHalves<N> for F {}

/// A float of sixteen bits, whose sign is the upper one.
pub trait HalfBits: Element {
    /// The bits.
    fn bits(self) -> u16;
    /// The float of these.
    fn of_bits(bits: u16) -> Self;
}

macro_rules! half_bits {
    ($($t:ty),*) => { $(
        impl HalfBits for $t {
            #[inline(always)]
            fn bits(self) -> u16 { self.to_bits() }
            #[inline(always)]
            fn of_bits(bits: u16) -> Self { <$t>::from_bits(bits) }
        }
    )* };
}
half_bits!(f16, bf16);

/// Prepares `F` on floats of sixteen bits.
pub(crate) fn halves<F: OfHalves<N>, const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Float16) => prepare::<F, f16, N>(ctx),
        Some(DType::BFloat16) => prepare::<F, bf16, N>(ctx),
        _ => ctx.decline("takes floats of sixteen bits"),
    }
}

/// Prepares `F` on integers and float64.
pub(crate) fn numbers<F: OfNumbers<N>, const N: usize>(ctx: &PrepareContext<'_>) -> Preparation {
    match ctx.tensor(0).map(|t| t.dtype) {
        Some(DType::Float64) => prepare::<F, f64, N>(ctx),
        _ => integers::<F, N>(ctx),
    }
}

/// Arithmetic that both integers and f64 have.
pub trait Number: Element + PartialOrd + std::fmt::Debug {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The smallest number, or negative infinity.
    const LOWEST: Self;
    /// The largest number, or infinity.
    const HIGHEST: Self;
    /// The sum; integers wrap, here and below.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// With the other sign.
    fn negated(self) -> Self;
    /// Without the sign.
    fn magnitude(self) -> Self;
    /// Is there a sign, be it that of a zero or of NaN?
    fn has_sign(self) -> bool;
    /// The number that a scalar argument stands for, if the type can hold it exactly.
    fn holds(arg: &ArgSpec<'_>) -> bool;
    /// That number.
    fn of_scalar(scalar: Scalar) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn negated(self) -> Self { (0 as $t).wrapping_sub(self) }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "unsigned types have no negative numbers")]
            fn magnitude(self) -> Self { if self < 0 { self.negated() } else { self } }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "unsigned types have no negative numbers")]
            fn has_sign(self) -> bool { self < 0 }
            fn holds(arg: &ArgSpec<'_>) -> bool {
                matches!(arg, ArgSpec::Int(Some(v)) if <$t>::try_from(*v).is_ok())
            }
            fn of_scalar(scalar: Scalar) -> Self { scalar.to_i64() as $t }
        }
    )* };
}
integers!(u8, i8, i16, i32, i64);

impl Number for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f64::NEG_INFINITY;
    const HIGHEST: Self = f64::INFINITY;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    fn negated(self) -> Self {
        -self
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.abs()
    }
    #[inline(always)]
    fn has_sign(self) -> bool {
        self.is_sign_negative()
    }
    fn holds(arg: &ArgSpec<'_>) -> bool {
        matches!(arg, ArgSpec::Int(_) | ArgSpec::Double(_))
    }
    fn of_scalar(scalar: Scalar) -> Self {
        scalar.to_f64()
    }
}

struct LanewiseKernel<F, T, const N: usize> {
    level: SimdLevel,
    out: usize,
    types: PhantomData<(F, T)>,
}

/// Does arithmetic take so long that the widest vectors pay? Roots and quotients take as long per element in these as in
/// narrow ones.
const WIDE: usize = 9;

/// Prepares `F` when all operands are of type `T` and the output of its result's.
pub(crate) fn prepare<F: Lanewise<T, N>, T: Element, const N: usize>(
    ctx: &PrepareContext<'_>,
) -> Preparation {
    let fits = (0..N).all(|i| ctx.tensor(i).is_some_and(|t| t.dtype == T::DTYPE))
        && ctx.args.len() > N
        && ctx.tensor(ctx.args.len() - 1).is_some_and(|t| t.dtype == F::Out::DTYPE)
        && F::accepts(ctx.args);
    if !fits {
        return ctx.decline("takes operands of one dtype and the output of its result's");
    }
    let level = SimdLevel::at_most(if F::COST >= WIDE { ctx.cpu.isa } else { ctx.cpu.isa.min(Isa::Avx2) });
    let name = format!("{}.{}.{}", F::NAME, T::DTYPE.name(), level.isa().name());
    framed(name, LanewiseKernel::<F, T, N> { level, out: ctx.args.len() - 1, types: PhantomData })
}

impl<F: Lanewise<T, N>, T: Element, const N: usize> UnitKernel for LanewiseKernel<F, T, N> {
    type Problem = BroadcastPlan<N>;

    fn alias(&self) -> AliasRule {
        if F::Out::DTYPE == T::DTYPE { AliasRule::InPlace } else { AliasRule::None }
    }

    fn bind(&self, args: &mut BindArgs<'_>, plan: &mut BroadcastPlan<N>) -> Result<Split> {
        *plan = bind_operands(args, self.out)?;
        Ok(Split::new(plan.numel(), CHUNK, plan.numel().min(CHUNK) / 16 * F::COST))
    }

    fn run(&self, plan: &BroadcastPlan<N>, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let mut operands = [std::ptr::null::<T>(); N];
        for (i, operand) in operands.iter_mut().enumerate() {
            *operand = chunk.input::<T>(i)?.as_ptr();
        }
        let out = chunk.output_shared::<F::Out>(self.out)?.as_ptr();
        let (range, parameters) = (chunk.units.clone(), F::parameters(chunk.args())?);
        let task = LanewiseTask::<F, T, N> { parameters, plan, range, operands, out };
        let is_refused =
            if F::COST >= WIDE { self.level.dispatch(task) } else { self.level.dispatch_narrow(task) };
        if is_refused { Err(F::refusal()) } else { Ok(()) }
    }
}

/// The walk over operands `0..N`, whose shape the output gets: one code for all functions and types.
fn bind_operands<const N: usize>(args: &mut BindArgs<'_>, out: usize) -> Result<BroadcastPlan<N>> {
    let mut shapes = [Dims::EMPTY; N];
    for (i, shape) in shapes.iter_mut().enumerate() {
        *shape = *args.args().tensor(i)?.shape();
    }
    args.resize(out, &broadcast_shape(&std::array::from_fn::<_, N, _>(|i| &shapes[i]))?)?;
    let args = args.args();
    let out = args.output(out)?;
    let mut metas: [&TensorMeta; N] = [out.meta(); N];
    for (i, meta) in metas.iter_mut().enumerate() {
        *meta = args.tensor(i)?.meta();
    }
    Ok(BroadcastPlan::new(out.meta(), metas))
}

struct LanewiseTask<'a, F: Lanewise<T, N>, T: Element, const N: usize> {
    parameters: Numbers<T>,
    plan: &'a BroadcastPlan<N>,
    range: Range<usize>,
    operands: [*const T; N],
    out: *mut F::Out,
}

impl<F: Lanewise<T, N>, T: Element, const N: usize> SimdTask for LanewiseTask<'_, F, T, N> {
    /// Were there operands that the function refuses?
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let strides = self.plan.inner_strides();
        let mut is_refused = false;
        for Run { at, offsets, n } in self.plan.runs_between(self.range.start, self.range.end) {
            let mut from = self.operands;
            // SAFETY: the plan was made for these operands and this output; it yields offsets inside the operands and
            // runs inside the range, which is this chunk's part of the output.
            unsafe {
                for k in 0..N {
                    from[k] = from[k].add(offsets[k]);
                }
                is_refused |= stretch::<S, F, T, N>(s, self.parameters, from, strides, self.out.add(at), n);
            }
        }
        is_refused
    }
}

/// Were there operands that the function refuses?
///
/// # Safety
/// Operand `k` is readable at `i * strides[k]`, `out` writable at `i`, for `i < n`.
#[inline(always)]
unsafe fn stretch<S: Simd, F: Lanewise<T, N>, T: Element, const N: usize>(
    s: S,
    parameters: Numbers<T>,
    from: [*const T; N],
    strides: [usize; N],
    out: *mut F::Out,
    n: usize,
) -> bool {
    // One loop per common kind of strides: constants let the compiler vectorise.
    // SAFETY: constant strides are those that the caller promises elements at.
    unsafe {
        if strides == [1; N] {
            stepped::<S, F, T, N>(s, parameters, from, [1; N], out, n)
        } else if N == 2 && strides[0] == 1 && strides[1] == 0 {
            let mut other = [1; N];
            other[1] = 0;
            stepped::<S, F, T, N>(s, parameters, from, other, out, n)
        } else {
            stepped::<S, F, T, N>(s, parameters, from, strides, out, n)
        }
    }
}

/// The operands of element `i`.
///
/// # Safety
/// Operand `k` is readable at `i * strides[k]`.
#[inline(always)]
unsafe fn operands<T: Copy, const N: usize>(from: [*const T; N], strides: [usize; N], i: usize) -> [T; N] {
    // SAFETY: the caller promises these elements.
    unsafe {
        let mut x = [*from[0]; N];
        for k in 0..N {
            x[k] = *from[k].add(i * strides[k]);
        }
        x
    }
}

/// # Safety
/// As for [`stretch`].
#[inline(always)]
unsafe fn stepped<S: Simd, F: Lanewise<T, N>, T: Element, const N: usize>(
    s: S,
    parameters: Numbers<T>,
    from: [*const T; N],
    strides: [usize; N],
    out: *mut F::Out,
    n: usize,
) -> bool {
    /// Elements that are asked together whether they are easy.
    const GROUP: usize = 64;
    if !F::HAS_HARD {
        for i in 0..n {
            // SAFETY: i < n, for which the caller promises elements.
            unsafe { *out.add(i) = F::of(s, parameters, operands(from, strides, i)) };
        }
        return false;
    }
    let mut is_refused = false;
    for start in (0..n).step_by(GROUP) {
        let group = start..n.min(start + GROUP);
        let mut is_easy = true;
        for i in group.clone() {
            // SAFETY: i < n, for which the caller promises elements.
            is_easy &= F::is_easy(s, parameters, unsafe { operands(from, strides, i) });
        }
        if is_easy {
            for i in group {
                // SAFETY: i < n, for which the caller promises elements.
                unsafe { *out.add(i) = F::of(s, parameters, operands(from, strides, i)) };
            }
        } else {
            for i in group {
                // SAFETY: i < n, for which the caller promises elements.
                unsafe {
                    let v = operands(from, strides, i);
                    is_refused |= F::is_refused(v);
                    *out.add(i) = F::hard(s, parameters, v);
                }
            }
        }
    }
    is_refused
}
