//! Running results along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp.
//!
//! Shape: that of `self`. Dtype: sums and products of floats accumulate in float64, of integers in int64
//! (wrapping), and take the output's; the others keep theirs, positions are int64, logcumsumexp takes floats and
//! accumulates in float64. Edge cases: of equal extremes the last; from the first NaN on all is NaN, its
//! position that of the last NaN so far.

mod extremes;
mod lines;

use crate::chunked::{CHUNK, in_ranges};
use crate::compute::{BLOCK, Compute};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::operator::{Operator, kernel};
use crate::ops::complex_scans;
use crate::ops::layout::same_dtype;
use crate::ops::sums::{check_float, check_real};
use crate::reduction::plain::Reduction;
use crate::routine::Preparation;
use crate::shape::wrap_dim;
use lines::Lines;
use pteron_core::{Args, BindArgs, PrepareContext, Result};
use std::ops::Range;

fn bind<const FIRST: usize, const LAST: usize>(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    let shape = *view.tensor(0)?.shape();
    wrap_dim(view.int(1)?, shape.len())?;
    (FIRST..=LAST).try_for_each(|out| args.resize(out, &shape))
}

/// The logarithm of the sum of the exponentials.
fn log_add(sum: f64, v: f64) -> f64 {
    if sum.is_nan() || v.is_nan() {
        return f64::NAN;
    }
    let (low, high) = (sum.min(v), sum.max(v));
    // Equal infinities have no difference.
    if low == high && low.is_infinite() { low } else { (low - high).exp().ln_1p() + high }
}

fn log_sums(args: &Args<'_>, lines: Range<usize>) -> Result<()> {
    let x = args.tensor(0)?;
    let set = 1 << wrap_dim(args.int(1)?, x.rank())?;
    let (x, mut out) = (Reader::<f64>::new(x)?, Writer::<f64>::new(args.output(2)?)?);
    let (from, to) = (Reduction::new(x.meta(), set), Reduction::new(out.meta(), set));
    let (mut buffer, mut sums) = ([0.0; BLOCK], [0.0; BLOCK]);
    from.for_each_in(lines, |position, base| {
        let target = to.outer.offset(position);
        let mut sum = f64::NEG_INFINITY;
        x.blocks(from.inner(), base, &mut buffer, |at, block| {
            for (slot, v) in sums.iter_mut().zip(block) {
                sum = log_add(sum, *v);
                *slot = sum;
            }
            out.scatter(to.inner(), target, at, &sums[..block.len()])
        })
    })
}

/// The lines of a range, each apart from the others.
type LinesFn = fn(&Args<'_>, Range<usize>) -> Result<()>;

/// A kernel of lines, a few in a chunk.
fn lines(bind: crate::routine::BindFn, run: LinesFn) -> Preparation {
    let bind = move |args: &mut BindArgs<'_>, _: &mut ()| {
        bind(args)?;
        let view = args.args();
        let x = view.tensor(0)?;
        let extent = x.shape().get(wrap_dim(view.int(1)?, x.rank())?).copied().unwrap_or(1);
        Ok(Split::within(x.numel().checked_div(extent).unwrap_or(0), extent, CHUNK, 4))
    };
    in_ranges(0, bind, move |_, args, lines, _| run(args, lines))
}

fn prepare_log_sums(ctx: &PrepareContext<'_>) -> Preparation {
    check_float(ctx, 2)?;
    same_dtype(ctx, 0, 2)?;
    lines(bind::<2, 2>, log_sums)
}

/// Lines that are worked on side by side: their sums do not wait for each other.
const SIDE_BY_SIDE: usize = 4;

/// Room for a block of a line: more than the block, so that the same places of two lines are never a multiple of
/// 4 KiB apart, where a load waits for a store that it has nothing to do with.
const ROOM: usize = BLOCK + 40;

/// Running sums or products: operands input, output.
#[derive(Default)]
struct Running {
    lines: Lines<2>,
}

impl Running {
    fn bind(&mut self, args: &mut BindArgs<'_>) -> Result<Split> {
        bind::<3, 3>(args)?;
        let view = args.args();
        self.lines = Lines::of(&view, [view.tensor(0)?.strides(), view.output(3)?.strides()])?;
        Ok(self.lines.split(1))
    }

