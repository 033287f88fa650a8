//! The contents of folded weights and biases.

use pteron_core::{AlignedBuffer, ConstantView, Isa, Result};
use pteron_kernels::vector_math::{Simd, SimdLevel, SimdTask};
use std::fmt;

/// How a constant `c` meets a result `y`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Terms {
    /// `y · c`
    Product,
    /// `y / c`
    Quotient,
    /// `y_times · y + c_times · c`
    Sum { y_times: f64, c_times: f64 },
}

/// A call with a constant operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Affine {
    pub terms: Terms,
    /// The operand where it is a number.
    pub number: f64,
}

impl Affine {
    /// Is the result multiplied by anything?
    pub fn scales(&self) -> bool {
        !matches!(self.terms, Terms::Sum { y_times: 1.0, .. })
    }

    /// Is anything added?
    pub fn shifts(&self) -> bool {
        matches!(self.terms, Terms::Sum { .. })
    }

    /// `p` and `q` of `p · y + q`.
    fn at(&self, c: f64) -> (f64, f64) {
        match self.terms {
            Terms::Product => (c, 0.0),
            Terms::Quotient => (1.0 / c, 0.0),
            Terms::Sum { y_times, c_times } => (y_times, c_times * c),
        }
    }
}

impl fmt::Display for Affine {
    /// For recipes: all that the contents depend on besides the sources.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.terms {
            Terms::Product => write!(f, "product")?,
            Terms::Quotient => write!(f, "quotient")?,
            Terms::Sum { y_times, c_times } => {
                write!(f, "sum.{:016x}.{:016x}", y_times.to_bits(), c_times.to_bits())?;
            }
        }
        write!(f, ".{:016x}", self.number.to_bits())
    }
}

/// Which elements of a weight make an output channel: `blocks` times `repeats` times `per_block` runs of `taps`
/// elements; run `j` of every repetition of block `g` belongs to channel `g · per_block + j`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Filters {
    pub taps: usize,
    pub per_block: usize,
    pub blocks: usize,
    pub repeats: usize,
}

impl Filters {
    pub fn channels(&self) -> usize {
        self.per_block.saturating_mul(self.blocks)
    }
}

impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}x{}", self.blocks, self.repeats, self.per_block, self.taps)
    }
}

/// The operand of every channel: the last of `views`, unless it is the number.
fn operands(operand: Option<&ConstantView<'_>>, number: f64, channels: usize) -> Result<Option<Vec<f64>>> {
    let Some(view) = operand else { return Ok(Some(vec![number; channels])) };
    let values = view.to_vec::<f32>()?;
    Ok(match values.as_slice() {
        [one] => Some(vec![f64::from(*one); channels]),
        all if all.len() == channels => Some(all.iter().map(|v| f64::from(*v)).collect()),
        _ => None,
    })
}

/// Is anything lost when `new` takes the place of `old`? An overflow gives NaN where it meets a zero, and what is
/// nearly zero has lost digits. A number without branches, so that many are computed at once.
fn is_lost(old: f32, new: f32) -> u32 {
    const INFINITY: u32 = f32::INFINITY.to_bits();
    const SMALLEST_NORMAL: u32 = f32::MIN_POSITIVE.to_bits();
    let (old, new) = (old.abs().to_bits(), new.abs().to_bits());
    let has_lost_digits = u32::from(old != 0) & u32::from(new < SMALLEST_NORMAL);
    u32::from(old < INFINITY) & (u32::from(new >= INFINITY) | has_lost_digits)
}

/// `from`, multiplied by its factors, to `to`; is anything lost?
fn scale<'a>(from: &[f32], to: &mut [f32], factors: impl Iterator<Item = &'a f64>) -> u32 {
    let mut lost = 0;
    for ((from, to), factor) in from.iter().zip(to).zip(factors) {
        *to = (f64::from(*from) * factor) as f32;
        lost |= is_lost(*from, *to);
    }
    lost
}

/// The rows of a weight, multiplied by the factors of their channels. Is anything lost?
struct ScaleRows<'a> {
    values: &'a [f32],
    out: &'a mut [f32],
    factors: &'a [f64],
    filters: Filters,
}

impl SimdTask for ScaleRows<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let ScaleRows { values, out, factors, filters: Filters { taps, per_block, repeats, .. } } = self;
        let (row, block) = (per_block * taps, per_block * taps * repeats);
        let blocks = values.chunks_exact(block).zip(out.chunks_exact_mut(block));
        let mut lost = 0;
        for ((from, to), factors) in blocks.zip(factors.chunks_exact(per_block)) {
            for (from, to) in from.chunks_exact(row).zip(to.chunks_exact_mut(row)) {
                if taps == 1 {
                    lost |= scale(from, to, factors.iter());
                    continue;
                }
                let runs = from.chunks_exact(taps).zip(to.chunks_exact_mut(taps));
                for ((from, to), factor) in runs.zip(factors) {
                    lost |= scale(from, to, std::iter::repeat(factor));
                }
            }
        }
        lost != 0
    }
}

/// `views`: the weight, and the operand unless it is a number. `None` where the weight would not be faithful.
pub(super) fn weight(
    views: &[ConstantView<'_>],
    affine: &Affine,
    filters: Filters,
) -> Result<Option<AlignedBuffer>> {
    let [weight, rest @ ..] = views else { return Ok(None) };
    let Some(operands) = operands(rest.first(), affine.number, filters.channels())? else { return Ok(None) };
    let factors: Vec<f64> = operands.iter().map(|c| affine.at(*c).0).collect();
    let values = weight.row_major::<f32>()?;
    let mut out = AlignedBuffer::zeroed_to_fill(std::mem::size_of_val(&values[..]))?;
    let rows = ScaleRows { values: &values, out: out.as_mut_elements::<f32>(), factors: &factors, filters };
    Ok((!SimdLevel::at_most(Isa::Avx2).dispatch_narrow(rows)).then_some(out))
}

/// `views`: the bias if there is one, and the operand unless it is a number. `None` where it would overflow.
pub(super) fn bias(
    views: &[ConstantView<'_>],
    affine: &Affine,
    has_bias: bool,
    channels: usize,
) -> Result<Option<AlignedBuffer>> {
    let (bias, operand) = if has_bias { (views.first(), views.get(1)) } else { (None, views.first()) };
    let Some(operands) = operands(operand, affine.number, channels)? else { return Ok(None) };
    let before = match bias {
        Some(view) => view.to_vec::<f32>()?,
        None => vec![0.0; channels],
    };
    let mut out = AlignedBuffer::zeroed(std::mem::size_of_val(&before[..]))?;
    let mut is_right = before.len() == channels;
    for ((to, before), c) in out.as_mut_elements::<f32>().iter_mut().zip(&before).zip(operands) {
        let (p, q) = affine.at(c);
        *to = (p * f64::from(*before) + q) as f32;
        is_right &= to.is_finite();
    }
    Ok(is_right.then_some(out))
}
