//! Running sums and products of complex64 numbers: cumsum, cumprod.
//!
//! Shape: that of `self`. Dtype: complex64, accumulated in float64; real inputs count as complex ones.

use crate::complex_number::Number;
use crate::compute::{BLOCK, Compute};
use crate::elements::{Reader, Writer};
use crate::ops::complex_elementwise::{is_complex, kernel};
use crate::reduction::Reduction;
use crate::routine::{Preparation, Routine};
use crate::shape::wrap_dim;
use pteron_core::{Args, BindArgs, PrepareContext, Result, StaticKernel};

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    wrap_dim(view.int(1)?, shape.len())?;
    args.resize(3, &shape)
}

fn scan(args: &Args<'_>, start: Number, step: fn(Number, Number) -> Number) -> Result<()> {
    let x = args.tensor(0)?;
    let set = 1 << wrap_dim(args.int(1)?, x.rank())?;
    let (x, mut y) = (Reader::<Number>::new(x)?, Writer::<Number>::new(args.output(3)?)?);
    let (from, to) = (Reduction::new(x.meta(), set), Reduction::new(y.meta(), set));
    let (mut buffer, mut results) = ([Number::ZERO; BLOCK], [Number::ZERO; BLOCK]);
    from.for_each(|position, base| {
        let target = to.outer.offset(position);
        let mut state = start;
        x.blocks(from.inner(), base, &mut buffer, |at, block| {
            for (slot, v) in results.iter_mut().zip(block) {
                state = step(state, *v);
                *slot = state;
            }
            y.scatter(to.inner(), target, at, &results[..block.len()])
        })
    })
}

fn prepare(ctx: &PrepareContext<'_>, run: crate::routine::RunFn) -> Preparation {
    if !is_complex(ctx, &[3]) {
        return Ok(None);
    }
    Routine::prepare(bind, run)
}

/// cumsum, cumprod.
pub(crate) static KERNELS: &[StaticKernel] = &[
    kernel(
        "aten::cumsum.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, |args, _| scan(args, Number::ZERO, Number::plus)),
    ),
    kernel(
        "aten::cumprod.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| prepare(ctx, |args, _| scan(args, Number::ONE, Number::times)),
    ),
];
