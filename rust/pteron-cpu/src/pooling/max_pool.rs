//! max_pool2d_with_indices on f32: the largest element of each window and its place in the plane. NaN
//! counts as largest; among equals the first wins. Unsafe island.

use super::window::{Extents, Units, Window, common_order, input_shape};
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

fn prepare(ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(OUT)]) else { return Ok(None) };
    let (Some(input), Some(indices)) = (ctx.tensor(0), ctx.tensor(INDICES)) else { return Ok(None) };
    let Some(window) = Window::of(ctx, Some(4), 5) else { return Ok(None) };
    let Ok(extents) = window.extents(&input.shape) else { return Ok(None) };
    // Places travel as i32.
    let is_small = i32::try_from(input.shape[2] * input.shape[3]).is_ok();
    if indices.dtype != DType::Int64 || indices.dim_order != input.dim_order || !is_small {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(MaxPool {
        level,
        name: format!("max_pool2d.f32.{}", level.isa().name()),
        window,
        is_interleaved,
        row_length: extents.output[1].next_multiple_of(MAX_LANES),
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
        let Extents { images, channels, input: [h, w], output: [height, width] } = extents;
        if width > self.row_length || i32::try_from(h.saturating_mul(w)).is_err() {
            return Err(Error::kernel("a plane is larger than the upper bound of its extents allows")
                .got(format!("{h} x {w}"))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        for out in [OUT, INDICES] {
            args.resize(out, &[images, channels, height, width])?;
        }
        let units = Units::new(extents, self.is_interleaved);
        *bound.get_mut::<Units>()? = units;
        Ok(units.grid(self.window.kernel[0] * self.window.kernel[1] * 2))
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
            // SAFETY: the unit exists in all three tensors.
            unsafe {
                if self.is_interleaved {
                    self.interleaved_row(s, unit);
                } else {
                    for oy in 0..self.extents.output[0] {
                        self.planar_row(s, unit, oy);
                    }
                }
            }
        }
    }
}

/// Takes `v` at `place` where it beats `best`.
#[inline(always)]
fn challenge<S: Simd>(s: S, (best, places): (S::F, S::F), v: S::F, place: S::F) -> (S::F, S::F) {
    let wins = s.or(s.gt(v, best), s.not(s.eq(v, v)));
    (s.select(wins, v, best), s.select(wins, place, places))
}

impl UnitsTask<'_> {
    /// The place of the first element of window (oy, ox).
    #[inline(always)]
    fn first_place(&self, oy: usize, ox: usize) -> i32 {
        let (y, x) = (self.window.first_position(0, oy), self.window.first_position(1, ox));
        (y * self.extents.input[1] + x) as i32
    }

    /// # Safety
    /// Output row `oy` of plane `plane` exists.
    #[inline(always)]
    unsafe fn planar_row<S: Simd>(&self, s: S, plane: usize, oy: usize) {
        let ([height, width], [out_height, out_width]) = (self.extents.input, self.extents.output);
        let step = self.window.stride[1];
        // SAFETY: covered ranges keep loads inside the plane; the row in progress is out_width long, rounded
        // up to whole vectors.
        unsafe {
            let input = self.input.add(plane * height * width);
            for ox in 0..out_width {
                *self.best.add(ox) = f32::NEG_INFINITY;
                *self.places.add(ox) = f32::from_bits(self.first_place(oy, ox) as u32);
            }
            for ky in 0..self.window.kernel[0] {
                let Some(y) = self.window.position(&self.extents, 0, oy, ky) else { continue };
                for kx in 0..self.window.kernel[1] {
                    let (outputs, x) = self.window.covered(&self.extents, 1, kx);
                    let mut i = 0;
                    while i < outputs.len() {
                        let n = S::LANES.min(outputs.len() - i);
                        let at = y * width + x + i * step;
                        let v = s.load_strided(input.add(at), step, n);
                        let mut places = [0f32; MAX_LANES];
                        for (j, p) in places.iter_mut().enumerate() {
                            *p = f32::from_bits((at + j * step) as u32);
                        }
                        let (best, kept) =
                            (self.best.add(outputs.start + i), self.places.add(outputs.start + i));
                        let so_far = (s.load_up_to(best, n), s.load_up_to(kept, n));
                        let (b, p) = challenge(s, so_far, v, s.load(places.as_ptr()));
                        s.store_up_to(best, b, n);
                        s.store_up_to(kept, p, n);
                        i += n;
                    }
                }
            }
            let row = (plane * out_height + oy) * out_width;
            for ox in 0..out_width {
                *self.out.add(row + ox) = *self.best.add(ox);
                *self.indices.add(row + ox) = i64::from((*self.places.add(ox)).to_bits());
            }
        }
    }

    /// # Safety
    /// Output row `unit`, counted over all images, exists.
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, unit: usize) {
        let channels = self.extents.channels;
        let ([height, width], [out_height, out_width]) = (self.extents.input, self.extents.output);
        let (image, oy) = (unit / out_height, unit % out_height);
        for ox in 0..out_width {
            let first = s.of_bits(s.splat_i(self.first_place(oy, ox)));
            for c in (0..channels).step_by(S::LANES) {
                let n = S::LANES.min(channels - c);
                let mut state = (s.splat(f32::NEG_INFINITY), first);
                // SAFETY: positions lie inside the image, channels c..c + n exist.
                unsafe {
                    for ky in 0..self.window.kernel[0] {
                        let Some(y) = self.window.position(&self.extents, 0, oy, ky) else { continue };
                        for kx in 0..self.window.kernel[1] {
                            let Some(x) = self.window.position(&self.extents, 1, ox, kx) else { continue };
                            let place = y * width + x;
                            let v = s.load_up_to(
                                self.input.add((image * height * width + place) * channels + c),
                                n,
                            );
                            state = challenge(s, state, v, s.of_bits(s.splat_i(place as i32)));
                        }
                    }
                    let at = (unit * out_width + ox) * channels + c;
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
pub static KERNELS: &[StaticKernel] = &[StaticKernel {
    schema: "aten::max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, \
             int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
    variant: "f32",
    prepare,
}];
