//! What stays with a probability: bernoulli, dropout.

use super::{Call, Parameter, domain};
use crate::chunked;
use crate::compute::{BLOCK, Class};
use crate::draws::Draws;
use crate::elements::{Reader, Writer};
use crate::ops::layout::same_dtype;
use crate::routine::{Preparation, dtype_of};
use crate::strided::loops::Walk;
use pteron_core::{DType, Error, PrepareContext};

/// True with a probability: a number, or a tensor that broadcasts to argument 0 (or is it).
pub(super) fn bernoulli(ctx: &PrepareContext<'_>, p: Parameter, out: usize) -> Preparation {
    Class::required(dtype_of(ctx, out)?)?;
    if let Parameter::Tensor(i) = p
        && !dtype_of(ctx, i)?.is_float()
    {
        return Err(Error::kernel("probabilities are floats").argument("p").got(dtype_of(ctx, i)?.name()));
    }
    let in_unit = |p: f64| (0.0..=1.0).contains(&p);
    chunked::prepare_random(
        move |args, call: &mut Call| {
            let view = args.args();
            let shape = *view.tensor(0)?.shape();
            match p {
                Parameter::Number(i) => {
                    call.numbers[0] = view.double(i)?;
                    if !in_unit(call.numbers[0]) {
                        return Err(domain("p", "between 0 and 1", call.numbers[0]));
                    }
                }
                Parameter::Tensor(i) => crate::shape::check_expandable(view.tensor(i)?.shape(), &shape)?,
            }
            args.resize(out, &shape)?;
            if let Parameter::Tensor(i) = p {
                call.walks[0] =
                    Walk::broadcast(args.args().tensor(out)?.meta(), [args.args().tensor(i)?.meta()]);
            }
            call.draws = args.random_draws()?;
            shape.numel()
        },
        move |call, args, places| {
            let reader = p.tensor(args)?.map(Reader::<f64>::new).transpose()?;
            let mut writer = Writer::<i64>::new(args.output(out)?)?;
            let mut draws = Draws::new(call.draws);
            let (mut chances, mut results) = ([call.numbers[0]; BLOCK], [0i64; BLOCK]);
            for at in places.clone().step_by(BLOCK) {
                let n = (places.end - at).min(BLOCK);
                if let Some(reader) = &reader {
                    reader.gather(&call.walks[0], 0, at, &mut chances[..n])?;
                }
                for (i, (result, p)) in results[..n].iter_mut().zip(&chances).enumerate() {
                    if !in_unit(*p) {
                        return Err(domain("p", "between 0 and 1", p));
                    }
                    *result = i64::from(draws.uniform((at + i) as u64, 53) < *p);
                }
                writer.write(at as isize, 1, &results[..n])?;
            }
            Ok(())
        },
    )
}

/// native_dropout: elements stay with probability `1 - p`, scaled by its inverse.
pub(super) fn dropout(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 3)?;
    if !dtype_of(ctx, 0)?.is_float() || dtype_of(ctx, 4)? != DType::Bool {
        return Err(
            Error::kernel("dropout takes floats and gives a mask of bool").got(dtype_of(ctx, 0)?.name())
        );
    }
    chunked::prepare_random(
        |args, call: &mut Call| {
            let view = args.args();
            let (x, p) = (view.tensor(0)?, view.double(1)?);
            let shape = *x.shape();
            let is_training = view.optional_int(2)?.is_none_or(|train| train != 0);
            if !(0.0..=1.0).contains(&p) {
                return Err(domain("p", "between 0 and 1", p));
            }
            call.numbers[0] = if is_training { p } else { 0.0 };
            args.resize(3, &shape)?;
            args.resize(4, &shape)?;
            let view = args.args();
            let (out, mask) = (view.tensor(3)?, view.tensor(4)?);
            // Places are those of the mask.
            call.walks = [view.tensor(0)?, out].map(|t| Walk::broadcast(mask.meta(), [t.meta()]));
            call.draws = args.random_draws()?;
            shape.numel()
        },
        |call, args, places| {
            let x = Reader::<f64>::new(args.tensor(0)?)?;
            let mut out = Writer::<f64>::new(args.output(3)?)?;
            let mut mask = Writer::<i64>::new(args.output(4)?)?;
            let p = call.numbers[0];
            let scale = if p >= 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
            let mut draws = Draws::new(call.draws);
            let (mut block, mut kept) = ([0f64; BLOCK], [0i64; BLOCK]);
            for at in places.clone().step_by(BLOCK) {
                let n = (places.end - at).min(BLOCK);
                x.gather(&call.walks[0], 0, at, &mut block[..n])?;
                for (i, (v, kept)) in block[..n].iter_mut().zip(&mut kept).enumerate() {
                    *kept = i64::from(draws.uniform((at + i) as u64, 53) >= p);
                    // NaN and infinity stay what 0 makes of them.
                    *v = *v * *kept as f64 * scale;
                }
                out.scatter(&call.walks[1], 0, at, &block[..n])?;
                mask.write(at as isize, 1, &kept[..n])?;
            }
            Ok(())
        },
    )
}
