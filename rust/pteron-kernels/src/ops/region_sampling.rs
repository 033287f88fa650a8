//! torchvision's roi_align: regions of feature maps, each averaged over a grid of bins.
//!
//! Shape: maps `[N, C, H, W]` and regions `[K, 5]` (number of the map, two corners) give `[K, C, pooled_height,
//! pooled_width]`. Dtype: float32, float64, and float16, which is computed in float32; maps and regions alike. A bin is the mean
//! of bilinear samples, `sampling_ratio` along each dimension, or as many as it has pixels where that is not positive. Edge
//! cases: samples more than a pixel outside of the map are zero; without `aligned`, a region has at least one pixel each
//! way; a region turned round has no samples unless `sampling_ratio` says how many; a region with NaN gives NaN. A
//! number of a map that does not exist is an error.
//!
//! The samples of a bin are a grid, so their mean is a sum over rows of sums over columns: rows are added up first, whole
//! stretches of them, with the weights that all samples together give each row.

use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared, take_scratch};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::real::Real;
use crate::routine::dtype_of;
use crate::shape::check_rank;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Error, Grid, PrepareContext, Result, Scratch};
use std::ops::Range;

/// The output's position in the arguments.
const OUT: usize = 7;
/// Numbers of a region: that of the map, and two corners.
const CORNERS: usize = 5;
/// Samples along one dimension of a bin at most; a region that asks for more is not one of a map.
const MOST_SAMPLES: f64 = 65536.0;
/// Output elements of a chunk, about.
const CHUNK: usize = 4 << 10;

/// Pixels along one dimension that the samples of bins touch, bin after bin.
struct Taps<'a, T> {
    /// Where the pixels of each bin begin; one more than there are bins.
    starts: &'a mut [u32],
    pixels: &'a mut [u32],
    weights: &'a mut [T],
    used: usize,
}

impl<'a, T: Real> Taps<'a, T> {
    /// Most taps of so many bins on so many pixels: a bin has the pixels it covers, and those beside its ends.
    fn most(bins: usize, pixels: usize) -> usize {
        bins.saturating_mul(4).saturating_add(pixels).saturating_add(8)
    }

    /// Bytes of scratch for that.
    fn scratch(bins: usize, pixels: usize) -> usize {
        let taps = Self::most(bins, pixels).saturating_mul(size_of::<u32>() + size_of::<T>());
        taps.saturating_add(bins.saturating_add(1).saturating_mul(size_of::<u32>())).saturating_add(16)
    }

    fn take(scratch: &mut &'a mut [u8], bins: usize, pixels: usize) -> Result<Self> {
        let most = Self::most(bins, pixels);
        let weights = take_scratch(scratch, most)?;
        let (pixels, starts) = (take_scratch(scratch, most)?, take_scratch(scratch, bins + 1)?);
        Ok(Taps { starts, pixels, weights, used: 0 })
    }

    /// The taps of every bin of a side of a region, on a map of `extent` pixels.
    fn fill(&mut self, side: Side<T>, extent: usize) -> Result<()> {
        self.used = 0;
        let bins = self.starts.len() - 1;
        for bin in 0..bins {
            self.starts[bin] = self.used as u32;
            let start = side.start + T::from_i64(bin as i64) * side.bin;
            for sample in 0..side.samples {
                let within = T::from_f64(sample as f64 + 0.5) * side.bin / T::from_i64(side.samples as i64);
                self.sample(bin, start + within, extent)?;
            }
        }
        self.starts[bins] = self.used as u32;
        Ok(())
    }

    /// Adds the pixels of a sample at a place between pixels.
    #[inline]
    fn sample(&mut self, bin: usize, at: T, extent: usize) -> Result<()> {
        if at < T::from_i64(-1) || at > T::from_i64(extent as i64) {
            return Ok(());
        }
        // NaN passes the comparisons; it becomes a weight, of the first pixel.
        let at = if at <= T::ZERO { T::ZERO } else { at };
        let low = (at.to_i64().max(0) as usize).min(extent - 1);
        if low + 1 >= extent {
            return self.add(bin, low, if at.is_nan() { at } else { T::ONE });
        }
        let part = at - T::from_i64(low as i64);
        self.add(bin, low, T::ONE - part)?;
        self.add(bin, low + 1, part)
    }

