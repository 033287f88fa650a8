//! Sums and products of int8 tensors in integers: fixed_point_add, integer_mul.
//!
//! Shape: the operands broadcast. Dtype: int8. A number is `(element - zero_point) * scale`. A sum multiplies both
//! operands by scales in fixed point of 21 bits and rounds halves up; a product is one of integers, multiplied by the
//! scales in float32 and rounded half to even. Programs do not call these: graphs of XNNPACK are translated to them,
//! because rounding in fixed point is what their results are defined by. A difference is a sum with a scale below zero.
//! Edge cases: none; results are cut to the range that the call states. Source: XNNPACK's `qs8-vadd`, `qs8-vmul`.

use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::chunked;
use crate::operator::{Operator, kernel};
use crate::routine::{Preparation, dtype_of};
use crate::shape::broadcast;
use crate::strided::loops::Loops;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Error, Isa, PrepareContext, Result};
use std::ops::Range;

// Positions among the arguments.
const B: usize = 3;
const OUT_SCALE: usize = 6;
const OUT: usize = 10;

/// Bits of a multiplier in fixed point.
const BITS: i32 = 20;

/// What is computed of two elements.
trait Formula: Copy + Default + Send + Sync + 'static {
    /// With the scales of both operands and the result, and the zero points of the operands.
    fn new(scales: [f32; 3], zeros: [i32; 2]) -> Result<Self>;
    /// The result, less its zero point.
    fn of(self, a: i32, b: i32) -> i32;
}

/// `(bias + a * times[0] + b * times[1]) >> shift`.
#[derive(Clone, Copy, Default)]
struct Sum {
    times: [i32; 2],
    bias: i32,
    shift: u32,
}

impl Formula for Sum {
    fn new([a, b, out]: [f32; 3], [a_zero, b_zero]: [i32; 2]) -> Result<Self> {
        let ratios = [a / out, b / out];
        let largest = ratios[0].abs().max(ratios[1].abs());
        if !ratios.iter().all(|ratio| (0.000_976_562_5..256.0).contains(&ratio.abs())) {
            return Err(Error::kernel("scales are too far apart for a sum in fixed point")
                .expected("operands of 1/1024 to below 256 of the result's scale")
                .got(format!("{} and {}", ratios[0], ratios[1])));
        }
        // The larger multiplier has all bits.
        let exponent = (largest.to_bits() >> 23) as i32 - 127;
        let shift = BITS - exponent;
        let times = ratios.map(|ratio| (f64::from(ratio) * f64::from(shift).exp2()).round_ties_even() as i32);
        let half = 1i32 << (shift - 1);
        let bias =
            half.wrapping_sub(times[0].wrapping_mul(a_zero)).wrapping_sub(times[1].wrapping_mul(b_zero));
        Ok(Sum { times, bias, shift: shift as u32 })
    }

    #[inline(always)]
    fn of(self, a: i32, b: i32) -> i32 {
        let [by_a, by_b] = self.times;
        self.bias.wrapping_add(a.wrapping_mul(by_a)).wrapping_add(b.wrapping_mul(by_b)) >> (self.shift & 31)
    }
}

/// `(a - zeros[0]) * (b - zeros[1]) * scale`.
#[derive(Clone, Copy, Default)]
struct Product {
    zeros: [i32; 2],
    scale: f32,
}

impl Formula for Product {
    fn new([a, b, out]: [f32; 3], zeros: [i32; 2]) -> Result<Self> {
        Ok(Product { zeros, scale: a * b / out })
    }

    #[inline(always)]
    fn of(self, a: i32, b: i32) -> i32 {
        // Added, it leaves no room for a fraction: the sum is rounded half to even.
        const WHOLE: f32 = 12_582_912.0;
        // Beyond these every result is cut anyway; the bounds keep the sum where it is exact.
        let product = (a - self.zeros[0]).wrapping_mul(b - self.zeros[1]) as f32 * self.scale;
        let within = product.clamp(-65_536.0, 65_536.0);
        ((within + WHOLE) - WHOLE) as i32
    }
}

/// What a call computes, and where the operands of an element are.
#[derive(Clone, Copy)]
struct Bound<F> {
    formula: F,
    zero: i32,
    range: [i32; 2],
    loops: Loops<2>,
}

impl<F: Formula> Default for Bound<F> {
    fn default() -> Self {
        Bound { formula: F::default(), zero: 0, range: [0; 2], loops: Loops::EMPTY }
    }
}

