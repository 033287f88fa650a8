//! max_pool2d_with_indices and max_pool3d_with_indices on f32: the largest element of each window and its place in the plane. NaN
//! counts as largest; among equals the first wins. Unsafe island.

use super::window::{Extents, Units, Window, common_order, input_shape, rows_of_unit};
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    Args, BindArgs, Bound, DType, Error, Grid, PrepareContext, Prepared, Result, Scratch, StaticKernel,
    WorkerScratch,
};

const OUT: usize = 6;
const INDICES: usize = 7;

struct MaxPool {
    level: SimdLevel,
    name: String,
    window: Window,
    is_interleaved: bool,
    /// Output width at most, rounded up to whole vectors.
    row_length: usize,
}

fn prepare(ctx: &PrepareContext<'_>, rank: usize) -> Result<Option<Box<dyn Prepared>>> {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(OUT)], rank) else { return Ok(None) };
    let (Some(input), Some(indices)) = (ctx.tensor(0), ctx.tensor(INDICES)) else { return Ok(None) };
    let Some(window) = Window::of(ctx, rank, Some(4), 5) else { return Ok(None) };
    let Ok(extents) = window.extents(&input.shape) else { return Ok(None) };
    // Places travel as i32.
    let is_small = i32::try_from(extents.input_pixels()).is_ok();
    if indices.dtype != DType::Int64 || indices.dim_order != input.dim_order || !is_small {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(MaxPool {
        level,
        name: format!("max_pool{rank}d.f32.{}", level.isa().name()),
        window,
        is_interleaved,
        row_length: extents.output[2].next_multiple_of(MAX_LANES),
    })))
}

impl Prepared for MaxPool {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: 2 * self.row_length * size_of::<f32>(), shared: 0 }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let extents = self.window.extents(&input_shape(&args.args())?)?;
        let width = extents.output[2];
        if width > self.row_length || i32::try_from(extents.input_pixels()).is_err() {
            return Err(Error::kernel("a plane is larger than the upper bound of its extents allows")
                .got(format!("{:?}", extents.input))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        let shape = extents.output_shape(self.window.rank)?;
        for out in [OUT, INDICES] {
            args.resize(out, &shape)?;
        }
        let units = Units::new(extents, self.is_interleaved);
        *bound.get_mut::<Units>()? = units;
        Ok(units.grid(self.window.kernel.iter().product::<usize>() * 2))
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
        if scratch.worker.len() < 2 * self.row_length * size_of::<f32>() {
            return Err(Error::internal("worker scratch is too small"));
        }
        let best: *mut f32 = scratch.worker.as_mut_ptr().cast();
        self.level.dispatch(UnitsTask {
            window: &self.window,
            extents: units.extents,
            range: units.range(chunk),
            is_interleaved: self.is_interleaved,
            input: args.tensor(0)?.ptr()?,
            out: args.output(OUT)?.ptr()?,
            indices: args.output(INDICES)?.ptr()?,
            best,
            // SAFETY: the length was checked above.
            places: unsafe { best.add(self.row_length) },
        });
        Ok(())
    }
}

struct UnitsTask<'a> {
    window: &'a Window,
    extents: Extents,
    range: std::ops::Range<usize>,
    is_interleaved: bool,
    input: *const f32,
    out: *mut f32,
    indices: *mut i64,
    /// Row in progress.
    best: *mut f32,
    /// Places of the row in progress: i32 bits.
    places: *mut f32,
}

impl SimdTask for UnitsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for unit in self.range.clone() {
            for (i, row) in rows_of_unit(&self.extents, unit, self.is_interleaved).enumerate() {
                // SAFETY: the row exists in all three tensors.
                unsafe {
                    if self.is_interleaved {
                        self.interleaved_row(s, unit, row);
                    } else {
                        self.planar_row(s, unit * self.extents.output[0] * self.extents.output[1] + i, row);
                    }
                }
            }
        }
    }
}

/// No place: larger than any.
const NOWHERE: u32 = u32::MAX;

/// Takes `v` at `place` where it beats `best`.
#[inline(always)]
fn challenge<S: Simd>(s: S, (best, places): (S::F, S::F), v: S::F, place: S::F) -> (S::F, S::F) {
    let wins = s.or(s.gt(v, best), s.not(s.eq(v, v)));
    (s.select(wins, v, best), s.select(wins, place, places))
}

