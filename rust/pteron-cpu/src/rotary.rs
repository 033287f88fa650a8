//! Rotary embedding of heads as one step: `y = x · cos + turn(x) · sin` over the last dimension, where `turn` swaps the halves
//! of a row and changes the sign of the first. An operation of the engine's own, for the calls that exporters write it as; gives
//! the bytes of these calls.

use pteron_core::{BindArgs, DType, DimOrder, Dims, Error, PrepareContext, Result, TensorView};
use pteron_kernels::frame::{Chunk, Split, UnitKernel, framed};
use pteron_kernels::grid_kernel::Preparation;
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::fmt;

/// Elements that a chunk of rows holds at least.
const CHUNK: usize = 8 << 10;
/// Dimensions of x and the result.
pub const RANK: usize = 4;

/// A rotary embedding. Arguments: x (f32, four dimensions); the cosines and the sines (f32, broadcast to the result but for
/// the last dimension, whose extent is that of what is turned); the result (f32, row-major).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// Dimension i of the result is this one of x; the last stays the last.
    pub order: [u8; RANK],
    /// What the result is multiplied with, besides.
    pub factor: Option<f32>,
}

impl fmt::Display for Rotary {
    /// `rotary`, `rotary(scale 0.125)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rotary")?;
        self.factor.map_or(Ok(()), |factor| write!(f, "(scale {factor})"))
    }
}

const X: usize = 0;
const COS: usize = 1;
const SIN: usize = 2;
const OUT: usize = 3;

struct Kernel {
    rotary: Rotary,
    level: SimdLevel,
}

/// Elements from index to index of batch, head and row of the result.
type Strides = [usize; RANK - 1];

/// Bound shapes.
#[derive(Debug, Clone, Copy, Default)]
struct Problem {
    /// Of the result.
    extents: Strides,
    x: Strides,
    cos: Strides,
    sin: Strides,
    /// Elements of a row, and those of them that are turned.
    width: usize,
    turned: usize,
}