impl<F: Formula> Bound<F> {
    #[inline(always)]
    fn of(&self, a: i8, b: i8) -> i8 {
        let moved = self.formula.of(i32::from(a), i32::from(b)).saturating_add(self.zero);
        moved.max(self.range[0]).min(self.range[1]) as i8
    }
}

/// An element of int8, as an argument states it.
fn element(args: &Args<'_>, i: usize) -> Result<i32> {
    let v = args.int(i)?;
    match i8::try_from(v) {
        Ok(v) => Ok(i32::from(v)),
        Err(_) => {
            Err(Error::kernel("the number is no element of int8").expected("-128 to 127").got(v.to_string()))
        }
    }
}

fn bind<F: Formula>(args: &mut BindArgs<'_>, state: &mut Bound<F>) -> Result<usize> {
    let view = args.args();
    let shape = broadcast(view.tensor(0)?.shape(), view.tensor(B)?.shape())?;
    args.resize(OUT, &shape)?;
    let args = args.args();
    let out = args.tensor(OUT)?;
    let scales = [args.double(1)? as f32, args.double(B + 1)? as f32, args.double(OUT_SCALE)? as f32];
    if !scales.iter().all(|scale| scale.is_normal()) || scales[2] < 0.0 {
        return Err(Error::kernel("a scale is no number to multiply with").got(format!("{scales:?}")));
    }
    let zeros = [element(&args, 2)?, element(&args, B + 2)?];
    state.formula = F::new(scales, zeros)?;
    state.zero = element(&args, OUT_SCALE + 1)?;
    state.range = [element(&args, OUT_SCALE + 2)?, element(&args, OUT_SCALE + 3)?];
    state.loops = Loops::broadcast(out.meta(), [args.tensor(0)?.meta(), args.tensor(B)?.meta()]);
    Ok(out.numel())
}

fn run<F: Formula>(state: &Bound<F>, args: &Args<'_>, positions: Range<usize>) -> Result<()> {
    let a = ChunkOf::<i8>::of(args.tensor(0)?, true)?.as_slice()?;
    let b = ChunkOf::<i8>::of(args.tensor(B)?, true)?.as_slice()?;
    // The output is dense in its dim order, which is the order of positions.
    let out = ChunkOfMut::<i8>::of(args.output(OUT)?, positions.clone(), true)?.into_slice()?;
    let strides = state.loops.inner_strides();
    let missing = || Error::internal("an operand has lost elements");
    state.loops.each_run(positions.start, positions.len(), |done, [at_a, at_b], n| {
        let out = out.get_mut(done..done.saturating_add(n)).ok_or_else(missing)?;
        // From the first element on.
        let a = usize::try_from(at_a).ok().and_then(|at| a.get(at..)).ok_or_else(missing)?;
        let b = usize::try_from(at_b).ok().and_then(|at| b.get(at..)).ok_or_else(missing)?;
        match strides {
            [1, 1] if a.len() >= n && b.len() >= n => {
                SimdLevel::at_most(Isa::Avx512).dispatch(Pairs { state, a: &a[..n], b: &b[..n], out });
            }
            [step_a, step_b] => {
                let at = |x: &[i8], i: usize, step: isize| {
                    i.checked_mul(step.unsigned_abs()).and_then(|at| x.get(at)).copied().ok_or_else(missing)
                };
                for (i, out) in out.iter_mut().enumerate() {
                    *out = state.of(at(a, i, step_a)?, at(b, i, step_b)?);
                }
            }
        }
        Ok(())
    })
}

/// Elements side by side.
struct Pairs<'a, F> {
    state: &'a Bound<F>,
    a: &'a [i8],
    b: &'a [i8],
    out: &'a mut [i8],
}

impl<F: Formula> SimdTask for Pairs<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let state = *self.state;
        for ((out, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = state.of(*a, *b);
        }
    }
}

fn prepare<F: Formula>(ctx: &PrepareContext<'_>) -> Preparation {
    for i in [0, B, OUT] {
        let dtype = dtype_of(ctx, i)?;
        if dtype != DType::Int8 {
            return Err(Error::kernel("the operator takes tensors of int8")
                .expected("int8")
                .got(dtype.name()));
        }
    }
    chunked::prepare(bind::<F>, run::<F>)
}

