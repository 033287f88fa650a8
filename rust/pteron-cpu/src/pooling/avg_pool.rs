//! avg_pool2d and _adaptive_avg_pool2d on f32: the mean of each window. Unsafe island.
//!
//! The fixed window divides by its size (clipped to the padded input), by the number of elements inside the
//! input, or by a given number. The adaptive one has windows ⌊o·n/m⌋..⌈(o+1)·n/m⌉.

use super::window::{Extents, Units, Window, common_order, input_shape};
use crate::norm::moments::sum_of;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, Error, Grid, PrepareContext, Prepared, Result, StaticKernel,
    WorkerScratch,
};

/// Which elements an output averages.
#[derive(Debug, Clone, Copy)]
enum Windows {
    Fixed { window: Window, counts_padding: bool, divisor: Option<f32> },
    Adaptive,
}

struct AvgPool {
    level: SimdLevel,
    name: String,
    windows: Windows,
    is_interleaved: bool,
    out: usize,
}

const FIXED_OUT: usize = 7;
const ADAPTIVE_OUT: usize = 2;

fn prepare_fixed(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let Some(window) = Window::of(ctx, None, 4) else { return Ok(None) };
    let Some(ArgSpec::Bool(Some(counts_padding))) = ctx.args.get(5) else { return Ok(None) };
    let divisor = match ctx.args.get(6) {
        Some(ArgSpec::None) => None,
        Some(ArgSpec::Int(Some(d))) if *d != 0 => Some(*d as f32),
        _ => return Ok(None),
    };
    prepare(ctx, Windows::Fixed { window, counts_padding: *counts_padding, divisor }, FIXED_OUT)
}

fn prepare(ctx: &PrepareContext<'_>, windows: Windows, out: usize) -> Result<Option<Box<dyn Prepared>>> {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(out)]) else { return Ok(None) };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("avg_pool2d.f32.{}", level.isa().name());
    Ok(Some(Box::new(AvgPool { level, name, windows, is_interleaved, out })))
}

impl Prepared for AvgPool {
    fn name(&self) -> &str {
        &self.name
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let shape = input_shape(&args.args())?;
        let extents = match &self.windows {
            Windows::Fixed { window, .. } => window.extents(&shape)?,
            Windows::Adaptive => {
                let size = args.args().int_list(1)?.to_dims()?;
                let [height, width] = *size else {
                    return Err(Error::kernel("output_size needs two extents").got(size.to_string()));
                };
                let input = [shape[2], shape[3]];
                if input.contains(&0) && shape[0] * shape[1] * height * width > 0 {
                    return Err(
                        Error::kernel("the mean of no elements is not defined").got(shape.to_string())
                    );
                }
                Extents { images: shape[0], channels: shape[1], input, output: [height, width] }
            }
        };
        args.resize(self.out, &[extents.images, extents.channels, extents.output[0], extents.output[1]])?;
        let units = Units::new(extents, self.is_interleaved);
        *bound.get_mut::<Units>()? = units;
        let ([h, w], [oh, ow]) = (extents.input, extents.output);
        let reads_per_output = match &self.windows {
            Windows::Fixed { window, .. } => window.kernel[0] * window.kernel[1],
            Windows::Adaptive => h.div_ceil(oh.max(1)) * w.div_ceil(ow.max(1)),
        };
        Ok(units.grid(reads_per_output * 4))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        _scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let units = *bound.get::<Units>()?;
        self.level.dispatch(UnitsTask {
            windows: self.windows,
            extents: units.extents,
            range: units.range(chunk),
            is_interleaved: self.is_interleaved,
            input: args.tensor(0)?.ptr()?,
            out: args.output(self.out)?.ptr()?,
        });
        Ok(())
    }
}

/// The part of a window along one dimension: input positions and the number it counts as.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start: usize,
    end: usize,
    counted: usize,
}