    #[inline]
    fn add(&mut self, bin: usize, pixel: usize, weight: T) -> Result<()> {
        // Samples follow each other along the map, so that a pixel comes again soon or never.
        let first = (self.starts[bin] as usize).max(self.used.saturating_sub(3));
        for i in first..self.used {
            if self.pixels[i] == pixel as u32 {
                self.weights[i] += weight;
                return Ok(());
            }
        }
        let (Some(slot), Some(of)) = (self.pixels.get_mut(self.used), self.weights.get_mut(self.used)) else {
            return Err(Error::internal("a region has more taps than there is room for"));
        };
        (*slot, *of) = (pixel as u32, weight);
        self.used += 1;
        Ok(())
    }

    /// Taps of a bin.
    #[inline(always)]
    fn of_bin(&self, bin: usize) -> Range<usize> {
        self.starts[bin] as usize..self.starts[bin + 1] as usize
    }

    /// The pixels that any bin touches, as a stretch.
    fn stretch(&self) -> Range<usize> {
        let pixels = &self.pixels[..self.used];
        match (pixels.iter().min(), pixels.iter().max()) {
            (Some(first), Some(last)) => *first as usize..*last as usize + 1,
            _ => 0..0,
        }
    }
}

/// One dimension of a region: where it starts, how long a bin is, how many samples it has.
#[derive(Clone, Copy)]
struct Side<T> {
    start: T,
    bin: T,
    samples: usize,
}

/// How regions are sampled.
#[derive(Clone, Copy)]
struct Rule {
    scale: f64,
    ratio: i64,
    aligned: bool,
}

impl Rule {
    fn of(args: &Args<'_>) -> Result<Rule> {
        Ok(Rule { scale: args.double(2)?, ratio: args.int(5)?, aligned: args.bool(6)? })
    }

    fn side<T: Real>(self, low: T, high: T, bins: usize) -> Result<Side<T>> {
        let scale = T::from_f64(self.scale);
        let offset = T::from_f64(if self.aligned { 0.5 } else { 0.0 });
        let (start, end) = (low * scale - offset, high * scale - offset);
        let mut length = end - start;
        if !self.aligned && length < T::ONE {
            length = T::ONE;
        }
        let bin = length / T::from_i64(bins as i64);
        let samples = if self.ratio > 0 { self.ratio as f64 } else { bin.to_f64().ceil() };
        if samples > MOST_SAMPLES {
            return Err(Error::kernel("a region is too large to be sampled")
                .argument("rois")
                .expected(format!("at most {MOST_SAMPLES} samples along a side of a bin"))
                .got(samples.to_string())
                .hint("clip the boxes to the image"));
        }
        // Not a number: one sample, which is none.
        let samples = if samples.is_nan() { 1 } else { samples.max(0.0) as usize };
        Ok(Side { start, bin, samples })
    }
}

fn bind(args: &mut BindArgs<'_>) -> Result<Split> {
    let view = args.args();
    Rule::of(&view)?;
    let (maps, regions) = (view.tensor(0)?, view.tensor(1)?);
    check_rank("the feature maps", 4, maps.shape()).map_err(|e| e.argument("input"))?;
    check_rank("the list of regions", 2, regions.shape()).map_err(|e| e.argument("rois"))?;
    if regions.shape()[1] != CORNERS {
        return Err(Error::kernel("a region has the number of its map and two corners")
            .argument("rois")
            .expected("[K, 5]")
            .got(regions.shape().to_string()));
    }
    let pooled = |i: usize, name: &str| {
        let n = view.int(i)?;
        usize::try_from(n)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| Error::kernel("a region has at least one bin").argument(name).got(n.to_string()))
    };
    let (rows, columns) = (pooled(3, "pooled_height")?, pooled(4, "pooled_width")?);
    if maps.shape()[2..].contains(&0) {
        return Err(Error::kernel("an empty map cannot be sampled")
            .argument("input")
            .got(maps.shape().to_string()));
    }
    let (count, channels) = (regions.shape()[0], maps.shape()[1]);
    args.resize(OUT, &[count, channels, rows, columns])?;
    let plane = rows.saturating_mul(columns);
    Ok(Split::within(count.saturating_mul(channels), plane, CHUNK, 8))
}

