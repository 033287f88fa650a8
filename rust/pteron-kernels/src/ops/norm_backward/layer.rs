//! Gradients of layer norms of row-major floats. Some units of work are rows of the gradient of the input; others are
//! columns of the gradients of weight and bias, which add up all rows in their order.

use super::totals::{Factor, Members};
use super::{GRAD, X, bind_layer, mask};
use crate::compute::Compute;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::ops::real::{Float, by_float};
use crate::routine::Preparation;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{ArgSpec, BindArgs, PrepareContext, Result};
use std::marker::PhantomData;
use std::ops::Range;

const MEAN: usize = 3;
const RSTD: usize = 4;
const WEIGHT: usize = 5;
const MASK: usize = 7;
const OUT: usize = 8;

/// Elements of the rows of a unit.
const ROWS: usize = 8 << 10;
/// Columns of a unit.
const COLUMNS: usize = 64;
/// Rows that are added up before they are added to the rest: short sums are accurate.
const FEW: usize = 32;

struct LayerNorm<T> {
    level: SimdLevel,
    element: PhantomData<T>,
}

/// A bound call: units of rows come first.
#[derive(Clone, Copy, Default)]
struct Problem {
    mask: [bool; 3],
    rows: usize,
    length: usize,
    /// Rows of a unit.
    per_unit: usize,
    row_units: usize,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    let Some(dtype) = ctx.tensor(X).map(|t| t.dtype) else {
        return ctx.decline("an argument is no tensor");
    };
    let is_plain = |i: usize| ctx.tensor(i).is_some_and(|t| t.dtype == dtype && t.dim_order.is_contiguous());
    let is_plain_or_absent = |i: usize| matches!(ctx.args.get(i), Some(ArgSpec::None)) || is_plain(i);
    let fits = [GRAD, X, MEAN, RSTD].into_iter().all(is_plain)
        && [WEIGHT, OUT, OUT + 1, OUT + 2].into_iter().all(is_plain_or_absent);
    if !fits {
        return ctx.decline("takes row-major tensors of one dtype");
    }
    by_float!(ctx, dtype, layer_norm(ctx))
}

fn layer_norm<T: Float>(ctx: &PrepareContext<'_>) -> Preparation {
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("layer_norm_backward.{}.{}", T::DTYPE.name(), level.isa().name());
    framed(name, LayerNorm::<T> { level, element: PhantomData })
}

impl<T: Float> UnitKernel for LayerNorm<T> {
    type Problem = Problem;

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        bind_layer(args)?;
        let view = args.args();
        let (mask, length) = (mask(&view, MASK)?, view.int_list(2)?.to_dims()?.numel()?);
        if length == 0 {
            return Ok(Split::NONE);
        }
        let rows = view.tensor(X)?.numel() / length;
        let per_unit = (ROWS / length).max(1);
        let row_units = if mask[0] { rows.div_ceil(per_unit) } else { 0 };
        let column_units = if mask[1] || mask[2] { length.div_ceil(COLUMNS) } else { 0 };
        *problem = Problem { mask, rows, length, per_unit, row_units };
        Ok(Split::new(row_units + column_units, 1, per_unit.saturating_mul(length)))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let unit = chunk.units.start;
        let Problem { mask, rows, length, per_unit, row_units } = *problem;
        let mut task = Task::<T> {
            grad: chunk.input(GRAD)?.as_slice()?,
            x: chunk.input(X)?.as_slice()?,
            mean: chunk.input(MEAN)?.as_slice()?,
            rstd: chunk.input(RSTD)?.as_slice()?,
            weight: chunk.optional_input(WEIGHT)?.map(|w| w.as_slice()).transpose()?,
            length,
            out: Out::Rows { rows: 0..0, out: &mut [] },
        };
        if unit < row_units {
            let rows = unit * per_unit..((unit + 1) * per_unit).min(rows);
            let out = chunk.output_part(OUT, rows.start * length..rows.end * length)?.into_slice()?;
            task.out = Out::Rows { rows, out };
        } else {
            let first = (unit - row_units) * COLUMNS;
            let columns = first..(first + COLUMNS).min(length);
            let mut part = |i: usize| -> Result<Option<&mut [T]>> {
                if !mask[i] {
                    return Ok(None);
                }
                chunk.output_part(OUT + i, columns.clone())?.into_slice().map(Some)
            };
            task.out = Out::Columns { first, count: columns.len(), weight: part(1)?, bias: part(2)? };
        }
        self.level.dispatch_narrow(task);
        Ok(())
    }
}

/// What a unit computes.
enum Out<'a, T> {
    Rows { rows: Range<usize>, out: &'a mut [T] },
    Columns { first: usize, count: usize, weight: Option<&'a mut [T]>, bias: Option<&'a mut [T]> },
}

struct Task<'a, T> {
    grad: &'a [T],
    x: &'a [T],
    mean: &'a [T],
    rstd: &'a [T],
    weight: Option<&'a [T]>,
    length: usize,
    out: Out<'a, T>,
}

impl<T: Float> SimdTask for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Task { grad, x, mean, rstd, weight, length, out } = self;
        match out {
            Out::Rows { rows, out } => {
                let factor = weight.map_or(Factor::All(T::Sum::ONE), Factor::Each);
                for (row, out) in rows.zip(out.chunks_exact_mut(length)) {
                    let at = row * length..(row + 1) * length;
                    let moments = [mean[row].wide(), rstd[row].wide()];
                    let members = Members { grad: &grad[at.clone()], x: &x[at], moments, factor };
                    members.slopes(members.totals().map(|sum| sum / length as f64), out);
                }
            }
            Out::Columns { first, count, weight, bias } => {
                let mut totals = [[0.0; COLUMNS]; 2];
                let (grads, xs) = (grad.chunks(length * FEW), x.chunks(length * FEW));
                let moments = mean.chunks(FEW).zip(rstd.chunks(FEW));
                for ((grad, x), (mean, rstd)) in grads.zip(xs).zip(moments) {
                    let mut sums = [[T::Sum::ZERO; COLUMNS]; 2];
                    let rows = grad.chunks_exact(length).zip(x.chunks_exact(length));
                    for ((grad, x), (mean, rstd)) in rows.zip(mean.iter().zip(rstd)) {
                        let (mean, rstd) = (mean.wide(), rstd.wide());
                        let (grad, x) = (&grad[first..first + count], &x[first..first + count]);
                        let [products, plain] = &mut sums;
                        for (((product, plain), grad), x) in products.iter_mut().zip(plain).zip(grad).zip(x) {
                            *product += grad.wide() * ((x.wide() - mean) * rstd);
                            *plain += grad.wide();
                        }
                    }
                    for (total, sum) in totals.iter_mut().flatten().zip(sums.iter().flatten()) {
                        *total += sum.to_f64();
                    }
                }
                for (out, sums) in [weight, bias].into_iter().zip(&totals) {
                    let out = out.unwrap_or(&mut []);
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::rounded(T::Sum::from_f64(*sum)));
                }
            }
        }
    }
}
