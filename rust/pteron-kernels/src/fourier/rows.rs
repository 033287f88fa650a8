//! Discrete Fourier transforms of rows of float32 along one dimension, in float32. Unsafe island (pointers
//! to the places of numbers).
//!
//! Short rows are transformed as many at a time as a vector has lanes, one row in each lane; long ones, and one or two
//! alone, one after the other. Lengths with a factor above 31 go through [`Transform`] in float64, four rows at a time. A row of an even number
//! of real numbers is a complex row of half the length. A backward transform is a forward one with real and imaginary
//! parts in each other's place. The numbers of a row do not depend on the rows beside it.

use super::axis::{Axis, Kind};
use super::groups::{Group, Method, Work};
use super::passes::{Place, Tables, take};
use super::scalar::{ABREAST, Number, Transform, memory, memory_abreast, most_memory};
use super::tables::{Factors, fill_roots};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{Error, Result};

/// Longest rows that are transformed side by side: their numbers, for all lanes, stay in the second-level cache.
const MOST_ABREAST: usize = 4096;
/// Fewer rows than this are transformed one after the other.
const FEWEST_ABREAST: usize = 3;

/// Transforms every row of an axis. Complex numbers are pairs of f32.
pub struct Rows<'a> {
    /// Where the rows lie.
    pub axis: Axis,
    /// What they are.
    pub kind: Kind,
    /// With `exp(-2 pi i j k / n)`, not its conjugate?
    pub is_forward: bool,
    /// What results are multiplied by.
    pub factor: f32,
    /// The rows; `None` for those in `target`.
    pub source: Option<&'a [f32]>,
    /// Where results go.
    pub target: &'a mut [f32],
    /// At least [`scratch_floats`].
    pub scratch: &'a mut [f32],
    /// At least [`scratch_numbers`].
    pub numbers: &'a mut [Number],
}

/// Numbers of f32 scratch for rows of up to `n` elements; `None` when that overflows.
pub fn scratch_floats(n: usize) -> Option<usize> {
    let abreast = n.min(MOST_ABREAST).checked_add(2)?.checked_mul(4 * MAX_LANES)?;
    let alone = n.checked_add(2)?.checked_mul(4)?;
    // Roots, and the tables of at most four passes of narrow blocks and all others.
    abreast.max(alone).checked_add(n.checked_mul(16)?)
}

/// Numbers of f64 scratch for rows of `n` elements, or of up to `n`; `None` when that overflows.
pub fn scratch_numbers(n: usize, is_bound: bool) -> Option<usize> {
    if !is_bound && Factors::of(n).is_some() {
        return Some(0);
    }
    let alone = if is_bound { most_memory(n) } else { memory(n) };
    let short = n.min(MOST_ABREAST);
    let abreast = memory_abreast(short)?.checked_add(ABREAST * short)?;
    Some(alone?.checked_add(n)?.max(abreast))
}

impl SimdTask for Rows<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let Axis { outer, n, inner } = self.axis;
        let (wide_in, wide_out) = self.widths();
        let size = |width: usize| outer.checked_mul(inner)?.checked_mul(width);
        let source_len = self.source.map_or(self.target.len(), <[f32]>::len);
        let fits = size(wide_in).is_some_and(|n| n <= source_len)
            && size(wide_out).is_some_and(|n| n <= self.target.len())
            && (self.source.is_some() || self.kind == Kind::Complex);
        if !fits || n == 0 || outer == 0 || inner == 0 {
            return Err(Error::internal("the rows of a transform do not fit its tensors"));
        }
        // A real row is half as long as a complex one, if that length has small factors.
        let half = n.is_multiple_of(2) && self.kind != Kind::Complex && Factors::of(n / 2).is_some();
        let length = if half { n / 2 } else { n };
        let abreast = if inner == 1 { outer } else { inner };
        let factors = Factors::of(length);
        let is_abreast = n <= MOST_ABREAST && abreast >= FEWEST_ABREAST;
        let lanes = if is_abreast { S::LANES } else { 1 };

        let mut rest = self.scratch;
        let buffers = [take(&mut rest, 2 * lanes * (n + 2))?, take(&mut rest, 2 * lanes * (n + 2))?];
        let mut numbers = self.numbers;
        let method = match factors {
            Some(factors) => {
                let (re, im) = (take(&mut rest, n)?, take(&mut rest, n)?);
                fill_roots(re, im);
                Method::Passes(Tables::new::<S>((length, factors), (re, im), is_abreast, &mut rest)?)
            }
            None => {
                let small = || Error::internal("the memory of a transform is too small");
                let row = take(&mut numbers, if is_abreast { ABREAST * n } else { n })?;
                if is_abreast {
                    let rows = bytemuck::try_cast_slice_mut(row).map_err(|_| small())?;
                    Method::Abreast(rows, Transform::new(n, true, numbers).ok_or_else(small)?)
                } else {
                    Method::Alone(row, Transform::new(n, true, numbers).ok_or_else(small)?)
                }
            }
        };
        let [a, b] = buffers.map(|buffer| match is_abreast {
            true => Place { re: buffer.as_mut_ptr(), im: buffer[lanes..].as_mut_ptr(), step: 2 * lanes },
            false => Place { re: buffer.as_mut_ptr(), im: buffer[n + 2..].as_mut_ptr(), step: 1 },
        });
        let target = self.target.as_mut_ptr();
        let work = Work {
            axis: self.axis,
            kind: self.kind,
            is_forward: self.is_forward,
            factor: self.factor,
            source: self.source.map_or(target.cast_const(), <[f32]>::as_ptr),
            target,
            half,
            is_abreast,
        };
        let mut method = method;
        for first in (0..outer).step_by(if inner == 1 { lanes } else { 1 }) {
            for column in (0..inner).step_by(lanes) {
                let left = if inner == 1 { outer - first } else { inner - column };
                let group = Group { first, column, count: lanes.min(left) };
                // SAFETY: source and target hold the rows of the axis, checked above; the buffers hold n + 2 numbers of `lanes`
                // lanes each, and nothing else touches them.
                unsafe { work.group(s, &mut method, group, a, b) };
            }
        }
        Ok(())
    }
}

impl Rows<'_> {
    /// Elements of f32 in a row of the source and of the target.
    fn widths(&self) -> (usize, usize) {
        let n = self.axis.n;
        match self.kind {
            Kind::Complex => (2 * n, 2 * n),
            Kind::FromReal { kept } => (n, 2 * kept),
            Kind::ToReal { given } => (2 * given, n),
        }
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
