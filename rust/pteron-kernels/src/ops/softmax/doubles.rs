//! softmax and log_softmax of float64 along the dimension that is innermost in memory: plain loops that the compiler
//! vectorises. Each row has one summation order, fixed by its length and the instruction set.

use super::Kind;
use crate::frame::{Chunk, Split, UnitKernel, framed};
use crate::routine::Preparation;
use crate::shape::wrap_dim;
use crate::vector_math::{Simd, SimdLevel, SimdTask, double};
use pteron_core::{ArgSpec, BindArgs, DType, PrepareContext, Result};

const OUT: usize = 3;
/// Elements that a chunk holds at least.
const CHUNK: usize = 4 << 10;
/// Numbers that are computed at once: some vectors of every instruction set.
const GROUP: usize = 16;

struct Rows {
    kind: Kind,
    level: SimdLevel,
}

/// The kernel, if it takes the call.
pub(super) fn prepare(ctx: &PrepareContext<'_>, kind: Kind) -> Preparation {
    let (Some(input), Some(out)) = (ctx.tensor(0), ctx.tensor(OUT)) else {
        return ctx.decline("an argument is no tensor");
    };
    let Some(ArgSpec::Int(Some(dim))) = ctx.args.get(1) else {
        return ctx.decline("the dimension is not known at load");
    };
    // PyTorch refuses it on the CPU, and so does the plain kernel.
    if !matches!(ctx.args.get(2), Some(ArgSpec::Bool(Some(false)))) {
        return ctx.decline("`half_to_float` is not false");
    }
    if input.dtype != DType::Float64 || out.dtype != input.dtype || input.dim_order != out.dim_order {
        return ctx.decline("takes float64 in one memory order");
    }
    let innermost = input.dim_order.as_slice().last().map(|d| usize::from(*d));
    let dim = wrap_dim(*dim, input.shape.len()).ok();
    if innermost.is_none() || innermost != dim {
        return ctx.decline("takes the dimension that is innermost in memory");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let operator = if kind == Kind::Softmax { "softmax" } else { "log_softmax" };
    framed(format!("{operator}.float64.{}", level.isa().name()), Rows { kind, level })
}

impl UnitKernel for Rows {
    /// Elements of a row.
    type Problem = usize;

    fn bind(&self, args: &mut BindArgs<'_>, length: &mut usize) -> Result<Split> {
        super::bind(args)?;
        let view = args.args();
        let (input, dim) = (view.tensor(0)?, wrap_dim(view.int(1)?, view.tensor(0)?.rank())?);
        *length = input.shape().get(dim).copied().unwrap_or(1);
        match input.numel().checked_div(*length) {
            None | Some(0) => Ok(Split::NONE),
            Some(rows) => Ok(Split::sized(rows, *length, CHUNK, 3.0)),
        }
    }

    fn run(&self, length: &usize, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        let input = chunk.input_units(0, *length)?.as_slice()?;
        let out = chunk.output_units(OUT, *length)?.into_slice()?;
        self.level.dispatch(RowsTask { kind: self.kind, input, out, length: *length });
        Ok(())
    }
}

/// Rows of `length` elements.
struct RowsTask<'a> {
    kind: Kind,
    input: &'a [f64],
    out: &'a mut [f64],
    length: usize,
}

impl SimdTask for RowsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.input.chunks_exact(self.length).zip(self.out.chunks_exact_mut(self.length));
        for (x, y) in rows {
            let max = largest(x);
            let sum = exponentials(s, x, y, max);
            match self.kind {
                Kind::Softmax => {
                    let factor = 1.0 / sum;
                    y.iter_mut().for_each(|y| *y *= factor);
                }
                Kind::LogSoftmax => {
                    let log = sum.ln();
                    y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - max) - log);
                }
            }
        }
    }
}

/// The elements of a group, followed by what is neutral for largest elements and sums of exponentials.
#[inline(always)]
fn padded(x: &[f64]) -> [f64; GROUP] {
    let mut group = [f64::NEG_INFINITY; GROUP];
    group.iter_mut().zip(x).for_each(|(slot, v)| *slot = *v);
    group
}

