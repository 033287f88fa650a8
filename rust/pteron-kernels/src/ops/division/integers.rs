//! Division of integers by the division of floats, which vectors have. Where all bits of both numbers have a place in the
//! float, its quotient cut off is the integer one: a quotient below n is at least 1/b below it, and n b has as many bits as a.
//! That is more than half a unit in the last place of n, so that nothing is rounded up to n.
//!
//! Edge cases: division by zero is an error, the smallest integer divided by -1 wraps.

use super::by_zero;
use crate::elementwise::lanewise::lanes;
use pteron_core::{ArgSpec, Element};

/// An integer that is divided by way of floats.
pub(super) trait Whole: Element {
    /// A float that holds it, if the numbers are easy.
    type Float: Float;
    /// Is the divisor not zero, and does the float hold both?
    fn is_easy(a: Self, b: Self) -> bool;
    /// Is it zero?
    fn is_zero(self) -> bool;
    /// The float of an easy number.
    fn to_float(self) -> Self::Float;
    /// The integer of a whole float; out of range, the low bits.
    fn of_float(v: Self::Float) -> Self;
    /// Quotient and remainder of any numbers, cut off; zeros for a division by zero.
    fn divided(self, by: Self) -> (Self, Self);
    /// Quotient and remainder of any numbers, rounded down.
    fn divided_down(self, by: Self) -> (Self, Self);
}

/// A float that integers are divided in.
pub(super) trait Float: Copy {
    /// Quotient and remainder, cut off.
    fn divided(self, by: Self) -> (Self, Self);
    /// Quotient and remainder, rounded down.
    fn divided_down(self, by: Self) -> (Self, Self);
}

macro_rules! float {
    ($($t:ty),*) => { $(
        impl Float for $t {
            #[inline(always)]
            fn divided(self, by: $t) -> ($t, $t) {
                let quotient = (self / by).trunc();
                (quotient, self - quotient * by)
            }
            #[inline(always)]
            fn divided_down(self, by: $t) -> ($t, $t) {
                let (quotient, rest) = Float::divided(self, by);
                let is_opposite = (rest != 0.0) & ((rest < 0.0) != (by < 0.0));
                if is_opposite { (quotient - 1.0, rest + by) } else { (quotient, rest) }
            }
        }
    )* };
}
float!(f32, f64);

/// Added to a whole number, moves it to the last bits of the float.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// The same for f32.
const SHORT_MAGIC: f32 = 12_582_912.0;

