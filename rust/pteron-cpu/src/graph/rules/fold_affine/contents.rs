//! The contents of folded weights and biases.

use pteron_core::{AlignedBuffer, ConstantView, Result};
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

/// Does `new` hold what `old` held, scaled? An overflow gives NaN where it meets a zero, and what is nearly zero
/// has lost digits.
fn is_faithful(old: f32, new: f32) -> bool {
    !old.is_finite() || (new.is_finite() && (old == 0.0 || new.is_normal()))
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
    let values = weight.to_vec::<f32>()?;
    let mut out = AlignedBuffer::zeroed(std::mem::size_of_val(&values[..]))?;
    let (row, block) = (filters.per_block * filters.taps, filters.per_block * filters.taps * filters.repeats);
    let blocks = values.chunks_exact(block).zip(out.as_mut_elements::<f32>().chunks_exact_mut(block));
    let mut is_right = true;
    for ((from, to), factors) in blocks.zip(factors.chunks_exact(filters.per_block)) {
        for (from, to) in from.chunks_exact(row).zip(to.chunks_exact_mut(row)) {
            let runs = from.chunks_exact(filters.taps).zip(to.chunks_exact_mut(filters.taps));
            for ((from, to), factor) in runs.zip(factors) {
                for (from, to) in from.iter().zip(to) {
                    *to = (f64::from(*from) * factor) as f32;
                    is_right &= is_faithful(*from, *to);
                }
            }
        }
    }
    Ok(is_right.then_some(out))
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
