//! avg_pool2d, avg_pool3d and their adaptive forms on f32: the mean of each window. Unsafe island.
//!
//! The fixed window divides by its size (clipped to the padded input), by the number of elements inside the
//! input, or by a given number. The adaptive one has windows ⌊o·n/m⌋..⌈(o+1)·n/m⌉.

use super::window::{Extents, Units, Window, common_order, input_shape, rows_of_unit, spatial};
use crate::norm::moments::sum_of;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, Error, Grid, PrepareContext, Prepared, Result, Scratch, StaticKernel,
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
    rank: usize,
    is_interleaved: bool,
    out: usize,
    /// Output width up to which rows of planes are computed element by element of the window, whole vectors.
    row_length: usize,
}

/// Widest window for which that is done: few elements leave nothing to add up in vectors.
const WIDEST: usize = 16;

/// Longest row that is kept in scratch.
const LONGEST: usize = 64 << 10;

const FIXED_OUT: usize = 7;
const ADAPTIVE_OUT: usize = 2;

fn prepare_fixed(ctx: &PrepareContext<'_>, rank: usize) -> Result<Option<Box<dyn Prepared>>> {
    let Some(window) = Window::of(ctx, rank, None, 4) else { return Ok(None) };
    let Some(ArgSpec::Bool(Some(counts_padding))) = ctx.args.get(5) else { return Ok(None) };
    let divisor = match ctx.args.get(6) {
        Some(ArgSpec::None) => None,
        Some(ArgSpec::Int(Some(d))) if *d != 0 => Some(*d as f32),
        _ => return Ok(None),
    };
    prepare(ctx, Windows::Fixed { window, counts_padding: *counts_padding, divisor }, rank, FIXED_OUT)
}

fn prepare_adaptive(ctx: &PrepareContext<'_>, rank: usize) -> Result<Option<Box<dyn Prepared>>> {
    match ctx.args.get(1) {
        Some(ArgSpec::IntList(size)) if size.len() == rank => {
            prepare(ctx, Windows::Adaptive, rank, ADAPTIVE_OUT)
        }
        // One number for all dimensions.
        _ => Ok(None),
    }
}

fn prepare(
    ctx: &PrepareContext<'_>,
    windows: Windows,
    rank: usize,
    out: usize,
) -> Result<Option<Box<dyn Prepared>>> {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(out)], rank) else { return Ok(None) };
    let row_length = match (&windows, ctx.tensor(0)) {
        (Windows::Fixed { window, .. }, Some(input)) if !is_interleaved && window.kernel[2] <= WIDEST => {
            window.extents(&input.shape).map_or(0, |e| e.output[2].min(LONGEST).next_multiple_of(MAX_LANES))
        }
        _ => 0,
    };
    let level = SimdLevel::at_most(ctx.cpu.isa);
    let name = format!("avg_pool{rank}d.f32.{}", level.isa().name());
    Ok(Some(Box::new(AvgPool { level, name, windows, rank, is_interleaved, out, row_length })))
}