impl UnitsTask<'_> {
    /// The place of the first element of a window.
    #[inline(always)]
    fn first_place(&self, [oz, oy, ox]: [usize; 3]) -> i32 {
        let [z, y, x] = [(0, oz), (1, oy), (2, ox)].map(|(d, o)| self.window.first_position(d, o));
        self.place(z, y, x) as i32
    }

    #[inline(always)]
    fn place(&self, z: usize, y: usize, x: usize) -> usize {
        (z * self.extents.input[1] + y) * self.extents.input[2] + x
    }

    /// Lines (first places) of the input that windows of output row (oz, oy) read, in order.
    #[inline(always)]
    fn lines(&self, oz: usize, oy: usize) -> impl Iterator<Item = usize> {
        let taps = self.window.kernel[0] * self.window.kernel[1];
        (0..taps).filter_map(move |k| {
            let z = self.window.position(&self.extents, 0, oz, k / self.window.kernel[1])?;
            let y = self.window.position(&self.extents, 1, oy, k % self.window.kernel[1])?;
            Some(self.place(z, y, 0))
        })
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (plane, oz, oy).
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&self, s: S, row: usize, [plane, oz, oy]: [usize; 3]) {
        let out_width = self.extents.output[2];
        let step = self.window.stride[2];
        // SAFETY: covered ranges keep loads inside the plane; the row in progress is out_width long, rounded
        // up to whole vectors.
        unsafe {
            let input = self.input.add(plane * self.extents.input_pixels());
            for ox in 0..out_width {
                *self.best.add(ox) = f32::NEG_INFINITY;
                *self.places.add(ox) = f32::from_bits(NOWHERE);
            }
            let mut ramp = [0i32; MAX_LANES];
            for (j, slot) in ramp.iter_mut().enumerate() {
                *slot = (j * step) as i32;
            }
            let ramp = s.to_bits(s.load(ramp.as_ptr().cast()));
            for line in self.lines(oz, oy) {
                for kx in 0..self.window.kernel[2] {
                    let (outputs, x) = self.window.covered(&self.extents, 2, kx);
                    let mut i = 0;
                    while i < outputs.len() {
                        let n = S::LANES.min(outputs.len() - i);
                        let at = line + x + i * step;
                        let v = s.load_strided(input.add(at), step, n);
                        let places = s.of_bits(s.add_i(ramp, s.splat_i(at as i32)));
                        let (best, kept) =
                            (self.best.add(outputs.start + i), self.places.add(outputs.start + i));
                        let so_far = (s.load_up_to(best, n), s.load_up_to(kept, n));
                        let (b, p) = challenge(s, so_far, v, places);
                        s.store_up_to(best, b, n);
                        s.store_up_to(kept, p, n);
                        i += n;
                    }
                }
            }
            let row = row * out_width;
            let mut has_all = true;
            for ox in 0..out_width {
                let place = (*self.places.add(ox)).to_bits();
                has_all &= place != NOWHERE;
                *self.out.add(row + ox) = *self.best.add(ox);
                *self.indices.add(row + ox) = i64::from(place);
            }
            // Nothing beats negative infinity where there is nothing else: the first element counts.
            for ox in (0..out_width).filter(|_| !has_all) {
                if (*self.places.add(ox)).to_bits() == NOWHERE {
                    *self.indices.add(row + ox) = i64::from(self.first_place([oz, oy, ox]));
                }
            }
        }
    }

    /// Output row `row` of all.
    ///
    /// # Safety
    /// It exists, and is the one at (image, oz, oy).
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, row: usize, [image, oz, oy]: [usize; 3]) {
        let channels = self.extents.channels;
        let out_width = self.extents.output[2];
        let first_pixel = image * self.extents.input_pixels();
        for ox in 0..out_width {
            let first = s.of_bits(s.splat_i(self.first_place([oz, oy, ox])));
            for c in (0..channels).step_by(S::LANES) {
                let n = S::LANES.min(channels - c);
                let mut state = (s.splat(f32::NEG_INFINITY), first);
                // SAFETY: positions lie inside the image, channels c..c + n exist.
                unsafe {
                    for line in self.lines(oz, oy) {
                        for kx in 0..self.window.kernel[2] {
                            let Some(x) = self.window.position(&self.extents, 2, ox, kx) else { continue };
                            let place = line + x;
                            let v = s.load_up_to(self.input.add((first_pixel + place) * channels + c), n);
                            state = challenge(s, state, v, s.of_bits(s.splat_i(place as i32)));
                        }
                    }
                    let at = (row * out_width + ox) * channels + c;
                    s.store_up_to(self.out.add(at), state.0, n);
                    let mut places = [0f32; MAX_LANES];
                    s.store(places.as_mut_ptr(), state.1);
                    for (j, p) in places.iter().enumerate().take(n) {
                        *self.indices.add(at + j) = i64::from(p.to_bits());
                    }
                }
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, \
                 int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
        variant: "f32",
        prepare: |ctx| prepare(ctx, 2),
    },
    StaticKernel {
        schema: "aten::max_pool3d_with_indices.out(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, \
                 int[3] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
        variant: "f32",
        prepare: |ctx| prepare(ctx, 3),
    },
];