/// The largest element; NaN is left to the sum.
#[inline(always)]
fn largest(x: &[f64]) -> f64 {
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    let mut most = [f64::NEG_INFINITY; GROUP];
    let groups = x.chunks_exact(GROUP);
    let rest = padded(groups.remainder());
    for group in groups {
        most.iter_mut().zip(group).for_each(|(most, v)| *most = larger(*most, *v));
    }
    most.iter_mut().zip(rest).for_each(|(most, v)| *most = larger(*most, v));
    most.into_iter().fold(f64::NEG_INFINITY, larger)
}

/// Σ e^(x - max); the terms go to `y`.
#[inline(always)]
fn exponentials<S: Simd>(s: S, x: &[f64], y: &mut [f64], max: f64) -> f64 {
    let mut sums = [0.0; GROUP];
    let (groups, mut places) = (x.chunks_exact(GROUP), y.chunks_exact_mut(GROUP));
    let rest = padded(groups.remainder());
    for (group, place) in groups.zip(&mut places) {
        for ((sum, x), y) in sums.iter_mut().zip(group).zip(place) {
            *y = double::exp(s, x - max);
            *sum += *y;
        }
    }
    let place = places.into_remainder();
    if !place.is_empty() {
        let terms = rest.map(|x| double::exp(s, x - max));
        sums.iter_mut().zip(&terms).for_each(|(sum, term)| *sum += term);
        place.iter_mut().zip(terms).for_each(|(y, term)| *y = term);
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
    use crate::testing::{numbers, prepare_of};
    use pteron_core::{DimOrder, Isa};

    fn run(
        variant: &str,
        kind: Kind,
        isa: Isa,
        shape: &[usize],
        (dim, order): (i64, &[u8]),
        x: &[f64],
    ) -> Option<Vec<f64>> {
        let operator = if kind == Kind::Softmax { "aten::_softmax.out" } else { "aten::_log_softmax.out" };
        let order = DimOrder::new(order).unwrap();
        let args = vec![
            CallArg::Tensor(HostTensor::in_order(shape, order, x).unwrap()),
            CallArg::int(dim),
            CallArg::bool(false),
            CallArg::Tensor(HostTensor::zeros_in_order(DType::Float64, shape, order).unwrap()),
        ];
        let mut call = SingleCall::new(prepare_of(operator, variant), &profile(isa)?, args).unwrap().unwrap();
        let grid = call.bind().unwrap();
        call.run(grid, true).unwrap();
        Some(call.output::<f64>(OUT).unwrap())
    }

    #[test]
    fn rows_are_near_those_of_the_plain_kernel() {
        for (rows, n) in [(1, 1), (3, 5), (2, 16), (700, 33), (4, 128), (2, 5001), (0, 4), (4, 0)] {
            // Small numbers, of which every one counts, and large ones.
            let scale = if n % 2 == 1 { 1.0 } else { 100.0 };
            let mut x: Vec<f64> = numbers(rows * n, 5).iter().map(|v| f64::from(*v) * scale).collect();
            if rows == 4 && n > 0 {
                // NaN; infinity; infinities of the other sign among numbers; nothing else.
                x[7] = f64::NAN;
                x[n + 9] = f64::INFINITY;
                x[2 * n..2 * n + 100].fill(f64::NEG_INFINITY);
                x[3 * n..4 * n].fill(f64::NEG_INFINITY);
            }
            for (kind, turned) in
                [Kind::Softmax, Kind::LogSoftmax].into_iter().flat_map(|k| [(k, false), (k, true)])
            {
                let (shape, along) = match turned {
                    false => ([rows, n], (-1, &[0, 1][..])),
                    true => ([n, rows], (0, &[1, 0][..])),
                };
                let want = run("reference", kind, Isa::Portable, &shape, along, &x).unwrap();
                for isa in Isa::ALL {
                    let Some(got) = run("rows", kind, isa, &shape, along, &x) else { continue };
                    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                        // Powers are within some units each; so is the logarithm of their sum, of what is at least 1.
                        let size = if kind == Kind::Softmax { want.abs() } else { want.abs().max(1.0) };
                        let is_near = (got - want).abs() <= 8.0 * f64::EPSILON * size + 5e-324;
                        let is_same = got == want || (got.is_nan() && want.is_nan());
                        assert!(is_near || is_same, "{isa:?} {kind:?} {rows} {n} {i}: {got:e} {want:e}");
                    }
                }
            }
        }
    }
}
