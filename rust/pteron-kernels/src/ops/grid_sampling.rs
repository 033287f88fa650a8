//! grid_sampler_2d: an image read at positions that are data.
//!
//! Shape: image `[N, C, H, W]` and grid `[N, h, w, 2]` (x, then y, from -1 to 1) give `[N, C, h, w]`. Dtype:
//! floats; coordinates are computed in float32 unless the image is float64. Modes: 0 bilinear, 1 nearest,
//! 2 bicubic; padding: 0 zeros, 1 border, 2 reflection. Edge cases: positions that are not finite give
//! NaN in a bilinear sample padded with zeros, else what the padding gives for the first pixel.

use crate::elements::{Reader, Writer};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::routine::Routine;
use crate::shape::check_rank;
use pteron_core::{Args, BindArgs, Error, Result};

/// The output's position in the arguments.
const OUT: usize = 5;

/// The bicubic filter's parameter.
const A: f64 = -0.75;

/// How positions become places in the image.
#[derive(Clone, Copy)]
struct Rule {
    mode: i64,
    padding: i64,
    align: bool,
    in_double: bool,
}

impl Rule {
    fn of(args: &Args<'_>) -> Result<Rule> {
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
    fn inside(self, at: f64, extent: usize) -> f64 {
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

    fn reflect(self, at: f64, low: f64, high: f64) -> f64 {
        let span = high - low;
        if span <= 0.0 {
            return 0.0;
        }
        let from_low = self.round((at - low).abs());
        let (flips, rest) = ((from_low / span).floor(), self.round(from_low % span));
        if flips % 2.0 == 0.0 { rest + low } else { span - rest + low }
    }

    /// Pixels that a coordinate touches along one dimension, with their weights.
    fn taps(self, at: f64, extent: usize) -> [(f64, f64); 4] {
        let at = self.pixels(at, extent);
        match self.mode {
            0 => {
                let at = self.inside(at, extent);
                let first = at.floor();
                let part = self.round(at - first);
                [(first, 1.0 - part), (first + 1.0, part), (first, 0.0), (first, 0.0)]
            }
            1 => {
                let at = self.inside(at, extent).round_ties_even();
                [(at, 1.0), (at, 0.0), (at, 0.0), (at, 0.0)]
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

fn bind(args: &mut BindArgs<'_>) -> Result<()> {
    let view = args.args();
    Rule::of(&view)?;
    let (x, grid) = (view.tensor(0)?, view.tensor(1)?);
    check_rank("the image", 4, x.shape())?;
    check_rank("the grid", 4, grid.shape())?;
    let (image, places) = (x.shape(), grid.shape());
    if image[0] != places[0] || places[3] != 2 {
        return Err(Error::kernel("the grid needs the image's batch and pairs of coordinates")
            .argument("grid")
            .expected(format!("[{}, h, w, 2]", image[0]))
            .got(places.to_string()));
    }
    if image[1..].contains(&0) {
        return Err(Error::kernel("an empty image cannot be sampled")
            .argument("input")
            .got(image.to_string()));
    }
    let shape = [image[0], image[1], places[1], places[2]];
    args.resize(OUT, &shape)
}

fn sample(args: &Args<'_>) -> Result<()> {
    let rule = Rule::of(args)?;
    let (x, grid) = (Reader::<f64>::new(args.tensor(0)?)?, Reader::<f64>::new(args.tensor(1)?)?);
    let mut y = Writer::<f64>::new(args.output(OUT)?)?;
    let (shape, from) = (x.meta().shape(), x.meta().strides());
    let (places, step) = (grid.meta().shape(), grid.meta().strides());
    let to = y.meta().strides();
    let is_in = |at: f64, extent: usize| at >= 0.0 && at < extent as f64;
    for n in 0..places[0] {
        for h in 0..places[1] {
            for w in 0..places[2] {
                let place = n * step[0] + h * step[1] + w * step[2];
                let (across, down) = (grid.get(place)?, grid.get(place + step[3])?);
                let columns = rule.taps(across, shape[3]);
                let rows = rule.taps(down, shape[2]);
                // The weights of a bilinear sample at no place are no numbers.
                let start =
                    if rule.mode == 0 && rule.padding == 0 && !(across.is_finite() && down.is_finite()) {
                        f64::NAN
                    } else {
                        0.0
                    };
                for c in 0..shape[1] {
                    let mut sum = start;
                    for (row, high) in rows {
                        for (column, wide) in columns {
                            let weight = high * wide;
                            // What lies outside is zero; a NaN position is nowhere.
                            if weight != 0.0 && is_in(row, shape[2]) && is_in(column, shape[3]) {
                                let at = n * from[0]
                                    + c * from[1]
                                    + row as usize * from[2]
                                    + column as usize * from[3];
                                sum += x.get(at)? * weight;
                            }
                        }
                    }
                    y.put(n * to[0] + c * to[1] + h * to[2] + w * to[3], sum)?;
                }
            }
        }
    }
    Ok(())
}

/// Sampling.
pub static OPERATORS: &[Operator] = &[kernel(
    "aten::grid_sampler_2d.out(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners, *, Tensor(a!) out) -> Tensor(a!)",
    |ctx| {
        same_dtype(ctx, 0, OUT)?;
        same_dtype(ctx, 1, OUT)?;
        check_float(ctx, OUT)?;
        Routine::prepare(bind, |args, _| sample(args))
    },
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, run_out};
    use pteron_core::DType;

    #[test]
    fn corners_are_the_ends_of_the_grid() {
        let x = Tensor::of(&[1, 1, 1, 3], &[1f32, 2.0, 4.0]);
        let at = |x_at: f32, mode: i64, padding: i64| {
            let grid = Tensor::of(&[1, 1, 1, 2], &[x_at, 0.0]);
            let args = [x.clone().into(), grid.into(), mode.into(), padding.into(), true.into()];
            run_out("aten::grid_sampler_2d.out", &args, DType::Float32, &[1, 1, 1, 1])
        };
        assert_eq!(at(-1.0, 0, 0).unwrap().values::<f32>(), [1.0]);
        assert_eq!(at(0.5, 0, 0).unwrap().values::<f32>(), [3.0]);
        assert_eq!(at(0.9, 1, 0).unwrap().values::<f32>(), [4.0]);
        assert_eq!(at(3.0, 0, 0).unwrap().values::<f32>(), [0.0]);
        assert_eq!(at(3.0, 0, 1).unwrap().values::<f32>(), [4.0]);
        assert_eq!(at(2.0, 0, 2).unwrap().values::<f32>(), [2.0]);
        assert!(at(f32::NAN, 0, 0).unwrap().values::<f32>()[0].is_nan());
        assert_eq!(at(f32::NAN, 0, 1).unwrap().values::<f32>(), [1.0]);
        assert!(error_text(at(0.0, 3, 0)).contains("interpolation_mode"));
    }
}