/// fixed_point_add, integer_mul.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "pteron::fixed_point_add.out(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, float out_scale, int out_zero_point, int out_quant_min, int out_quant_max, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<Sum>,
    ),
    kernel(
        "pteron::integer_mul.out(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, float out_scale, int out_zero_point, int out_quant_min, int out_quant_max, *, Tensor(a!) out) -> Tensor(a!)",
        prepare::<Product>,
    ),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, run_out};
    use pteron_core::DType;

    /// Every pair of elements: a row by a column.
    fn pairs() -> (Tensor, Tensor) {
        let all: Vec<i8> = (-128..=127).collect();
        (Tensor::of(&[256, 1], &all), Tensor::of(&[1, 256], &all))
    }

    fn run(operator: &str, scales: [f64; 3], zeros: [i64; 3], range: [i64; 2]) -> Vec<i8> {
        let (a, b) = pairs();
        let (scale, int) = (|i: usize| Arg::Double(scales[i]), |v: i64| Arg::Int(v));
        let args = [
            a.into(),
            scale(0),
            int(zeros[0]),
            b.into(),
            scale(1),
            int(zeros[1]),
            scale(2),
            int(zeros[2]),
            int(range[0]),
            int(range[1]),
        ];
        run_out(operator, &args, DType::Int8, &[256, 256]).unwrap().values::<i8>()
    }

    #[test]
    fn sums_are_those_of_exact_multipliers_with_halves_up() {
        // Ratios that are multiples of 2^-20: nothing is lost but in the last step.
        for (scales, zeros) in [([0.5, 0.25, 0.5], [3, -7, 1]), ([0.375, -0.75, 1.0], [0, 5, -128])] {
            let got = run("pteron::fixed_point_add.out", scales, zeros, [-128, 127]);
            for (i, got) in got.iter().enumerate() {
                let (a, b) = ((i / 256) as f64 - 128.0, (i % 256) as f64 - 128.0);
                let sum = (a - zeros[0] as f64) * scales[0] + (b - zeros[1] as f64) * scales[1];
                let want = ((sum / scales[2] + 0.5).floor() + zeros[2] as f64).clamp(-128.0, 127.0);
                assert_eq!(f64::from(*got), want, "{a} {b} {scales:?}");
            }
        }
    }

    #[test]
    fn products_round_half_to_even_and_are_cut() {
        let (scales, zeros) = ([0.5, 0.5, 0.5], [1, -2, 4]);
        let got = run("pteron::integer_mul.out", scales, zeros, [-100, 90]);
        for (i, got) in got.iter().enumerate() {
            let (a, b) = ((i / 256) as f64 - 128.0, (i % 256) as f64 - 128.0);
            let product = (a - 1.0) * (b + 2.0) * 0.5;
            let want = (product.round_ties_even() + 4.0).clamp(-100.0, 90.0);
            assert_eq!(f64::from(*got), want, "{a} {b}");
        }
    }

    #[test]
    fn dense_operands_are_those_of_broadcast_ones() {
        let all: Vec<i8> = (-128..=127).collect();
        let (mut a, mut b) = (Vec::<i8>::new(), Vec::<i8>::new());
        for x in &all {
            a.extend(std::iter::repeat_n(*x, 256));
            b.extend(&all);
        }
        let numbers = |scale: f64, zero: i64| [Arg::Double(scale), Arg::Int(zero)];
        for operator in ["pteron::fixed_point_add.out", "pteron::integer_mul.out"] {
            let mut args: Vec<Arg> = vec![Tensor::of(&[256, 256], &a).into()];
            args.extend(numbers(0.013, 9));
            args.push(Tensor::of(&[256, 256], &b).into());
            args.extend(numbers(0.021, -4));
            args.extend(numbers(0.017, 2));
            args.extend([Arg::Int(-128), Arg::Int(127)]);
            let dense = run_out(operator, &args, DType::Int8, &[256, 256]).unwrap().values::<i8>();
            assert_eq!(dense, run(operator, [0.013, 0.021, 0.017], [9, -4, 2], [-128, 127]), "{operator}");
        }
    }

    #[test]
    fn scales_that_do_not_fit_together_are_refused() {
        let (a, b) = pairs();
        let args = |scale: f64| {
            let one = || [Arg::Double(scale), Arg::Int(0)];
            let mut args: Vec<Arg> = vec![a.clone().into()];
            args.extend(one());
            args.push(b.clone().into());
            args.extend(one());
            args.extend([Arg::Double(1.0), Arg::Int(0), Arg::Int(-128), Arg::Int(127)]);
            args
        };
        let run = |scale| run_out("pteron::fixed_point_add.out", &args(scale), DType::Int8, &[256, 256]);
        assert!(run(0.5).is_ok());
        for scale in [300.0, 1e-5] {
            assert!(error_text(run(scale)).contains("too far apart"));
        }
        assert!(error_text(run(f64::NAN)).contains("no number to multiply with"));
    }
}
