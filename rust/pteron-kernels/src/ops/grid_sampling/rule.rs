//! How positions of a grid become pixels of an image, with their weights: one place at a time, in float64, rounded where
//! PyTorch rounds.

use pteron_core::{Args, Error, Result};

/// The bicubic filter's parameter.
const A: f64 = -0.75;

/// How positions become places in the image.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) mode: i64,
    pub(super) padding: i64,
    pub(super) align: bool,
    in_double: bool,
}

impl Rule {
    pub(super) fn of(args: &Args<'_>) -> Result<Rule> {
        let (mode, padding) = (args.int(2)?, args.int(3)?);
        for (value, name) in [(mode, "interpolation_mode"), (padding, "padding_mode")] {
            if !(0..3).contains(&value) {
                return Err(Error::kernel("unknown mode")
                    .argument(name)
                    .expected("0, 1 or 2")
                    .got(value.to_string()));
            }
        }
        Ok(Rule { mode, padding, align: args.bool(4)?, in_double: args.tensor(0)?.dtype().size() == 8 })
    }

    #[inline(always)]
    fn round(self, v: f64) -> f64 {
        if self.in_double { v } else { f64::from(v as f32) }
    }

    /// From -1..1 to pixels.
    fn pixels(self, at: f64, extent: usize) -> f64 {
        let n = extent as f64;
        if self.align {
            self.round(self.round(at + 1.0) / 2.0 * (n - 1.0))
        } else {
            self.round(self.round(self.round(self.round(at + 1.0) * n) - 1.0) / 2.0)
        }
    }

    /// A coordinate brought to the image as the padding says.
    #[inline(always)]
    pub(super) fn inside(self, at: f64, extent: usize) -> f64 {
        let last = extent as f64 - 1.0;
        let at = match self.padding {
            0 => return at,
            1 => at,
            _ if self.align => self.reflect(at, 0.0, last),
            _ => self.reflect(at, -0.5, last + 0.5),
        };
        // NaN becomes the first pixel.
        at.max(0.0).min(last)
    }

    #[inline(always)]
    fn reflect(self, at: f64, low: f64, high: f64) -> f64 {
        let span = high - low;
        if span <= 0.0 {
            return 0.0;
        }
        let from_low = self.round((at - low).abs());
        // Most places need no division.
        if from_low < span {
            return from_low + low;
        }
        let (flips, rest) = ((from_low / span).floor(), self.round(from_low % span));
        if flips % 2.0 == 0.0 { rest + low } else { span - rest + low }
    }

    /// Pixels that a coordinate touches along one dimension, with their weights.
    pub(super) fn taps<const SIDE: usize>(self, at: f64, extent: usize) -> [(f64, f64); SIDE] {
        let at = self.pixels(at, extent);
        match SIDE {
            1 => [(self.inside(at, extent).round_ties_even(), 1.0); SIDE],
            2 => {
                let at = self.inside(at, extent);
                let first = at.floor();
                let part = self.round(at - first);
                std::array::from_fn(|i| (first + i as f64, if i == 0 { 1.0 - part } else { part }))
            }
            _ => {
                let first = at.floor();
                let t = self.round(at - first);
                let weights = [far(1.0 + t), near(t), near(1.0 - t), far(2.0 - t)];
                // Every pixel by itself is brought to the image.
                std::array::from_fn(|i| (self.inside(first + i as f64 - 1.0, extent), weights[i]))
            }
        }
    }
}

/// The filter within one pixel.
fn near(t: f64) -> f64 {
    ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0
}

/// The filter between one and two pixels.
fn far(t: f64) -> f64 {
    ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A
}
