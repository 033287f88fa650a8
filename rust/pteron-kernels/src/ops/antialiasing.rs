//! Resampling of images with a filter that widens as the image shrinks, so that every input pixel counts:
//! bilinear and bicubic. `separable` is the fast kernel of row-major images.
//!
//! Shape: the output size. Dtype: floats; coordinates are computed as PyTorch does, in float32 unless the
//! image is float64. Edge cases: taps beyond an edge are left out and the rest is scaled up.

use crate::elements::{Reader, Writer};
use crate::operator::{Operator, operator};
use crate::ops::layout::same_dtype;
use crate::ops::resampling::{Axis, axes, bind, cubic_weight, weighted_form};
use crate::ops::sums::check_float;
use crate::ops::volume::{Volume, places, volumes};
use crate::routine::{Preparation, Routine};
use pteron_core::{Args, PrepareContext, Result};

#[cfg(test)]
#[path = "antialiasing/tests.rs"]
mod fast_tests;
mod separable;

/// A filter: its reach in pixels when nothing shrinks, and its value at a distance.
#[derive(Clone, Copy)]
struct Filter {
    reach: f64,
    weight: fn(f64) -> f64,
}

const LINEAR: Filter = Filter { reach: 1.0, weight: |x| (1.0 - x).max(0.0) };
const CUBIC: Filter = Filter { reach: 2.0, weight: |x| cubic_weight(x, -0.5) };

/// What one output reads along one dimension.
#[derive(Clone, Copy)]
struct Taps {
    start: i64,
    end: i64,
    center: f64,
    squeeze: f64,
    total: f64,
    filter: Filter,
}

impl Taps {
    fn new(axis: Axis, o: i64, filter: Filter) -> Taps {
        let step = axis.step;
        let center = axis.round(step * axis.round(o as f64 + 0.5));
        let support = axis.round(filter.reach * step.max(1.0));
        let squeeze = if step >= 1.0 { axis.round(1.0 / step) } else { 1.0 };
        let start = (axis.round(axis.round(center - support) + 0.5) as i64).max(0);
        let end = (axis.round(axis.round(center + support) + 0.5) as i64).min(axis.input);
        let mut taps = Taps { start, end, center, squeeze, total: 1.0, filter };
        let total: f64 = (start..end).map(|i| taps.weight(i)).sum();
        if total != 0.0 {
            taps.total = total;
        }
        taps
    }

    fn weight(self, i: i64) -> f64 {
        (self.filter.weight)(((i as f64 - self.center + 0.5) * self.squeeze).abs()) / self.total
    }
}

fn resample(args: &Args<'_>, filter: Filter) -> Result<()> {
    let form = weighted_form(2);
    let axes = axes::<2>(args, form)?;
    let x = Reader::<f64>::new(args.tensor(0)?)?;
    let mut y = Writer::<f64>::new(args.output(form.out)?)?;
    for o in places(axes.map(|a| a.output)) {
        let (high, wide) = (Taps::new(axes[1], o[1], filter), Taps::new(axes[2], o[2], filter));
        for p in 0..volumes::<2>(x.meta()) {
            let (from, to) = (Volume::of::<2>(x.meta(), p), Volume::of::<2>(y.meta(), p));
            let mut sum = 0.0;
            for v in high.start..high.end {
                let mut row = 0.0;
                for u in wide.start..wide.end {
                    row += x.get(from.at([0, v, u]))? * wide.weight(u);
                }
                sum += row * high.weight(v);
            }
            y.put(to.at(o), sum)?;
        }
    }
    Ok(())
}

fn check(ctx: &PrepareContext<'_>) -> Result<()> {
    let out = weighted_form(2).out;
    same_dtype(ctx, 0, out)?;
    check_float(ctx, out)
}

fn prepare_linear(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx)?;
    Routine::prepare(|a| bind::<2>(a, weighted_form(2)), |a, _| resample(a, LINEAR))
}

fn prepare_cubic(ctx: &PrepareContext<'_>) -> Preparation {
    check(ctx)?;
    Routine::prepare(|a| bind::<2>(a, weighted_form(2)), |a, _| resample(a, CUBIC))
}

/// Antialiased resampling.
pub static OPERATORS: &[Operator] = &[
    operator(
        "aten::_upsample_bilinear2d_aa.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("separable", |ctx| separable::prepare(ctx, LINEAR))
    .plain(prepare_linear),
    operator(
        "aten::_upsample_bicubic2d_aa.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
    )
    .fast("separable", |ctx| separable::prepare(ctx, CUBIC))
    .plain(prepare_cubic),
];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, run_out};
    use pteron_core::DType;

    #[test]
    fn every_pixel_counts_when_an_image_shrinks() {
        let x = Tensor::of(&[1, 1, 1, 4], &[0f32, 0.0, 0.0, 8.0]);
        let args = [x.into(), vec![1, 1].into(), false.into(), Arg::None, Arg::None];
        let y = run_out("aten::_upsample_bilinear2d_aa.out", &args, DType::Float32, &[1, 1, 1, 1]).unwrap();
        // Weights 2.5, 3.5, 3.5 and 2.5 of 12.
        assert!((y.values::<f32>()[0] - 8.0 * 2.5 / 12.0).abs() < 1e-6);
    }
}