/// The kernel for tensors in row-major order; `None` for other types and orders.
pub fn prepare(ctx: &PrepareContext<'_>, rotary: &Rotary) -> Preparation {
    let is_plain = |i: usize| {
        ctx.tensor(i)
            .is_some_and(|t| t.dtype == DType::Float32 && t.dim_order == DimOrder::contiguous(t.shape.len()))
    };
    let has_rank = |i: usize| ctx.tensor(i).is_some_and(|t| t.shape.len() == RANK);
    let fits = ctx.args.len() == OUT + 1 && (0..=OUT).all(is_plain) && has_rank(X) && has_rank(OUT);
    let is_permutation = (0..RANK).all(|dim| rotary.order.iter().any(|d| usize::from(*d) == dim));
    if !fits || !is_permutation || usize::from(rotary.order[RANK - 1]) != RANK - 1 {
        return ctx.decline("takes float32 of four dimensions in row-major order");
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    framed(format!("rotary.f32.{}", level.isa().name()), Kernel { rotary: *rotary, level })
}

#[cold]
fn mismatch(expected: String, got: &TensorView<'_>) -> Error {
    Error::kernel("shapes do not fit for a rotary embedding")
        .expected(expected)
        .got(format!("{got:?}"))
        .hint("load the program with the rule fuse_rotary switched off")
}

/// Row-major strides of the first dimensions of `shape`, and its last extent.
fn strides(shape: &Dims) -> Option<(Strides, usize)> {
    let &[_, b, c, width] = &**shape else { return None };
    let row = c.checked_mul(width)?;
    Some(([b.checked_mul(row)?, row, width], width))
}

/// Strides of a table when it is broadcast to `extents`, and the length of its rows.
fn table(tensor: &TensorView<'_>, extents: &Strides) -> Result<(Strides, usize)> {
    let shape = tensor.shape();
    let lead = RANK.checked_sub(shape.len());
    let mut whole = Dims::EMPTY;
    for i in 0..RANK {
        let at = lead.and_then(|lead| i.checked_sub(lead));
        whole.push(at.and_then(|at| shape.get(at)).copied().unwrap_or(1))?;
    }
    let fits = lead.is_some() && whole.iter().zip(extents).all(|(n, extent)| *n == 1 || n == extent);
    let Some((mut found, width)) = strides(&whole).filter(|_| fits && !shape.is_empty()) else {
        return Err(mismatch(format!("a table that can be broadcast to {extents:?}"), tensor));
    };
    found.iter_mut().zip(whole.iter()).filter(|(_, n)| **n == 1).for_each(|(stride, _)| *stride = 0);
    Ok((found, width))
}

impl UnitKernel for Kernel {
    type Problem = Problem;

    fn bind(&self, args: &mut BindArgs<'_>, problem: &mut Problem) -> Result<Split> {
        let view = args.args();
        let x = view.tensor(X)?;
        let Some((from, width)) = strides(x.shape()) else {
            return Err(mismatch(format!("a tensor of rank {RANK}"), &x));
        };
        let mut found = Problem { width, ..Problem::default() };
        let mut out = Dims::EMPTY;
        for (i, from_dim) in self.rotary.order.iter().map(|d| usize::from(*d)).enumerate() {
            let (Some(extent), stride) = (x.shape().get(from_dim), from.get(from_dim)) else {
                return Err(Error::internal("a rotary embedding names a dimension that is not there"));
            };
            out.push(*extent)?;
            if let (Some(stride), Some(slot), Some(n)) =
                (stride, found.x.get_mut(i), found.extents.get_mut(i))
            {
                (*slot, *n) = (*stride, *extent);
            }
        }
        let (cos, sin) = (view.tensor(COS)?, view.tensor(SIN)?);
        (found.cos, found.turned) = table(&cos, &found.extents)?;
        let (strides, turned) = table(&sin, &found.extents)?;
        found.sin = strides;
        if turned != found.turned || turned > width || !turned.is_multiple_of(2) {
            return Err(mismatch(
                format!("cosines and sines of the same even number of at most {width} elements"),
                &sin,
            ));
        }
        args.resize(OUT, &out)?;
        *problem = found;
        let rows = if width == 0 { 0 } else { found.extents.iter().product() };
        Ok(Split::sized(rows, width, CHUNK, 1.0 / 4.0))
    }

    fn run(&self, problem: &Problem, chunk: &mut Chunk<'_, '_>) -> Result<()> {
        self.level.dispatch(Rows {
            problem,
            first: chunk.units.start,
            factor: self.rotary.factor,
            x: chunk.input(X)?.as_slice()?,
            cos: chunk.input(COS)?.as_slice()?,
            sin: chunk.input(SIN)?.as_slice()?,
            out: chunk.output_units(OUT, problem.width)?.into_slice()?,
        });
        Ok(())
    }
}

/// Rows of the result, one behind the other, from number `first` on.
struct Rows<'a> {
    problem: &'a Problem,
    first: usize,
    factor: Option<f32>,
    x: &'a [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    out: &'a mut [f32],
}

impl SimdTask for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let p = self.problem;
        let [_, heads, rows] = p.extents;
        for (i, y) in self.out.chunks_exact_mut(p.width).enumerate() {
            let unit = self.first + i;
            let index = [unit / (heads * rows), unit / rows % heads, unit % rows];
            let at =
                |strides: &Strides| index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
            let x = &self.x[at(&p.x)..][..p.width];
            let cos = &self.cos[at(&p.cos)..][..p.turned];
            let sin = &self.sin[at(&p.sin)..][..p.turned];
            turn(x, cos, sin, y);
            if let Some(factor) = self.factor {
                y.iter_mut().for_each(|v| *v *= factor);
            }
        }
    }
}

