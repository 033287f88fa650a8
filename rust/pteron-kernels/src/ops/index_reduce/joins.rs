//! How the terms of an element meet.

/// A type that numbers meet in.
pub(super) trait Wide:
    Copy + PartialOrd + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + Into<f64>
{
    const ZERO: Self;
    const MINUS_ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;
    const HIGHEST: Self;
    fn is_nan(self) -> bool;
    fn of_double(v: f64) -> Self;
}

macro_rules! wide {
    ($($t:ty),*) => { $(
        impl Wide for $t {
            const ZERO: $t = 0.0;
            const MINUS_ZERO: $t = -0.0;
            const ONE: $t = 1.0;
            const LOWEST: $t = <$t>::NEG_INFINITY;
            const HIGHEST: $t = <$t>::INFINITY;
            #[inline(always)]
            fn is_nan(self) -> bool { <$t>::is_nan(self) }
            #[inline(always)]
            fn of_double(v: f64) -> $t { v as $t }
        }
    )* };
}
wide!(f32, f64);

/// How two numbers meet. A trait and not closures, which need not be compiled for the instruction set of their caller.
pub(super) trait Join {
    /// Are results rounded to elements? Otherwise they are elements.
    const ROUNDS: bool = false;
    /// Is the last result divided by the number of terms, before it is rounded?
    const DIVIDES: bool = false;
    /// Joins a number to those before it.
    fn join<W: Wide>(a: W, b: W) -> W;
    /// What leaves every number that is joined to it as it is, zeros and NaN too.
    fn neutral<W: Wide>() -> W;
}

macro_rules! joins {
    ($($name:ident $neutral:ident [$($item:item)*] |$a:ident, $b:ident| $body:expr;)*) => { $(
        pub(super) struct $name;
        impl Join for $name {
            $($item)*
            #[inline(always)]
            fn join<W: Wide>($a: W, $b: W) -> W {
                $body
            }
            #[inline(always)]
            fn neutral<W: Wide>() -> W {
                W::$neutral
            }
        }
    )* };
}
joins! {
    Product ONE [const ROUNDS: bool = true;] |a, b| a * b;
    Mean MINUS_ZERO [const ROUNDS: bool = true; const DIVIDES: bool = true;] |a, b| a + b;
    Largest LOWEST [] |a, b| if a.is_nan() | (a > b) { a } else { b };
    Smallest HIGHEST [] |a, b| if a.is_nan() | (a < b) { a } else { b };
}