/// The planes of a chunk: channels of regions.
struct Planes<'a, 's, T: Real> {
    rule: Rule,
    maps: Reader<'a, T>,
    regions: Reader<'a, T>,
    out: Writer<'a, T>,
    planes: Range<usize>,
    rows: Taps<'s, T>,
    columns: Taps<'s, T>,
    /// A stretch of a row of the map as numbers, the sum of such stretches, and a row of bins.
    buffers: [&'s mut [T]; 3],
}

impl<T: Real> Planes<'_, '_, T> {
    /// The taps of region `k`; the offset of its map, and the number of its samples.
    fn region(&mut self, k: usize) -> Result<(usize, T)> {
        let (shape, strides) = (self.maps.meta().shape(), self.maps.meta().strides());
        let steps = self.regions.meta().strides();
        let number = |i: usize| self.regions.get(k * steps[0] + i * steps[1]);
        let map = number(0)?.to_f64();
        // A fraction is cut off, as torchvision does.
        if !(map > -1.0 && map < shape[0] as f64) {
            return Err(Error::kernel("a region is on a map that does not exist")
                .argument("rois")
                .expected(format!("a number of a map below {}", shape[0]))
                .got(format!("{map} in region {k}")));
        }
        let [x1, y1, x2, y2] = [number(1)?, number(2)?, number(3)?, number(4)?];
        let rows = self.rule.side(y1, y2, self.rows.starts.len() - 1)?;
        let columns = self.rule.side(x1, x2, self.columns.starts.len() - 1)?;
        self.rows.fill(rows, shape[2])?;
        self.columns.fill(columns, shape[3])?;
        let samples = rows.samples.saturating_mul(columns.samples).max(1);
        Ok((map as usize * strides[0], T::from_i64(samples as i64)))
    }

    /// Computes one plane: the bins of a region on the channel that begins at `from`.
    #[inline(always)]
    fn plane(&mut self, from: usize, to: usize, samples: T) -> Result<()> {
        let strides = self.maps.meta().strides();
        let steps = self.out.meta().strides();
        let stretch = self.columns.stretch();
        let [values, sums, bins] = &mut self.buffers;
        let sums = &mut sums[..stretch.len()];
        let bins = &mut bins[..self.columns.starts.len() - 1];
        for row in 0..self.rows.starts.len() - 1 {
            sums.fill(T::ZERO);
            for tap in self.rows.of_bin(row) {
                let at = from + self.rows.pixels[tap] as usize * strides[2] + stretch.start * strides[3];
                let pixels = self.maps.block(at as isize, strides[3] as isize, stretch.len(), values)?;
                let weight = self.rows.weights[tap];
                for (sum, pixel) in sums.iter_mut().zip(pixels) {
                    *sum += weight * *pixel;
                }
            }
            for (column, bin) in bins.iter_mut().enumerate() {
                let mut sum = T::ZERO;
                for tap in self.columns.of_bin(column) {
                    sum +=
                        self.columns.weights[tap] * sums[self.columns.pixels[tap] as usize - stretch.start];
                }
                *bin = sum / samples;
            }
            self.out.write((to + row * steps[2]) as isize, steps[3] as isize, bins)?;
        }
        Ok(())
    }
}

impl<T: Real> SimdTask for Planes<'_, '_, T> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) -> Result<()> {
        let channels = self.maps.meta().shape()[1];
        let (map_step, steps) = (self.maps.meta().strides()[1], self.out.meta().strides());
        let mut held = None;
        for plane in self.planes.clone() {
            let (k, channel) = (plane / channels, plane % channels);
            let (map, samples) = match held {
                Some((of, map, samples)) if of == k => (map, samples),
                _ => self.region(k)?,
            };
            held = Some((k, map, samples));
            self.plane(map + channel * map_step, k * steps[0] + channel * steps[1], samples)?;
        }
        Ok(())
    }
}

