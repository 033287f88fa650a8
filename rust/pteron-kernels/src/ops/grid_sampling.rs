//! grid_sampler_2d: an image read at positions that are data. `rows` is the fast kernel of row-major images.
//!
//! Shape: image `[N, C, H, W]` and grid `[N, h, w, 2]` (x, then y, from -1 to 1) give `[N, C, h, w]`. Dtype:
//! floats; coordinates are computed in float32 unless the image is float64. Modes: 0 bilinear, 1 nearest,
//! 2 bicubic; padding: 0 zeros, 1 border, 2 reflection. Edge cases: positions that are not finite give
//! NaN in a bilinear sample padded with zeros, else what the padding gives for the first pixel.

use crate::chunked::{CHUNK, in_ranges};
use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::operator::{Operator, operator};
use crate::ops::layout::same_dtype;
use crate::ops::sums::check_float;
use crate::routine::Preparation;
use crate::shape::check_rank;
use pteron_core::{Args, BindArgs, Error, PrepareContext, Result, TensorMeta};
use rule::Rule;
use std::ops::Range;

#[cfg(test)]
#[path = "grid_sampling/tests.rs"]
mod fast_tests;
mod places;
#[allow(unsafe_code, reason = "a SIMD task")]
mod rows;
mod rule;

/// The output's position in the arguments.
const OUT: usize = 5;

fn bind(args: &mut BindArgs<'_>) -> Result<Split> {
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
    // Without places, the other extents may be any.
    let (channels, wide) = (image[1], places[2]);
    let rows = if wide == 0 { 0 } else { places[0] * places[1] };
    args.resize(OUT, &shape)?;
    // The weights of a place, and its channels.
    let ns_per_element = 4 + 20 / channels;
    Ok(Split::within(rows, wide.saturating_mul(channels), CHUNK, ns_per_element))
}

/// Places whose weights are known at a time.
const PLACES: usize = 64;

/// A pixel that a place reads, from the first one of its channel on, and its weight: zero for what lies outside.
type Tap = (usize, f64);

/// The pixels of places in one row of the output, `SIDE` by `SIDE` for each.
struct Taps<const SIDE: usize> {
    taps: [[[Tap; SIDE]; SIDE]; PLACES],
    /// What the sums begin with.
    starts: [f64; PLACES],
}

impl<const SIDE: usize> Taps<SIDE> {
    fn new() -> Self {
        Taps { taps: [[[(0, 0.0); SIDE]; SIDE]; PLACES], starts: [0.0; PLACES] }
    }

    /// Finds the pixels of place `i`, which is at `across` and `down` of an image with `meta`.
    fn set(&mut self, i: usize, rule: Rule, (across, down): (f64, f64), meta: &TensorMeta) {
        let (shape, strides) = (meta.shape(), meta.strides());
        let columns: [(f64, f64); SIDE] = rule.taps(across, shape[3]);
        let rows: [(f64, f64); SIDE] = rule.taps(down, shape[2]);
        // A NaN position is nowhere.
        let is_in = |at: f64, extent: usize| at >= 0.0 && at < extent as f64;
        for (line, (row, high)) in self.taps[i].iter_mut().zip(rows) {
            for (tap, (column, wide)) in line.iter_mut().zip(columns) {
                let is_read = is_in(row, shape[2]) && is_in(column, shape[3]);
                *tap = match is_read {
                    true => (row as usize * strides[2] + column as usize * strides[3], high * wide),
                    false => (0, 0.0),
                };
            }
        }
        // The weights of a bilinear sample at no place are no numbers.
        let is_nan = SIDE == 2 && rule.padding == 0 && !(across.is_finite() && down.is_finite());
        self.starts[i] = if is_nan { f64::NAN } else { 0.0 };
    }

    /// The samples of the first places in the channel that begins at `base`.
    fn sum(&self, x: &Reader<'_, f64>, base: usize, sums: &mut [f64]) -> Result<()> {
        for ((sum, taps), start) in sums.iter_mut().zip(&self.taps).zip(self.starts) {
            *sum = start;
            for (at, weight) in taps.as_flattened() {
                // What a weight of zero stands for may be infinite, and is not read.
                let value = x.get(base + at)?;
                *sum += if *weight == 0.0 { 0.0 } else { value * weight };
            }
        }
        Ok(())
    }
}

/// Samples rows of the output, over all images.
fn sample<const SIDE: usize>(args: &Args<'_>, rule: Rule, rows: Range<usize>) -> Result<()> {
    let (x, grid) = (Reader::<f64>::new(args.tensor(0)?)?, Reader::<f64>::new(args.tensor(1)?)?);
    let mut y = Writer::<f64>::new(args.output(OUT)?)?;
    let (places, step) = (grid.meta().shape(), grid.meta().strides());
    let (channels, from, to) = (x.meta().shape()[1], x.meta().strides(), y.meta().strides());
    let (high, wide) = (places[1], places[2]);
    let mut taps = Taps::<SIDE>::new();
    let mut sums = [0.0; PLACES];
    for row in rows {
        let (n, h) = (row / high, row % high);
        for first in (0..wide).step_by(PLACES) {
            let count = (wide - first).min(PLACES);
            for i in 0..count {
                let place = n * step[0] + h * step[1] + (first + i) * step[2];
                let position = (grid.get(place)?, grid.get(place + step[3])?);
                taps.set(i, rule, position, x.meta());
            }
            for c in 0..channels {
                taps.sum(&x, n * from[0] + c * from[1], &mut sums[..count])?;
                let at = n * to[0] + c * to[1] + h * to[2] + first * to[3];
                y.write(at as isize, to[3] as isize, &sums[..count])?;
            }
        }
    }
    Ok(())
}

fn run(args: &Args<'_>, rows: Range<usize>) -> Result<()> {
    let rule = Rule::of(args)?;
    match rule.mode {
        0 => sample::<2>(args, rule, rows),
        1 => sample::<1>(args, rule, rows),
        _ => sample::<4>(args, rule, rows),
    }
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, OUT)?;
    same_dtype(ctx, 1, OUT)?;
    check_float(ctx, OUT)?;
    in_ranges(0, |args, _: &mut ()| bind(args), |_, args, rows, _| run(args, rows))
}

/// Sampling.
pub static OPERATORS: &[Operator] = &[operator(
    "aten::grid_sampler_2d.out(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners, *, Tensor(a!) out) -> Tensor(a!)",
)
.fast("rows", rows::prepare)
.plain(prepare)];

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
