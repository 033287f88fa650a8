//! The angle of complex64 numbers that lie as the result does, by the vector function of two numbers. Unsafe island (vector
//! loads from arrays).

use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::vector_math::inverse_trigonometric::atan2;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{BindArgs, Complex64, DType, PrepareContext, Result};

const OUT: usize = 1;
/// Numbers of a chunk.
const CHUNK: usize = 4 << 10;

struct Angle {
    level: SimdLevel,
}

/// The kernel, if it takes the call.
pub(crate) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_taken = input.dtype == DType::Complex64 && out.dtype == DType::Float32;
    if !is_taken || input.dim_order != out.dim_order {
        return ctx.decline("takes complex64 in one memory order");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    framed(format!("angle.complex64.{}", level.isa().name()), Angle { level })
}

impl UnitKernel for Angle {
    type Problem = ();

    fn bind(&self, args: &mut BindArgs<'_>, _: &mut ()) -> Result<Split> {
        let shape = *args.args().tensor(0)?.shape();
        args.resize(OUT, &shape)?;
        let n = args.args().tensor(0)?.numel();
        Ok(Split::new(n, CHUNK, n.min(CHUNK) * 3))
    }

    fn run(&self, (): &(), chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let numbers = chunk.input_units::<Complex64>(0, 1)?.as_slice()?;
        let out = chunk.output_units::<f32>(OUT, 1)?.into_slice()?;
        self.level.dispatch(AngleTask { numbers, out });
        Ok(())
    }
}

struct AngleTask<'a> {
    numbers: &'a [Complex64],
    out: &'a mut [f32],
}

impl SimdTask for AngleTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (numbers, out) in self.numbers.chunks(S::LANES).zip(self.out.chunks_mut(S::LANES)) {
            let (mut re, mut im) = ([0f32; MAX_LANES], [0f32; MAX_LANES]);
            for ((re, im), z) in re.iter_mut().zip(&mut im).zip(numbers) {
                (*re, *im) = (z.re, z.im);
            }
            let mut angles = [0f32; MAX_LANES];
            // SAFETY: the arrays have every lane.
            unsafe { s.store(angles.as_mut_ptr(), atan2(s, s.load(im.as_ptr()), s.load(re.as_ptr()))) };
            out.iter_mut().zip(angles).for_each(|(y, angle)| *y = angle);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::prepare_of;
    use pteron_core::{Complex64, DType, Isa};

    #[test]
    fn angles_of_every_quadrant_and_of_axes() {
        let parts = [0.0f32, -0.0, 1.0, -2.5, 1e-20, -3e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let numbers: Vec<Complex64> =
            parts.iter().flat_map(|re| parts.map(|im| Complex64 { re: *re, im })).collect();
        for isa in Isa::ALL {
            let Some(cpu) = profile(isa) else { continue };
            let args = vec![
                CallArg::Tensor(HostTensor::new(&[9, 9], &numbers).unwrap()),
                CallArg::Tensor(HostTensor::zeros(DType::Float32, &[9, 9]).unwrap()),
            ];
            let prepare = prepare_of("aten::angle.out", "complex");
            let mut call = SingleCall::new(prepare, &cpu, args).unwrap().expect("taken");
            call.call().unwrap();
            for (z, y) in numbers.iter().zip(call.output::<f32>(1).unwrap()) {
                let want = f64::from(z.im).atan2(f64::from(z.re));
                assert_eq!(want.is_nan(), y.is_nan(), "{isa:?} {} {}", z.re, z.im);
                let is_near = (f64::from(y) - want).abs() <= 4e-7 * want.abs();
                assert!(
                    want.is_nan() || is_near && y.is_sign_negative() == want.is_sign_negative(),
                    "{isa:?} {z:?}: {y}"
                );
            }
        }
    }
}