struct RegionSampling {
    level: SimdLevel,
    is_double: bool,
    /// Most bins and pixels along a row and a column.
    bins: [usize; 2],
    pixels: [usize; 2],
}

impl RegionSampling {
    fn scratch_of<T: Real>(&self) -> usize {
        let [rows, columns] = [0, 1].map(|d| Taps::<T>::scratch(self.bins[d], self.pixels[d]));
        let buffers = self.pixels[1].saturating_mul(2).saturating_add(self.bins[1]);
        rows.saturating_add(columns).saturating_add(buffers.saturating_mul(size_of::<T>())).saturating_add(64)
    }

    fn sample<T: Real>(&self, args: &Args<'_>, planes: Range<usize>, mut scratch: &mut [u8]) -> Result<()> {
        let maps = Reader::<T>::new(args.tensor(0)?)?;
        let out = Writer::<T>::new(args.output(OUT)?)?;
        let (shape, pooled) = (maps.meta().shape(), out.meta().shape());
        let buffers = [
            take_scratch(&mut scratch, shape[3])?,
            take_scratch(&mut scratch, shape[3])?,
            take_scratch(&mut scratch, pooled[3])?,
        ];
        let rows = Taps::take(&mut scratch, pooled[2], shape[2])?;
        // What follows numbers of 32 bits may need numbers of 64.
        let odd = scratch.as_ptr().align_offset(align_of::<u64>()).min(scratch.len());
        let mut scratch = &mut scratch[odd..];
        let columns = Taps::take(&mut scratch, pooled[3], shape[3])?;
        let (rule, regions) = (Rule::of(args)?, Reader::new(args.tensor(1)?)?);
        self.level.dispatch(Planes { rule, maps, regions, out, planes, rows, columns, buffers })
    }
}

impl GridKernel for RegionSampling {
    type Problem = Split;

    fn scratch(&self) -> Scratch {
        let per_worker = if self.is_double { self.scratch_of::<f64>() } else { self.scratch_of::<f32>() };
        Scratch { per_worker, shared: 0 }
    }

    fn new_problem(&self) -> Split {
        Split::NONE
    }

    fn bind(&self, args: &mut BindArgs<'_>, split: &mut Split) -> Result<Grid> {
        *split = bind(args)?;
        Ok(split.grid())
    }

    fn run(&self, split: &Split, part: Part<'_>) -> Result<()> {
        let planes = split.units_of(part.chunk);
        match self.is_double {
            true => self.sample::<f64>(part.args, planes, part.scratch.worker),
            false => self.sample::<f32>(part.args, planes, part.scratch.worker),
        }
    }
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    same_dtype(ctx, 0, 1)?;
    same_dtype(ctx, 0, OUT)?;
    let dtype = dtype_of(ctx, 0)?;
    if !matches!(dtype, DType::Float32 | DType::Float64 | DType::Float16) {
        return Err(Error::kernel("feature maps are float16, float32 or float64")
            .argument("input")
            .got(dtype.name()));
    }
    let most = |i: usize, d: usize| ctx.tensor(i).and_then(|t| t.shape.get(d).copied()).unwrap_or(0);
    prepared(
        "reference",
        RegionSampling {
            level: SimdLevel::at_most(ctx.cpu.isa),
            is_double: dtype == DType::Float64,
            bins: [most(OUT, 2), most(OUT, 3)],
            pixels: [most(0, 2), most(0, 3)],
        },
    )
}

