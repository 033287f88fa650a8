//! Accuracy of the transcendental functions in units in the last place, per instruction set.

use super::simd::{Simd, SimdTask};
use super::{SimdLevel, erf, exp, log, sigmoid, tanh};
use pteron_core::Isa;

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Tanh,
    Sigmoid,
    Log,
    Erf,
}

impl Function {
    const ALL: [Function; 5] =
        [Function::Exp, Function::Tanh, Function::Sigmoid, Function::Log, Function::Erf];

    fn reference(self, x: f64) -> f64 {
        match self {
            Function::Exp => x.exp(),
            Function::Tanh => x.tanh(),
            Function::Sigmoid => {
                if x < 0.0 {
                    x.exp() / (1.0 + x.exp())
                } else {
                    1.0 / (1.0 + (-x).exp())
                }
            }
            Function::Log => x.ln(),
            Function::Erf => libm::erf(x),
        }
    }

    /// Documented bound on every instruction set.
    fn bound(self) -> f64 {
        match self {
            Function::Exp => 1.1,
            Function::Tanh => 2.7,
            Function::Sigmoid => 2.5,
            Function::Log => 0.9,
            Function::Erf => 1.3,
        }
    }
}

struct Apply<'a> {
    function: Function,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl SimdTask for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.input.chunks(S::LANES).zip(self.output.chunks_mut(S::LANES)) {
            // SAFETY: both chunks have x.len() ≤ LANES elements.
            unsafe {
                let v = s.load_up_to(x.as_ptr(), x.len());
                let r = match self.function {
                    Function::Exp => exp::exp(s, v),
                    Function::Tanh => tanh::tanh(s, v),
                    Function::Sigmoid => sigmoid::sigmoid(s, v),
                    Function::Log => log::log(s, v),
                    Function::Erf => erf::erf(s, v),
                };
                s.store_up_to(y.as_mut_ptr(), r, x.len());
            }
        }
    }
}

/// Distance of `got` from `want` in units in the last place of an f32 of that size.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got.to_bits() == rounded.to_bits() || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    if got.is_nan() || want.is_nan() {
        return f64::INFINITY;
    }
    if got == rounded && got == 0.0 {
        // The sign of zero matters.
        return f64::INFINITY;
    }
    // One step beyond the largest float counts as infinity.
    let value = |v: f32| if v.is_infinite() { f64::from(v.signum()) * 2f64.powi(128) } else { f64::from(v) };
    let want = if want.abs() > 2f64.powi(128) { want.signum() * 2f64.powi(128) } else { want };
    let exponent = if want == 0.0 { -126 } else { (want.abs().log2().floor() as i32).clamp(-126, 127) };
    (value(got) - want).abs() / 2f64.powi(exponent - 23)
}

fn worst(level: SimdLevel, function: Function, inputs: &[f32], output: &mut [f32]) -> (f64, f32) {
    level.dispatch(Apply { function, input: inputs, output });
    let mut worst = (0.0, 0.0);
    for (x, y) in inputs.iter().zip(output.iter()) {
        let u = ulps(*y, function.reference(f64::from(*x)));
        if u > worst.0 {
            worst = (u, *x);
        }
    }
    worst
}

fn check_one(isa: Isa, function: Function, step: u32, block: usize) {
    let level = SimdLevel::at_most(isa);
    if level.isa() != isa {
        return;
    }
    let mut inputs = vec![0f32; block];
    let mut output = vec![0f32; block];
    let mut most = (0.0, 0.0);
    let mut bits = 0u64;
    while bits < 1 << 32 {
        for x in inputs.iter_mut() {
            *x = f32::from_bits(bits.min(u64::from(u32::MAX)) as u32);
            bits += u64::from(step);
        }
        let w = worst(level, function, &inputs, &mut output);
        if w.0 > most.0 {
            most = w;
        }
    }
    println!("{function:?} {}: {:.3} ULP at {:e}", isa.name(), most.0, most.1);
    let bound = function.bound();
    assert!(most.0 <= bound, "{function:?} {isa:?}: {} ULP at {:e}, bound {bound}", most.0, most.1);
}

/// Every function on every instruction set, each on a thread of its own.
fn check(step: u32, block: usize) {
    std::thread::scope(|scope| {
        for isa in Isa::ALL {
            for function in Function::ALL {
                scope.spawn(move || check_one(isa, function, step, block));
            }
        }
    });
}

#[test]
fn sampled_inputs_stay_within_the_documented_bounds() {
    check(2_053, 1021);
}

#[test]
#[ignore = "every f32 input: minutes"]
fn all_inputs_stay_within_the_documented_bounds() {
    check(1, 1 << 16);
}

#[test]
fn special_values() {
    let specials = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45, -1e-45];
    for isa in Isa::ALL {
        for function in Function::ALL {
            let mut out = [0f32; 8];
            let w = worst(SimdLevel::at_most(isa), function, &specials, &mut out);
            assert!(w.0 <= function.bound(), "{function:?} {isa:?}: {w:?} {out:?}");
        }
    }
}