impl Windows {
    #[inline(always)]
    fn stretch(&self, extents: &Extents, d: usize, o: usize) -> Stretch {
        let n = extents.input[d];
        match self {
            Windows::Fixed { window, counts_padding, .. } => {
                let (p, k) = (window.padding[d], window.kernel[d]);
                // In coordinates that start at the leading padding.
                let first = o * window.stride[d];
                let last = (first + k).min(n + 2 * p);
                let (start, end) = (first.saturating_sub(p).min(n), last.saturating_sub(p).min(n));
                Stretch { start, end, counted: if *counts_padding { last - first } else { end - start } }
            }
            Windows::Adaptive => {
                let m = extents.output[d];
                let (start, end) = (o * n / m, ((o + 1) * n).div_ceil(m));
                Stretch { start, end, counted: end - start }
            }
        }
    }

    #[inline(always)]
    fn divisor(&self, y: Stretch, x: Stretch) -> f32 {
        match self {
            Windows::Fixed { divisor: Some(d), .. } => *d,
            _ => (y.counted * x.counted) as f32,
        }
    }
}

struct UnitsTask {
    windows: Windows,
    extents: Extents,
    range: std::ops::Range<usize>,
    is_interleaved: bool,
    input: *const f32,
    out: *mut f32,
}

impl SimdTask for UnitsTask {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [height, width] = self.extents.output;
        for unit in self.range.clone() {
            // SAFETY: the unit exists in both tensors.
            unsafe {
                if self.is_interleaved {
                    self.interleaved_row(s, unit);
                    continue;
                }
                let [h, w] = self.extents.input;
                let plane = self.input.add(unit * h * w);
                for oy in 0..height {
                    let y = self.windows.stretch(&self.extents, 0, oy);
                    for ox in 0..width {
                        let x = self.windows.stretch(&self.extents, 1, ox);
                        let sum = window_sum(s, plane, w, y, x);
                        *self.out.add((unit * height + oy) * width + ox) = sum / self.windows.divisor(y, x);
                    }
                }
            }
        }
    }
}

/// Σ of a window of a plane of width `w`.
///
/// # Safety
/// The stretches lie inside the plane.
#[inline(always)]
unsafe fn window_sum<S: Simd>(s: S, plane: *const f32, w: usize, y: Stretch, x: Stretch) -> f32 {
    let n = x.end - x.start;
    // SAFETY: the caller's promise.
    unsafe {
        if n == w {
            // Whole rows follow each other.
            return sum_of(s, plane.add(y.start * w), (y.end - y.start) * w, |v| v) as f32;
        }
        let mut sum = 0f32;
        for row in y.start..y.end {
            let from = plane.add(row * w + x.start);
            if n >= 2 * S::LANES {
                sum += sum_of(s, from, n, |v| v) as f32;
            } else {
                for i in 0..n {
                    sum += *from.add(i);
                }
            }
        }
        sum
    }
}

impl UnitsTask {
    /// # Safety
    /// Output row `unit`, counted over all images, exists.
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, unit: usize) {
        let channels = self.extents.channels;
        let ([h, w], [height, width]) = (self.extents.input, self.extents.output);
        let (image, oy) = (unit / height, unit % height);
        let y = self.windows.stretch(&self.extents, 0, oy);
        for ox in 0..width {
            let x = self.windows.stretch(&self.extents, 1, ox);
            let divisor = s.splat(self.windows.divisor(y, x));
            for c in (0..channels).step_by(S::LANES) {
                let n = S::LANES.min(channels - c);
                // SAFETY: the stretches lie inside the image, channels c..c + n exist.
                unsafe {
                    let mut sum = s.zero();
                    for row in y.start..y.end {
                        let mut row_sum = s.zero();
                        for column in x.start..x.end {
                            let pixel = (image * h + row) * w + column;
                            row_sum = s.add(row_sum, s.load_up_to(self.input.add(pixel * channels + c), n));
                        }
                        sum = s.add(sum, row_sum);
                    }
                    let at = (unit * width + ox) * channels + c;
                    s.store_up_to(self.out.add(at), s.div(sum, divisor), n);
                }
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::avg_pool2d.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, \
                 bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out) \
                 -> Tensor(a!)",
        variant: "f32",
        prepare: prepare_fixed,
    },
    StaticKernel {
        schema: "aten::_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, Windows::Adaptive, ADAPTIVE_OUT),
    },
];