    /// Lines whose elements lie closer together than the lines do go by themselves, others all at once.
    fn scan<C: Compute>(
        &self,
        args: &Args<'_>,
        range: Range<usize>,
        start: C,
        step: impl Fn(C, C) -> C,
    ) -> Result<()> {
        let (x, mut y) = (Reader::<C>::new(args.tensor(0)?)?, Writer::<C>::new(args.output(3)?)?);
        let (beside, is_along) = (self.lines.beside(), self.lines.is_along());
        let mut blocks = [[C::ZERO; ROOM]; SIDE_BY_SIDE];
        self.lines.starts.each_run(range.start, range.len(), |_, base, count| {
            if is_along && C::IS_WHOLE && self.lines.strides == [1; 2] {
                for line in 0..count as isize {
                    let base: [isize; 2] = std::array::from_fn(|k| base[k] + line * beside[k]);
                    self.straight(&x, &mut y, base, &mut blocks[0], start, &step)?;
                }
                return Ok(());
            }
            let group = if is_along { SIDE_BY_SIDE } else { BLOCK };
            for first in (0..count).step_by(group) {
                let lines = (count - first).min(group);
                let base: [isize; 2] = std::array::from_fn(|k| base[k] + first as isize * beside[k]);
                if is_along {
                    self.along((&x, &mut y), (base, lines), &mut blocks, start, &step)?;
                } else {
                    self.across(&x, &mut y, (base, lines), start, &step)?;
                }
            }
            Ok(())
        })
    }

    /// One line of neighbours: steps of integers take so little time that writing is what counts.
    #[inline(always)]
    fn straight<C: Compute>(
        &self,
        x: &Reader<'_, C>,
        y: &mut Writer<'_, C>,
        base: [isize; 2],
        room: &mut [C; ROOM],
        start: C,
        step: &impl Fn(C, C) -> C,
    ) -> Result<()> {
        let mut state = start;
        for i in (0..self.lines.length).step_by(BLOCK) {
            let (n, i) = ((self.lines.length - i).min(BLOCK), i as isize);
            let mut results = [C::ZERO; BLOCK];
            let block = x.block(base[0] + i, 1, n, room)?;
            let place = y.place(base[1] + i, n)?;
            let is_there = place.is_some();
            for (slot, v) in place.unwrap_or(&mut results[..n]).iter_mut().zip(block) {
                state = step(state, *v);
                *slot = state;
            }
            if !is_there {
                y.write(base[1] + i, 1, &results[..n])?;
            }
        }
        Ok(())
    }

    /// Up to [`SIDE_BY_SIDE`] lines, each in blocks of neighbours.
    #[inline(always)]
    fn along<C: Compute>(
        &self,
        (x, y): (&Reader<'_, C>, &mut Writer<'_, C>),
        (base, lines): ([isize; 2], usize),
        blocks: &mut [[C; ROOM]; SIDE_BY_SIDE],
        start: C,
        step: &impl Fn(C, C) -> C,
    ) -> Result<()> {
        let beside = self.lines.beside();
        let mut states = [start; SIDE_BY_SIDE];
        for i in (0..self.lines.length).step_by(BLOCK) {
            let n = (self.lines.length - i).min(BLOCK);
            let at = |k: usize, line: usize| {
                base[k] + line as isize * beside[k] + i as isize * self.lines.strides[k]
            };
            for (line, block) in blocks.iter_mut().take(lines).enumerate() {
                x.read(at(0, line), self.lines.strides[0], &mut block[..n])?;
            }
            if lines == SIDE_BY_SIDE {
                let [a, b, c, d] = &mut *blocks;
                let rows = a[..n].iter_mut().zip(&mut b[..n]).zip(&mut c[..n]).zip(&mut d[..n]);
                for (((a, b), c), d) in rows {
                    states =
                        [step(states[0], *a), step(states[1], *b), step(states[2], *c), step(states[3], *d)];
                    (*a, *b, *c, *d) = (states[0], states[1], states[2], states[3]);
                }
            } else {
                for (block, state) in blocks.iter_mut().zip(&mut states).take(lines) {
                    for v in &mut block[..n] {
                        *state = step(*state, *v);
                        *v = *state;
                    }
                }
            }
            for (line, block) in blocks.iter().take(lines).enumerate() {
                y.write(at(1, line), self.lines.strides[1], &block[..n])?;
            }
        }
        Ok(())
    }