impl Prepared for AvgPool {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.row_length * size_of::<f32>(), shared: 0 }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let shape = input_shape(&args.args())?;
        let extents = match &self.windows {
            Windows::Fixed { window, .. } => {
                let extents = window.extents(&shape)?;
                // PyTorch has this rule for volumes alone, whatever the padding and the rounding.
                let too_small = (0..3).find(|d| extents.input[*d] < window.kernel[*d]);
                if let (3, Some(d)) = (self.rank, too_small) {
                    return Err(Error::kernel("the window is larger than the input")
                        .argument("kernel_size")
                        .expected(format!("at most {}", extents.input[d]))
                        .got(window.kernel[d].to_string()));
                }
                extents
            }
            Windows::Adaptive => {
                let size = args.args().int_list(1)?.to_dims()?;
                if size.len() != self.rank {
                    return Err(Error::kernel("output_size needs one extent per spatial dimension")
                        .expected(self.rank.to_string())
                        .got(size.to_string()));
                }
                let (input, mut output) = (spatial(&shape, self.rank), [1; 3]);
                output[3 - self.rank..].copy_from_slice(&size);
                let extents = Extents { images: shape[0], channels: shape[1], input, output };
                // PyTorch has this rule for the channels of volumes, not for those of images.
                if input.contains(&0) || (self.rank == 3 && shape[1] == 0) {
                    return Err(
                        Error::kernel("the mean of no elements is not defined").got(shape.to_string())
                    );
                }
                extents
            }
        };
        args.resize(self.out, &extents.output_shape(self.rank)?)?;
        let units = Units::new(extents, self.is_interleaved);
        *bound.get_mut::<Units>()? = units;
        let reads_per_output: usize = match &self.windows {
            Windows::Fixed { window, .. } => window.kernel.iter().product(),
            Windows::Adaptive => {
                (0..3).map(|d| extents.input[d].div_ceil(extents.output[d].max(1))).product()
            }
        };
        Ok(units.grid(reads_per_output * 4))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let units = *bound.get::<Units>()?;
        let floats = scratch.worker.get_mut(..self.row_length * size_of::<f32>());
        let sums = floats.and_then(|b| bytemuck::try_cast_slice_mut::<u8, f32>(b).ok());
        let sums = sums.ok_or_else(|| Error::internal("worker scratch is too small or misaligned"))?;
        self.level.dispatch(UnitsTask {
            windows: self.windows,
            extents: units.extents,
            range: units.range(chunk),
            is_interleaved: self.is_interleaved,
            sums,
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
    fn divisor(&self, window: [Stretch; 3]) -> f32 {
        match self {
            Windows::Fixed { divisor: Some(d), .. } => *d,
            _ => window.iter().map(|w| w.counted).product::<usize>() as f32,
        }
    }
}

struct UnitsTask<'a> {
    windows: Windows,
    extents: Extents,
    range: std::ops::Range<usize>,
    is_interleaved: bool,
    /// A row of outputs in progress.
    sums: &'a mut [f32],
    input: *const f32,
    out: *mut f32,
}

