//! Sums of complex64 tensors: sum, mean.
//!
//! Shape and dtype as for real numbers, in complex64; sums are accumulated in float64.
//! Edge cases: the mean of nothing is NaN.

use crate::complex_blocks::{ComplexReader, number};
use crate::ops::complex_elementwise::{check, is_complex};
use crate::reduction::plain::{Reduction, bind_reduced, listed_dims, row_major};
use crate::routine::{Preparation, Routine};
use crate::shape::all_dims;
use pteron_core::{Args, BindArgs, Complex64, DType, PrepareContext, Result};

fn reduce(args: &Args<'_>, set: u32, out: usize, is_mean: bool) -> Result<()> {
    let x = ComplexReader::new(args.tensor(0)?)?;
    let reduction = Reduction::new(x.meta(), set);
    let to = row_major(args.output(out)?.meta());
    let out = args.output(out)?.into_slice::<Complex64>()?;
    let count = if is_mean { reduction.count() as f64 } else { 1.0 };
    reduction.for_each(|position, base| {
        let (mut re, mut im) = (0f64, 0f64);
        for i in 0..reduction.count() {
            let value = x.get(base + reduction.inner().offset(i))?;
            re += f64::from(value.re);
            im += f64::from(value.im);
        }
        if let Some(slot) = out.get_mut(to.offset(position) as usize) {
            *slot = number((re / count) as f32, (im / count) as f32);
        }
        Ok(())
    })
}

pub(crate) fn by_dims(ctx: &PrepareContext<'_>, is_mean: bool) -> Preparation {
    if !is_complex(ctx, &[0]) {
        return ctx.decline("takes complex tensors");
    }
    check(ctx, &[0], 4, DType::Complex64)?;
    fn bind(args: &mut BindArgs<'_>) -> Result<()> {
        let (set, keepdim) = (listed_dims(&args.args(), 1)?, args.args().bool(2)?);
        bind_reduced(args, set, keepdim, 4)
    }
    if is_mean {
        Routine::prepare(bind, |args, _| reduce(args, listed_dims(args, 1)?, 4, true))
    } else {
        Routine::prepare(bind, |args, _| reduce(args, listed_dims(args, 1)?, 4, false))
    }
}

pub(crate) fn over_all(ctx: &PrepareContext<'_>, is_mean: bool) -> Preparation {
    if !is_complex(ctx, &[0]) {
        return ctx.decline("takes complex tensors");
    }
    check(ctx, &[0], 2, DType::Complex64)?;
    let run: crate::routine::RunFn = if is_mean {
        |args, _| reduce(args, all_dims(args.tensor(0)?.rank()), 2, true)
    } else {
        |args, _| reduce(args, all_dims(args.tensor(0)?.rank()), 2, false)
    };
    Routine::prepare(|args| args.resize(2, &[]), run)
}