    /// Up to [`BLOCK`] lines, one element of each after the other.
    #[inline(always)]
    fn across<C: Compute>(
        &self,
        x: &Reader<'_, C>,
        y: &mut Writer<'_, C>,
        (base, lines): ([isize; 2], usize),
        start: C,
        step: impl Fn(C, C) -> C,
    ) -> Result<()> {
        let beside = self.lines.beside();
        let (mut buffer, mut states) = ([C::ZERO; BLOCK], [start; BLOCK]);
        for i in 0..self.lines.length as isize {
            let block = x.block(base[0] + i * self.lines.strides[0], beside[0], lines, &mut buffer)?;
            for (state, v) in states.iter_mut().zip(block) {
                *state = step(*state, *v);
            }
            y.write(base[1] + i * self.lines.strides[1], beside[1], &states[..lines])?;
        }
        Ok(())
    }
}

fn running(ctx: &PrepareContext<'_>, is_product: bool) -> Preparation {
    check_real(ctx, 3)?;
    in_ranges(
        0,
        |args, running: &mut Running| running.bind(args),
        move |running, args, range, _| match (args.tensor(3)?.dtype().is_float(), is_product) {
            (true, false) => running.scan(args, range, 0.0, |a: f64, b| a + b),
            (true, true) => running.scan(args, range, 1.0, |a: f64, b| a * b),
            (false, false) => running.scan(args, range, 0, i64::wrapping_add),
            (false, true) => running.scan(args, range, 1, i64::wrapping_mul),
        },
    )
}

