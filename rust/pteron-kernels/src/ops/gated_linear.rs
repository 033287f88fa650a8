//! glu: the first half of a dimension times the logistic function of the second.
//!
//! Shape: the dimension is halved. Dtype: floats, computed in float32 or float64, 16-bit floats rounded once. Edge cases:
//! an odd extent is an error; NaN in either half gives NaN, infinity times a gate of zero too.

use crate::compute::BLOCK;
use crate::elements::{Reader, Writer};
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::operator::{Operator, kernel};
use crate::ops::sums::check_float;
use crate::reduction::plain::row_major;
use crate::routine::{Preparation, Routine};
use crate::shape::wrap_dim;
use crate::strided::loops::{Walk, signed};
use crate::vector_math::SimdLevel;
use gate::{Gate, GateTask};
use half::{bf16, f16};
use pteron_core::{Args, BindArgs, DType, Error, PrepareContext, Result};
use std::marker::PhantomData;

#[allow(unsafe_code, reason = "a SIMD task")]
mod gate;

const OUT: usize = 2;
/// Elements of the result in a chunk.
const CHUNK: usize = 8 << 10;

/// The dimension and half its extent.
fn halves(args: &Args<'_>) -> Result<(usize, usize)> {
    let x = args.tensor(0)?;
    let dim = wrap_dim(args.int(1)?, x.rank())?;
    match x.shape().get(dim) {
        Some(extent) if extent % 2 == 0 => Ok((dim, extent / 2)),
        _ => Err(Error::kernel("glu needs an even extent").argument("dim").got(x.shape().to_string())),
    }
}

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let (dim, half) = halves(&view)?;
    let mut shape = *view.tensor(0)?.shape();
    shape[dim] = half;
    args.resize(OUT, &shape)
}

fn plain(args: &Args<'_>) -> Result<()> {
    let (dim, half) = halves(args)?;
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(OUT)?)?;
    let from = Walk::row_major(y.meta().shape(), &signed(x.meta().strides()));
    let gates = (half * x.meta().strides()[dim]) as isize;
    let to = row_major(y.meta());
    let (mut a, mut b) = ([0.0; BLOCK], [0.0; BLOCK]);
    for start in (0..to.numel()).step_by(BLOCK) {
        let n = (to.numel() - start).min(BLOCK);
        x.gather(&from, 0, start, &mut a[..n])?;
        x.gather(&from, gates, start, &mut b[..n])?;
        for (a, b) in a[..n].iter_mut().zip(&b) {
            *a *= 1.0 / (1.0 + (-b).exp());
        }
        y.scatter(&to, 0, start, &a[..n])?;
    }
    Ok(())
}

/// glu of elements that lie in one memory order, in and out: halves follow each other in memory.
struct Halves<A> {
    level: SimdLevel,
    element: PhantomData<A>,
}

fn fast(ctx: &PrepareContext<'_>) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    if out.dtype != input.dtype || input.dim_order != out.dim_order {
        return ctx.decline("takes one dtype in one memory order");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("glu.{}.{}", input.dtype.name(), level.isa().name());
    match input.dtype {
        DType::Float32 => framed(name, Halves::<f32> { level, element: PhantomData }),
        DType::Float64 => framed(name, Halves::<f64> { level, element: PhantomData }),
        DType::Float16 => framed(name, Halves::<f16> { level, element: PhantomData }),
        DType::BFloat16 => framed(name, Halves::<bf16> { level, element: PhantomData }),
        _ => ctx.decline("takes floats"),
    }
}

impl<A: Gate> UnitKernel for Halves<A> {
    /// Elements of a half, one behind the other in memory.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, half: &mut usize) -> Result<Split> {
        bind(args)?;
        let view = args.args();
        let (dim, _) = halves(&view)?;
        let out = view.tensor(OUT)?;
        let order = out.meta().dim_order().as_slice().iter().map(|d| usize::from(*d));
        *half = order.skip_while(|d| *d != dim).map(|d| out.shape().get(d).copied().unwrap_or(1)).product();
        Ok(Split::new(out.numel(), CHUNK, out.numel().min(CHUNK) * A::PICOSECONDS / 1000))
    }

    fn run(&self, half: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let x = chunk.input::<A>(0)?.as_slice()?;
        let (mut at, end) = (chunk.units.start, chunk.units.end);
        let mut y = chunk.output_units::<A>(OUT, 1)?.into_slice()?;
        let outside = || Error::internal("halves outside their tensor");
        while at < end {
            let (row, column) = (at / half, at % half);
            let n = (half - column).min(end - at);
            let values = x.get(2 * row * half + column..).and_then(|x| x.get(..n)).ok_or_else(outside)?;
            let gates =
                x.get((2 * row + 1) * half + column..).and_then(|x| x.get(..n)).ok_or_else(outside)?;
            let (part, rest) = y.split_at_mut_checked(n).ok_or_else(outside)?;
            self.level.dispatch(GateTask { values, gates, out: part });
            y = rest;
            at += n;
        }
        Ok(())
    }
}