impl SimdTask for UnitsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let extents = self.extents;
        for unit in self.range.clone() {
            for (i, row) in rows_of_unit(&extents, unit, self.is_interleaved).enumerate() {
                // SAFETY: the row exists in both tensors.
                unsafe {
                    if self.is_interleaved {
                        self.interleaved_row(s, unit, row);
                        continue;
                    }
                    let at = unit * self.extents.output[0] * self.extents.output[1] + i;
                    match self.windows {
                        Windows::Fixed { window, .. } if self.is_by_elements() => {
                            self.planar_row_by_elements(s, &window, at, row);
                        }
                        _ => self.planar_row(s, at, row),
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

impl UnitsTask<'_> {
    /// Are there outputs enough in a row of planes, and room for them?
    fn is_by_elements(&self) -> bool {
        (4..=self.sums.len()).contains(&self.extents.output[2])
    }

    /// Output row `row` of all: an element of the window for all outputs at a time.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row_by_elements<S: Simd>(
        &mut self,
        s: S,
        window: &Window,
        row: usize,
        [plane, oz, oy]: [usize; 3],
    ) {
        let Extents { input: [_, h, w], output: [_, _, width], .. } = self.extents;
        let z = self.windows.stretch(&self.extents, 0, oz);
        let y = self.windows.stretch(&self.extents, 1, oy);
        let step = window.stride[2];
        self.sums[..width].fill(0.0);
        let sums = self.sums.as_mut_ptr();
        // SAFETY: the stretches and what is covered lie inside the plane; the sums are of a whole row.
        unsafe {
            let plane = self.input.add(plane * self.extents.input_pixels());
            for slice in z.start..z.end {
                for line in y.start..y.end {
                    let from = plane.add((slice * h + line) * w);
                    for kx in 0..window.kernel[2] {
                        let (outputs, x) = window.covered(&self.extents, 2, kx);
                        for i in (0..outputs.len()).step_by(S::LANES) {
                            let n = S::LANES.min(outputs.len() - i);
                            let to = sums.add(outputs.start + i);
                            let v = s.load_strided(from.add(x + i * step), step, n);
                            s.store_up_to(to, s.add(s.load_up_to(to, n), v), n);
                        }
                    }
                }
            }
            self.divide(s, window, [z, y], row * width);
        }
    }

    /// The row in progress by the divisors of its windows, into the output from `at` on.
    ///
    /// # Safety
    /// The row exists there.
    #[inline(always)]
    unsafe fn divide<S: Simd>(&self, s: S, window: &Window, [z, y]: [Stretch; 2], at: usize) {
        let (n, width) = (self.extents.input[2], self.extents.output[2]);
        let (p, k, step) = (window.padding[2], window.kernel[2], window.stride[2]);
        // Windows that lie inside the input have one divisor.
        let end = (n + p).checked_sub(k).map_or(0, |last| (last / step + 1).min(width));
        let start = p.div_ceil(step).min(end);
        let sums = self.sums.as_ptr();
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.out.add(at);
            for ox in (0..start).chain(end..width) {
                let x = self.windows.stretch(&self.extents, 2, ox);
                *out.add(ox) = *sums.add(ox) / self.windows.divisor([z, y, x]);
            }
            if start < end {
                let x = self.windows.stretch(&self.extents, 2, start);
                let divisor = s.splat(self.windows.divisor([z, y, x]));
                for ox in (start..end).step_by(S::LANES) {
                    let lanes = S::LANES.min(end - ox);
                    s.store_up_to(out.add(ox), s.div(s.load_up_to(sums.add(ox), lanes), divisor), lanes);
                }
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&self, s: S, row: usize, [plane, oz, oy]: [usize; 3]) {
        let Extents { input: [_, h, w], output: [_, _, width], .. } = self.extents;
        let z = self.windows.stretch(&self.extents, 0, oz);
        let y = self.windows.stretch(&self.extents, 1, oy);
        // SAFETY: the stretches lie inside the plane; the output row has `width` elements.
        unsafe {
            let plane = self.input.add(plane * self.extents.input_pixels());
            let out = self.out.add(row * width);
            for ox in 0..width {
                let x = self.windows.stretch(&self.extents, 2, ox);
                let mut sum = 0f32;
                for slice in z.start..z.end {
                    sum += window_sum(s, plane.add(slice * h * w), w, y, x);
                }
                *out.add(ox) = sum / self.windows.divisor([z, y, x]);
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (image, oz, oy).
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, row: usize, [image, oz, oy]: [usize; 3]) {
        let Extents { channels, input: [_, h, w], output: [_, _, width], .. } = self.extents;
        let z = self.windows.stretch(&self.extents, 0, oz);
        let y = self.windows.stretch(&self.extents, 1, oy);
        let first_pixel = image * self.extents.input_pixels();
        for ox in 0..width {
            let x = self.windows.stretch(&self.extents, 2, ox);
            let divisor = s.splat(self.windows.divisor([z, y, x]));
            for c in (0..channels).step_by(S::LANES) {
                let n = S::LANES.min(channels - c);
                // SAFETY: the stretches lie inside the image, channels c..c + n exist.
                unsafe {
                    let mut sum = s.zero();
                    for line in
                        (z.start..z.end).flat_map(|slice| (y.start..y.end).map(move |l| slice * h + l))
                    {
                        let mut row_sum = s.zero();
                        for column in x.start..x.end {
                            let pixel = first_pixel + line * w + column;
                            row_sum = s.add(row_sum, s.load_up_to(self.input.add(pixel * channels + c), n));
                        }
                        sum = s.add(sum, row_sum);
                    }
                    let at = (row * width + ox) * channels + c;
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
        prepare: |ctx| prepare_fixed(ctx, 2),
    },
    StaticKernel {
        schema: "aten::_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare_adaptive(ctx, 2),
    },
    StaticKernel {
        schema: "aten::avg_pool3d.out(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, \
                 bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out) \
                 -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare_fixed(ctx, 3),
    },
    StaticKernel {
        schema: "aten::_adaptive_avg_pool3d.out(Tensor self, SymInt[3] output_size, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare_adaptive(ctx, 3),
    },
];
