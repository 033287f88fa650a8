//! Elementwise functions of two float tensors that broadcast: add, sub, mul, div, maximum, minimum, and the
//! six comparisons with a bool output (against a tensor or a scalar).

use super::floats::prepare;
use super::pointwise::{NO_PARAMETERS, Parameters, Pointwise, Scalars};
use crate::vector_math::Simd;
use pteron_core::{Result, StaticKernel};

const CHEAP: usize = 4;

macro_rules! arithmetic {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),* }: $op:literal, $out:literal, |$args:ident| $make:expr,
        |$this:ident, $s:ident, $a:ident, $b:ident| $body:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name { $($field: f32),* }
        impl Pointwise<2> for $name {
            const NAME: &'static str = $op;
            const OUT: usize = $out;
            const COST: usize = CHEAP;
            const TAKES_NUMBERS: bool = true;
            fn from_scalars<A: Scalars + ?Sized>($args: &A) -> Result<Self> {
                Ok($make)
            }
            fn parameters(self) -> Parameters {
                let mut all = NO_PARAMETERS;
                let own: &[f32] = &[$(self.$field),*];
                for (slot, v) in all.iter_mut().zip(own) {
                    *slot = *v;
                }
                all
            }
            #[inline(always)]
            fn from_parameters(parameters: Parameters) -> Self {
                #[allow(unused_mut, unused_variables)]
                let mut next = parameters.into_iter();
                $name { $($field: next.next().unwrap_or(0.0)),* }
            }
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, [$a, $b]: [S::F; 2]) -> S::F {
                let $this = self;
                $body
            }
        }
    )* };
}

arithmetic! {
    /// a + alpha b, the product rounded first as eager does on x86.
    Add { alpha }: "add", 3, |args| Add { alpha: args.double(2)? as f32 },
        |f, s, a, b| if f.alpha == 1.0 { s.add(a, b) } else { s.fma(b, s.splat(f.alpha), a) };
    /// a - alpha b.
    Sub { alpha }: "sub", 3, |args| Sub { alpha: args.double(2)? as f32 },
        |f, s, a, b| if f.alpha == 1.0 { s.sub(a, b) } else { s.fma(b, s.splat(-f.alpha), a) };
    /// a b.
    Mul {}: "mul", 2, |_args| Mul {}, |_f, s, a, b| s.mul(a, b);
    /// a / b.
    Div {}: "div", 2, |_args| Div {}, |_f, s, a, b| s.div(a, b);
    /// The larger; NaN when either is.
    Maximum {}: "maximum", 2, |_args| Maximum {}, |_f, s, a, b| s.max_nan(a, b);
    /// The smaller; NaN when either is.
    Minimum {}: "minimum", 2, |_args| Minimum {}, |_f, s, a, b| s.min_nan(a, b);
}

macro_rules! comparisons {
    ($($tensor:ident, $scalar:ident: $op:literal, |$s:ident, $a:ident, $b:ident| $body:expr;)*) => { $(
        #[derive(Clone, Copy)]
        pub(super) struct $tensor;
        impl Pointwise<2> for $tensor {
            const NAME: &'static str = $op;
            const OUT: usize = 2;
            const COST: usize = CHEAP;
            const IS_PREDICATE: bool = true;
            fn from_scalars<A: Scalars + ?Sized>(_: &A) -> Result<Self> {
                Ok($tensor)
            }
            fn from_parameters(_: Parameters) -> Self {
                $tensor
            }
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, [$a, $b]: [S::F; 2]) -> S::F {
                $s.select($body, $s.splat(1.0), $s.zero())
            }
        }
        #[derive(Clone, Copy)]
        pub(super) struct $scalar(f32);
        impl Pointwise<1> for $scalar {
            const NAME: &'static str = $op;
            const OUT: usize = 2;
            const COST: usize = CHEAP;
            const IS_PREDICATE: bool = true;
            fn from_scalars<A: Scalars + ?Sized>(args: &A) -> Result<Self> {
                Ok($scalar(args.double(1)? as f32))
            }
            fn parameters(self) -> Parameters {
                [self.0, 0.0, 0.0]
            }
            #[inline(always)]
            fn from_parameters([scalar, ..]: Parameters) -> Self {
                $scalar(scalar)
            }
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, [$a]: [S::F; 1]) -> S::F {
                let $b = $s.splat(self.0);
                $s.select($body, $s.splat(1.0), $s.zero())
            }
        }
    )* };
}

comparisons! {
    Eq, EqScalar: "eq", |s, a, b| s.eq(a, b);
    Ne, NeScalar: "ne", |s, a, b| s.not(s.eq(a, b));
    Lt, LtScalar: "lt", |s, a, b| s.lt(a, b);
    Le, LeScalar: "le", |s, a, b| s.le(a, b);
    Gt, GtScalar: "gt", |s, a, b| s.gt(a, b);
    Ge, GeScalar: "ge", |s, a, b| s.ge(a, b);
}

macro_rules! tensor {
    ($schema:literal, $p:ident) => {
        StaticKernel { schema: $schema, variant: "float", prepare: prepare::<$p, 2> }
    };
}
macro_rules! comparison_table {
    ($($op:literal, $tensor:ident, $scalar:ident;)*) => {
        &[$(
            StaticKernel {
                schema: concat!($op, ".Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"),
                variant: "float",
                prepare: prepare::<$tensor, 2>,
            },
            StaticKernel {
                schema: concat!($op, ".Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)"),
                variant: "float",
                prepare: prepare::<$scalar, 1>,
            },
        )*]
    };
}

/// Fast kernels of this file that compute numbers.
pub static KERNELS: &[StaticKernel] = &[
    tensor!("aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", Add),
    tensor!("aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", Sub),
    tensor!("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Mul),
    tensor!("aten::div.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Div),
    tensor!("aten::maximum.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Maximum),
    tensor!("aten::minimum.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", Minimum),
];

/// Fast kernels of this file that compare: each operator against a tensor, then against a scalar.
pub static COMPARISONS: &[StaticKernel] = comparison_table! {
    "aten::eq", Eq, EqScalar;
    "aten::ne", Ne, NeScalar;
    "aten::lt", Lt, LtScalar;
    "aten::le", Le, LeScalar;
    "aten::gt", Gt, GtScalar;
    "aten::ge", Ge, GeScalar;
};