/// Running results.
pub static OPERATORS: &[Operator] = &[
    kernel(
        "aten::cumsum.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| running(ctx, false),
    )
    .complex64(complex_scans::cumsum),
    kernel(
        "aten::cumprod.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
        |ctx| running(ctx, true),
    )
    .complex64(complex_scans::cumprod),
    kernel(
        "aten::cummax.out(Tensor self, int dim, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        extremes::prepare::<true>,
    ),
    kernel(
        "aten::cummin.out(Tensor self, int dim, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
        extremes::prepare::<false>,
    ),
    kernel("aten::logcumsumexp.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)", prepare_log_sums)
        .complex64(complex_scans::logcumsumexp),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Arg, Tensor, call, run_out};
    use pteron_core::DType;

    #[test]
    fn the_last_of_equal_extremes_and_the_last_nan() {
        let x = Tensor::of(&[6], &[1f32, 1.0, 0.0, f32::NAN, 2.0, f32::NAN]);
        let args = [
            x.into(),
            0i64.into(),
            Tensor::output(DType::Float32, &[6]).into(),
            Tensor::output(DType::Int64, &[6]).into(),
        ];
        let r = call("aten::cummax.out", &args).unwrap();
        let (Arg::Tensor(v), Arg::Tensor(i)) = (&r[2], &r[3]) else { panic!("no tensors") };
        assert_eq!(
            (&v.values::<f32>()[..3], i.values::<i64>()),
            (&[1.0, 1.0, 1.0][..], vec![0, 1, 1, 3, 3, 5])
        );
        assert!(v.values::<f32>()[3..].iter().all(|v| v.is_nan()));
    }

    /// Along every dimension of a tensor with equal numbers and NaN, in lines of more than a block, one by one and side by side.
    #[test]
    fn extremes_of_many_lines_in_any_direction() {
        let shape = [5usize, 300, 7];
        let data: Vec<f32> = (0..5 * 300 * 7)
            .map(|i| if i % 211 == 50 { f32::NAN } else { (i * 7919 % 31) as f32 - 15.0 })
            .collect();
        let same = |a: f32, b: f32| a == b || (a.is_nan() && b.is_nan());
        for (dim, stride) in [(0usize, 2100usize), (1, 7), (2, 1)] {
            for (operator, sign) in [("aten::cummax.out", 1.0), ("aten::cummin.out", -1.0)] {
                let args = [
                    Tensor::of(&shape, &data).into(),
                    (dim as i64).into(),
                    Tensor::output(DType::Float32, &shape).into(),
                    Tensor::output(DType::Int64, &shape).into(),
                ];
                let r = call(operator, &args).unwrap();
                let (Arg::Tensor(v), Arg::Tensor(p)) = (&r[2], &r[3]) else { panic!("no tensors") };
                let (v, p) = (v.values::<f32>(), p.values::<i64>());
                let mut want: Vec<(f32, i64)> = Vec::new();
                for (i, x) in data.iter().enumerate() {
                    let at = (i / stride % shape[dim]) as i64;
                    want.push(match at {
                        0 => (*x, 0),
                        _ => {
                            let old = want[i - stride];
                            let is_new = x.is_nan() || (!old.0.is_nan() && sign * x >= sign * old.0);
                            if is_new { (*x, at) } else { old }
                        }
                    });
                    assert!(
                        same(v[i], want[i].0) && p[i] == want[i].1,
                        "{operator} along {dim}, element {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn blocks_carry_on_what_came_before() {
        let n = 3 * BLOCK;
        let x = Tensor::of(&[n], &(0..n as i64).rev().collect::<Vec<_>>());
        let args = [
            x.into(),
            0i64.into(),
            Tensor::output(DType::Int64, &[n]).into(),
            Tensor::output(DType::Int64, &[n]).into(),
        ];
        let r = call("aten::cummax.out", &args).unwrap();
        let Arg::Tensor(i) = &r[3] else { panic!("no tensor") };
        assert!(i.values::<i64>().iter().all(|i| *i == 0));
    }

    #[test]
    fn infinities_add_up() {
        let x = Tensor::of(&[4], &[f64::NEG_INFINITY, f64::NEG_INFINITY, 2.0, f64::INFINITY]);
        let y = run_out("aten::logcumsumexp.out", &[x.into(), 0i64.into()], DType::Float64, &[4]).unwrap();
        assert_eq!(y.values::<f64>(), [f64::NEG_INFINITY, f64::NEG_INFINITY, 2.0, f64::INFINITY]);
        assert!(log_add(1.0, f64::NAN).is_nan());
    }

    #[test]
    fn running_sums_along_any_dimension() {
        let x = Tensor::of(&[2, 2], &[1i8, 2, 3, 4]);
        let y =
            run_out("aten::cumsum.out", &[x.into(), 0i64.into(), Arg::None], DType::Int64, &[2, 2]).unwrap();
        assert_eq!(y.values::<i64>(), [1, 2, 4, 6]);
        let x = Tensor::of(&[], &[3f32]);
        let y =
            run_out("aten::cumsum.out", &[x.into(), 0i64.into(), Arg::None], DType::Float32, &[]).unwrap();
        assert_eq!(y.values::<f32>(), [3.0]);
    }

    #[test]
    fn sums_and_products_of_many_lines_in_any_direction() {
        let shape = [5usize, 300, 7];
        let data: Vec<i64> = (0..5 * 300 * 7).map(|i| i * 7919 % 11 - 5).collect();
        for (dim, stride) in [(0usize, 2100usize), (1, 7), (2, 1)] {
            for (operator, start) in [("aten::cumsum.out", 0i64), ("aten::cumprod.out", 1)] {
                let x = Tensor::of(&shape, &data);
                let y = run_out(operator, &[x.into(), (dim as i64).into(), Arg::None], DType::Int64, &shape)
                    .unwrap();
                let mut expected = data.clone();
                for i in 0..data.len() {
                    let before = if i / stride % shape[dim] == 0 { start } else { expected[i - stride] };
                    expected[i] =
                        if start == 0 { before.wrapping_add(data[i]) } else { before.wrapping_mul(data[i]) };
                }
                assert_eq!(y.values::<i64>(), expected, "{operator} along {dim}");
            }
        }
    }
}