/// One row: products and sums are rounded one by one, as the separate calls do.
#[inline(always)]
fn turn(x: &[f32], cos: &[f32], sin: &[f32], y: &mut [f32]) {
    let (half, turned) = (cos.len() / 2, cos.len());
    let (turning, kept) = x.split_at(turned);
    let (first, second) = turning.split_at(half);
    let (y, y_kept) = y.split_at_mut(turned);
    y_kept.copy_from_slice(kept);
    let (y_first, y_second) = y.split_at_mut(half);
    let (cos_first, cos_second) = cos.split_at(half);
    let (sin_first, sin_second) = sin.split_at(half);
    for i in 0..half {
        y_first[i] = first[i] * cos_first[i] + -second[i] * sin_first[i];
    }
    for i in 0..half {
        y_second[i] = second[i] * cos_second[i] + first[i] * sin_second[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::Isa;
    use pteron_kernels::single_call::{CallArg, HostTensor, SingleCall, profile};
    use pteron_kernels::testing::numbers;

    fn call(isa: Isa, rotary: Rotary, shapes: [&[usize]; 4]) -> Option<SingleCall> {
        let tensor = |shape: &[usize], seed| {
            CallArg::Tensor(HostTensor::new(shape, &numbers(shape.iter().product(), seed)).unwrap())
        };
        let [x, cos, sin, out] = shapes;
        let args = vec![tensor(x, 1), tensor(cos, 2), tensor(sin, 3), tensor(out, 4)];
        SingleCall::of(|ctx| prepare(ctx, &rotary), &profile(isa)?, args).unwrap()
    }

    #[test]
    fn rows_of_permuted_heads() {
        // [batch, tokens, heads, dim], tables [batch or 1, 1, tokens, turned].
        for (b, s, h, d, turned, batches) in [
            (1, 1, 9, 64, 64, 1),
            (2, 5, 3, 12, 8, 2),
            (2, 300, 2, 6, 6, 1),
            (1, 3, 2, 5, 0, 1),
            (1, 0, 2, 4, 4, 1),
        ] {
            for factor in [None, Some(0.25)] {
                for isa in Isa::ALL {
                    let rotary = Rotary { order: [0, 2, 1, 3], factor };
                    let tables = [batches, 1, s, turned];
                    let shapes: [&[usize]; 4] = [&[b, s, h, d], &tables, &tables, &[b, h, s, d]];
                    let Some(mut call) = call(isa, rotary, shapes) else { continue };
                    call.call().unwrap();
                    let (x, cos) = (numbers(b * s * h * d, 1), numbers(batches * s * turned, 2));
                    let sin = numbers(batches * s * turned, 3);
                    let half = turned / 2;
                    let mut want = Vec::new();
                    for at in 0..b * h * s * d {
                        let (i, t, head, batch) = (at % d, at / d % s, at / d / s % h, at / d / s / h);
                        let x = |i: usize| x[((batch * s + t) * h + head) * d + i];
                        let table = |v: &[f32]| v[(batch % batches * s + t) * turned + i];
                        let y = match i {
                            i if i < half => x(i) * table(&cos) - x(i + half) * table(&sin),
                            i if i < turned => x(i) * table(&cos) + x(i - half) * table(&sin),
                            i => x(i),
                        };
                        want.push(y * factor.unwrap_or(1.0));
                    }
                    assert_eq!(call.output::<f32>(OUT).unwrap(), want, "{isa:?} {b} {s} {h} {d} {turned}");
                }
            }
        }
    }

    #[test]
    fn tables_that_do_not_fit_are_errors() {
        let rotary = Rotary { order: [0, 1, 2, 3], factor: None };
        let x: &[usize] = &[1, 2, 3, 8];
        for (cos, sin) in [([3, 6], [3, 8]), ([2, 8], [2, 8]), ([3, 10], [3, 10]), ([3, 5], [3, 5])] {
            let mut call = call(Isa::Portable, rotary, [x, &cos, &sin, x]).unwrap();
            let error = call.bind().unwrap_err().to_string();
            assert!(error.contains("rotary embedding"), "{error}");
        }
        assert!(call(Isa::Portable, rotary, [&[2, 3, 8], &[3, 8], &[3, 8], x]).is_none());
    }
}