macro_rules! whole {
    ($($t:ty: $float:ty, |$a:ident, $b:ident| $easy:expr, |$v:ident| $to:expr, |$f:ident| $of:expr;)*) => { $(
        impl Whole for $t {
            type Float = $float;
            #[inline(always)]
            fn is_easy($a: $t, $b: $t) -> bool {
                ($b != 0) & $easy
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0
            }
            #[inline(always)]
            fn to_float(self) -> $float {
                let $v = self;
                $to
            }
            #[inline(always)]
            fn of_float($f: $float) -> $t {
                $of
            }
            #[inline(always)]
            fn divided(self, by: $t) -> ($t, $t) {
                if by == 0 { (0, 0) } else { (self.wrapping_div(by), self.wrapping_rem(by)) }
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "unsigned types have no negative numbers")]
            fn divided_down(self, by: $t) -> ($t, $t) {
                let (quotient, rest) = Whole::divided(self, by);
                let is_opposite = rest != 0 && (rest < 0) != (by < 0);
                if is_opposite { (quotient.wrapping_sub(1), rest.wrapping_add(by)) } else { (quotient, rest) }
            }
        }
    )* };
}
whole! {
    // From -2^51 up to 2^51: the sums have no bits above the 52.
    i64: f64, |a, b| (a.wrapping_add(1 << 51) | b.wrapping_add(1 << 51)) as u64 >> 52 == 0,
        |v| f64::from_bits(MAGIC.to_bits().wrapping_add(v as u64)) - MAGIC,
        |f| (f + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i64;
    i32: f64, |_a, b| true, |v| f64::from(v), |f| (f + MAGIC).to_bits() as i32;
    i16: f32, |_a, b| true, |v| f32::from(v), |f| (f + SHORT_MAGIC).to_bits() as i16;
    i8: f32, |_a, b| true, |v| f32::from(v), |f| (f + SHORT_MAGIC).to_bits() as i8;
    u8: f32, |_a, b| true, |v| f32::from(v), |f| (f + SHORT_MAGIC).to_bits() as u8;
}

lanes! {
    /// a / b rounded to zero.
    DivTrunc: [T: Whole] T => T = "div_trunc", 8,
        |_s, [a, b]| T::of_float(a.to_float().divided(b.to_float()).0),
        where T::is_easy(a, b) => Whole::divided(a, b).0, unless b.is_zero() => by_zero(),
        if |args| matches!(args.get(2), Some(ArgSpec::String("trunc")));
    /// a / b rounded down.
    DivFloor: [T: Whole] T => T = "div_floor", 8,
        |_s, [a, b]| T::of_float(a.to_float().divided_down(b.to_float()).0),
        where T::is_easy(a, b) => Whole::divided_down(a, b).0, unless b.is_zero() => by_zero(),
        if |args| matches!(args.get(2), Some(ArgSpec::String("floor")));
    /// The same as an operator of its own.
    FloorDivide: [T: Whole] T => T = "floor_divide", 8,
        |_s, [a, b]| T::of_float(a.to_float().divided_down(b.to_float()).0),
        where T::is_easy(a, b) => Whole::divided_down(a, b).0, unless b.is_zero() => by_zero();
    /// Remainder with the sign of a.
    Fmod: [T: Whole] T => T = "fmod", 8,
        |_s, [a, b]| T::of_float(a.to_float().divided(b.to_float()).1),
        where T::is_easy(a, b) => Whole::divided(a, b).1, unless b.is_zero() => by_zero();
    /// Remainder with the sign of b.
    Remainder: [T: Whole] T => T = "remainder", 8,
        |_s, [a, b]| T::of_float(a.to_float().divided_down(b.to_float()).1),
        where T::is_easy(a, b) => Whole::divided_down(a, b).1, unless b.is_zero() => by_zero();
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::prepare_of;
    use pteron_core::{Element, Isa, Result};

    type Of<'a> = (&'a str, Option<&'static str>);

    fn call<T: Element>(
        (operator, mode): Of<'_>,
        variant: &str,
        isa: Isa,
        a: &[T],
        b: &[T],
    ) -> Option<Result<Vec<T>>> {
        let tensor = |v: &[T]| CallArg::Tensor(HostTensor::new(&[v.len()], v).unwrap());
        let mut args = vec![tensor(a), tensor(b)];
        args.extend(mode.map(|mode| CallArg::String(mode.into())));
        args.push(CallArg::Tensor(HostTensor::zeros(T::DTYPE, &[a.len()]).unwrap()));
        let out = args.len() - 1;
        let mut call = SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
        Some(call.call().and_then(|()| call.output::<T>(out)))
    }

    const OPERATORS: [(Of<'static>, &str); 5] = [
        (("aten::div.out_mode", Some("trunc")), "integers"),
        (("aten::div.out_mode", Some("floor")), "integers_floor"),
        (("aten::floor_divide.out", None), "integers"),
        (("aten::fmod.Tensor_out", None), "integers"),
        (("aten::remainder.Tensor_out", None), "integers"),
    ];

    /// All pairs of numbers in a group, then one with zero as divisor behind them.
    fn check<T: Element + PartialEq + std::fmt::Debug>(groups: &[Vec<T>], zero: T) {
        for ((operator, variant), numbers) in
            OPERATORS.iter().flat_map(|o| groups.iter().map(move |g| (*o, g)))
        {
            let pairs = numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b)));
            let (mut a, mut b): (Vec<T>, Vec<T>) = pairs.filter(|(_, b)| *b != zero).unzip();
            let want = call(operator, "reference", Isa::Portable, &a, &b).unwrap().unwrap();
            for isa in Isa::ALL {
                let Some(got) = call(operator, variant, isa, &a, &b) else { continue };
                for (i, (got, want)) in got.unwrap().iter().zip(&want).enumerate() {
                    assert_eq!(got, want, "{operator:?} {isa:?} {:?} by {:?}", a[i], b[i]);
                }
            }
            a.push(numbers[0]);
            b.push(zero);
            for isa in Isa::ALL {
                let Some(got) = call(operator, variant, isa, &a, &b) else { continue };
                assert!(got.unwrap_err().to_string().contains("by zero"), "{operator:?} {isa:?}");
            }
        }
    }

    #[test]
    fn quotients_and_remainders_are_those_of_the_plain_kernel() {
        // What has a place in the floats, then others among it.
        let near = |top: i64| -> Vec<i64> {
            let sizes =
                [0, 1, 2, 3, 7, 1 << 25, (1 << 26) - 1, top / 3, top / 2 - 1, top / 2, top - 2, top - 1];
            sizes.iter().flat_map(|v| [*v, -*v]).chain([-top]).collect()
        };
        let far = [near(1 << 53), vec![i64::MIN, i64::MAX, i64::MIN + 1]].concat();
        check(&[near(1 << 51), far], 0);
        let ints: Vec<i32> = near(1 << 31).iter().map(|v| *v as i32).collect();
        check(&[ints], 0);
        let words: Vec<i16> = near(1 << 15).iter().map(|v| *v as i16).chain([127, 128, -129]).collect();
        check(&[words], 0);
        check(&[(-128..=127).step_by(5).chain([-1, 127]).collect::<Vec<i8>>()], 0);
        check(&[(0..=255).step_by(5).chain([1, 254]).collect::<Vec<u8>>()], 0);
    }
}