/// glu.
pub static OPERATORS: &[Operator] =
    &[kernel("aten::glu.out(Tensor self, int dim=-1, *, Tensor(a!) out) -> Tensor(a!)", |ctx| {
        check_float(ctx, OUT)?;
        Routine::prepare(bind, |args, _| plain(args))
    })
    .fast("halves", fast)];

#[cfg(test)]
mod tests {
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{Tensor, error_text, numbers, prepare_of, run_out};
    use half::{bf16, f16};
    use pteron_core::{DType, Element, Isa};

    #[test]
    fn glu_gates_with_the_second_half() {
        let x = Tensor::of(&[4], &[2f32, 3.0, 0.0, f32::INFINITY]);
        let y = run_out("aten::glu.out", &[x.into(), 0i64.into()], DType::Float32, &[2]).unwrap();
        assert_eq!(y.values::<f32>(), [1.0, 3.0]);
        let x = Tensor::of(&[3], &[0f32; 3]);
        assert!(
            error_text(run_out("aten::glu.out", &[x.into(), 0i64.into()], DType::Float32, &[1]))
                .contains("even")
        );
    }

    /// The largest difference between the kernels, in `to_f64`, over every instruction set and position of the dimension.
    fn differs_by<T: Element>(of: fn(f32) -> T, to_f64: fn(T) -> f64) -> f64 {
        let mut most = 0f64;
        for (shape, dim) in
            [(&[2usize, 46][..], 1i64), (&[6, 5, 7], 0), (&[3, 34, 9], -2), (&[2, 3, 20_000], 2), (&[2], 0)]
        {
            let n = shape.iter().product();
            let mut values = numbers(n, 7);
            for (v, special) in
                values.iter_mut().step_by(13).zip([f32::NAN, -900.0, f32::INFINITY, -0.0, 90.0])
            {
                *v = special;
            }
            let values: Vec<T> = values.into_iter().map(|v| of(v * 3.0)).collect();
            let mut half = shape.to_vec();
            half[dim.rem_euclid(shape.len() as i64) as usize] /= 2;
            let args = [Tensor::of(shape, &values).into(), dim.into()];
            let want = run_out("aten::glu.out", &args, T::DTYPE, &half).unwrap().values::<T>();
            for isa in Isa::ALL {
                let Some(cpu) = profile(isa) else { continue };
                let args = vec![
                    CallArg::Tensor(HostTensor::new(shape, &values).unwrap()),
                    CallArg::int(dim),
                    CallArg::Tensor(HostTensor::zeros(T::DTYPE, &half).unwrap()),
                ];
                let prepare = prepare_of("aten::glu.out", "halves");
                let mut call = SingleCall::new(prepare, &cpu, args).unwrap().expect("taken");
                call.call().unwrap();
                for (a, b) in call.output::<T>(2).unwrap().into_iter().zip(&want) {
                    let (a, b) = (to_f64(a), to_f64(*b));
                    assert_eq!(a.is_nan(), b.is_nan(), "{isa:?} {shape:?}");
                    if a != b && !a.is_nan() {
                        most = most.max((a - b).abs() / b.abs());
                    }
                }
            }
        }
        most
    }

    #[test]
    fn halves_are_gated_as_the_plain_kernel_does() {
        assert!(differs_by::<f32>(|v| v, f64::from) < 3e-7);
        assert!(differs_by::<f64>(f64::from, |v| v) < 1e-15);
        assert!(differs_by::<f16>(f16::from_f32, f64::from) < 1e-3);
        assert!(differs_by::<bf16>(bf16::from_f32, f64::from) < 8e-3);
    }
}