/// Sampling of regions.
pub static OPERATORS: &[Operator] = &[kernel(
    "torchvision::roi_align.out(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Tensor, error_text, numbers, run_out};
    use pteron_core::{DType, Result};

    fn call(regions: &[f32], size: [i64; 2], ratio: i64, aligned: bool) -> Result<Vec<f32>> {
        let maps = Tensor::of(&[2, 1, 6, 5], &numbers(60, 3));
        let count = regions.len() / 5;
        let args = [
            maps.into(),
            Tensor::of(&[count, 5], regions).into(),
            0.5.into(),
            size[0].into(),
            size[1].into(),
            ratio.into(),
            aligned.into(),
        ];
        let shape = [count, 1, size[0].max(1) as usize, size[1].max(1) as usize];
        Ok(run_out("torchvision::roi_align.out", &args, DType::Float32, &shape)?.values())
    }

    /// torchvision's definition, sample by sample.
    fn expected([map, x1, y1, x2, y2]: [f32; 5], [rows, columns]: [usize; 2], ratio: usize) -> Vec<f32> {
        let pixels = numbers(60, 3);
        let pixel = |y: usize, x: usize| pixels[map as usize * 30 + y * 5 + x];
        let at = |y: f32, x: f32| {
            if !(-1.0..=6.0).contains(&y) || !(-1.0..=5.0).contains(&x) {
                return 0.0;
            }
            let (y, x) = (y.clamp(0.0, 5.0), x.clamp(0.0, 4.0));
            let (top, left) = (y as usize, x as usize);
            let (bottom, right) = ((top + 1).min(5), (left + 1).min(4));
            let (down, across) = (y - top as f32, x - left as f32);
            let upper = pixel(top, left) * (1.0 - across) + pixel(top, right) * across;
            let lower = pixel(bottom, left) * (1.0 - across) + pixel(bottom, right) * across;
            upper * (1.0 - down) + lower * down
        };
        let (left, top) = (x1 * 0.5 - 0.5, y1 * 0.5 - 0.5);
        let (high, wide) = ((y2 - y1) * 0.5 / rows as f32, (x2 - x1) * 0.5 / columns as f32);
        let mut means = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let mut sum = 0.0;
                for i in 0..ratio * ratio {
                    let (down, across) = ((i / ratio) as f32 + 0.5, (i % ratio) as f32 + 0.5);
                    let y = top + row as f32 * high + down * high / ratio as f32;
                    sum += at(y, left + column as f32 * wide + across * wide / ratio as f32);
                }
                means.push(sum / (ratio * ratio) as f32);
            }
        }
        means
    }

    #[test]
    fn a_bin_is_the_mean_of_its_samples() {
        for region in
            [[0f32, 1., 1., 8., 9.], [1., -4., -4., 20., 30.], [1., 8., 9., 1., 1.], [0., 2., 2., 2., 2.]]
        {
            for (size, ratio) in [([2, 3], 2), ([1, 1], 7), ([4, 2], 1), ([9, 9], 3)] {
                let got = call(&region, size, ratio, true).unwrap();
                let want = expected(region, size.map(|n| n as usize), ratio as usize);
                assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "{got:?}\n{want:?}");
            }
        }
    }

    #[test]
    fn regions_that_are_no_regions() {
        assert_eq!(call(&[], [2, 2], -1, false).unwrap(), []);
        // Turned round, with as many samples as pixels: none.
        assert_eq!(call(&[0., 5., 5., 1., 1.], [1, 2], -1, true).unwrap(), [0.0, 0.0]);
        for nan in 1..5 {
            let mut region = [0f32, 1., 1., 4., 4.];
            region[nan] = f32::NAN;
            for ratio in [-1, 2] {
                assert!(call(&region, [2, 1], ratio, true).unwrap().iter().all(|v| v.is_nan()), "{nan}");
            }
        }
        for map in [2.0, -1.0, f32::NAN, f32::INFINITY, 1e30] {
            assert!(
                error_text(call(&[map, 0., 0., 4., 4.], [1, 1], 1, false))
                    .contains("a map that does not exist")
            );
        }
        let huge = [0., 0., 0., 1e30, 1e30];
        assert!(error_text(call(&huge, [1, 1], -1, false)).contains("too large to be sampled"));
        assert_eq!(call(&huge, [1, 1], 2, false).unwrap(), [0.0]);
        assert!(error_text(call(&[0., 0., 0., 4., 4.], [0, 1], 1, false)).contains("pooled_height"));
    }
}
