//! upsample_bilinear2d on f32. Unsafe island.
//!
//! Row-major images are resampled in two steps: an input row is spread over the output columns once and kept
//! while output rows need it, then an output row is a weighted sum of two such rows. Channels-last images
//! sum four pixels, vectors running over channels. Both compute rows before columns, so the bytes are equal
//! for every split into chunks.

use super::coordinates::{Form, Neighbours, Sampling};
use crate::pooling::window::common_order;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    ArgSpec, Args, BindArgs, Bound, Error, Grid, PrepareContext, Prepared, Result, Scratch, StaticKernel,
    WorkerScratch,
};
use std::ops::Range;

const LIST: Form = Form { align: 2, factors: 3, is_list: true, out: 4 };
const SINGLE: Form = Form { align: 2, factors: 3, is_list: false, out: 5 };

/// Outputs of a chunk, about.
const CHUNK: usize = 16 << 10;

struct Bilinear {
    level: SimdLevel,
    name: String,
    form: Form,
    is_interleaved: bool,
    /// Output width at most, rounded up to whole vectors.
    row_length: usize,
}

/// A bound call.
#[derive(Default)]
struct Rows {
    sampling: Sampling,
    channels: usize,
    /// Output rows of all planes, or of all images when channels-last.
    count: usize,
    per_chunk: usize,
    /// For every output column.
    columns: Vec<Neighbours>,
}

/// Most columns of an output; the reference kernel takes wider ones.
const LONGEST_ROW: usize = 1 << 16;

fn prepare(ctx: &PrepareContext<'_>, form: Form) -> Result<Option<Box<dyn Prepared>>> {
    let Some(is_interleaved) = common_order(&[ctx.tensor(0), ctx.tensor(form.out)], 2) else {
        return Ok(None);
    };
    let (Some(out), Some(ArgSpec::Bool(_))) = (ctx.tensor(form.out), ctx.args.get(form.align)) else {
        return Ok(None);
    };
    // Extents of an empty tensor may be anything; the table of columns is made without asking.
    if out.shape[3] > LONGEST_ROW {
        return Ok(None);
    }
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(Bilinear {
        level,
        name: format!("upsample_bilinear2d.f32.{}", level.isa().name()),
        form,
        is_interleaved,
        row_length: out.shape[3].next_multiple_of(MAX_LANES),
    })))
}

impl Prepared for Bilinear {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        let rows = if self.is_interleaved { 0 } else { 2 };
        Scratch { per_worker: rows * self.row_length * size_of::<f32>(), shared: 0 }
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Rows { columns: Vec::with_capacity(self.row_length), ..Rows::default() })
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let view = args.args();
        let sampling = Sampling::of(&view, self.form)?;
        let [height, width] = sampling.output;
        let shape = *view.tensor(0)?.shape();
        args.resize(self.form.out, &[shape[0], shape[1], height, width])?;
        if width > self.row_length {
            return Err(Error::kernel("an output is larger than the upper bound of its extents allows")
                .expected(format!("at most {} columns", self.row_length))
                .got(width.to_string())
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        let (planes, row) = match self.is_interleaved {
            true => (shape[0], width * shape[1]),
            false => (shape[0] * shape[1], width),
        };
        let rows = bound.get_mut::<Rows>()?;
        rows.columns.clear();
        rows.columns.extend((0..width).map(|x| sampling.neighbours(1, x)));
        (rows.sampling, rows.channels) = (sampling, shape[1]);
        (rows.count, rows.per_chunk) = (planes * height, CHUNK.div_ceil(row));
        if rows.count == 0 {
            return Ok(Grid::EMPTY);
        }
        let work = rows.per_chunk.min(rows.count) * row / 2;
        Ok(Grid::chunks(rows.count.div_ceil(rows.per_chunk), work))
    }

    unsafe fn run(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        _phase: u32,
        chunk: u32,
        scratch: &mut WorkerScratch<'_>,
    ) -> Result<()> {
        let rows = bound.get::<Rows>()?;
        if scratch.worker.len() < self.scratch().per_worker {
            return Err(Error::internal("worker scratch is too small"));
        }
        let start = chunk as usize * rows.per_chunk;
        let buffer: *mut f32 = scratch.worker.as_mut_ptr().cast();
        self.level.dispatch(RowsTask {
            rows,
            range: start..(start + rows.per_chunk).min(rows.count),
            is_interleaved: self.is_interleaved,
            input: args.tensor(0)?.ptr()?,
            out: args.output(self.form.out)?.ptr()?,
            // The second half is not used where there is no scratch.
            buffers: [buffer, buffer.wrapping_add(self.row_length)],
        });
        Ok(())
    }
}

struct RowsTask<'a> {
    rows: &'a Rows,
    range: Range<usize>,
    is_interleaved: bool,
    input: *const f32,
    out: *mut f32,
    /// Input rows spread over the output columns.
    buffers: [*mut f32; 2],
}

impl SimdTask for RowsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the rows of the range exist in the output, neighbours lie inside the input, and the
        // buffers have room for a row when images are row-major.
        unsafe {
            if self.is_interleaved {
                self.interleaved(s);
            } else {
                self.planar(s);
            }
        }
    }
}

/// `a (1 - w) + b w`.
#[inline(always)]
fn between<S: Simd>(s: S, a: S::F, b: S::F, [wa, wb]: [S::F; 2]) -> S::F {
    s.fma(b, wb, s.mul(a, wa))
}

impl RowsTask<'_> {
    /// # Safety
    /// As [`SimdTask::run`] says.
    #[inline(always)]
    unsafe fn planar<S: Simd>(&self, s: S) {
        let sampling = &self.rows.sampling;
        let ([h, w], [height, width]) = (sampling.input, sampling.output);
        // Input rows, counted over all planes, that the buffers hold.
        let mut held = [usize::MAX; 2];
        for unit in self.range.clone() {
            let (plane, at) = (unit / height, sampling.neighbours(0, unit % height));
            let wanted = [plane * h + at.first, plane * h + at.second];
            let mut place = [0; 2];
            for (i, row) in wanted.into_iter().enumerate() {
                place[i] = match held.iter().position(|r| *r == row) {
                    Some(p) => p,
                    None => {
                        // The buffer that the other row is not in.
                        let p = if held[0] == wanted[1 - i] { 1 } else { 0 };
                        let p = if i == 1 && place[0] == p { 1 - p } else { p };
                        // SAFETY: the row exists; the buffer has room for it.
                        unsafe { self.spread(self.input.add(row * w), self.buffers[p]) };
                        held[p] = row;
                        p
                    }
                };
            }
            let weights = [s.splat(1.0 - at.weight), s.splat(at.weight)];
            for x in (0..width).step_by(S::LANES) {
                let n = S::LANES.min(width - x);
                // SAFETY: columns x..x + n exist.
                unsafe {
                    let top = s.load_up_to(self.buffers[place[0]].add(x), n);
                    let bottom = s.load_up_to(self.buffers[place[1]].add(x), n);
                    s.store_up_to(self.out.add(unit * width + x), between(s, top, bottom, weights), n);
                }
            }
        }
    }

    /// Writes an input row at the output columns.
    ///
    /// # Safety
    /// The row has the input's width, `to` has room for the output's.
    #[inline(always)]
    unsafe fn spread(&self, row: *const f32, to: *mut f32) {
        for (x, c) in self.rows.columns.iter().enumerate() {
            // SAFETY: neighbours lie inside the row.
            unsafe {
                let (a, b) = (*row.add(c.first), *row.add(c.second));
                *to.add(x) = b.mul_add(c.weight, a * (1.0 - c.weight));
            }
        }
    }

    /// # Safety
    /// As [`SimdTask::run`] says.
    #[inline(always)]
    unsafe fn interleaved<S: Simd>(&self, s: S) {
        let (sampling, channels) = (&self.rows.sampling, self.rows.channels);
        let ([h, w], [height, width]) = (sampling.input, sampling.output);
        for unit in self.range.clone() {
            let (image, at) = (unit / height, sampling.neighbours(0, unit % height));
            let rows = [image * h + at.first, image * h + at.second];
            let high = [s.splat(1.0 - at.weight), s.splat(at.weight)];
            for (x, c) in self.rows.columns.iter().enumerate() {
                let wide = [s.splat(1.0 - c.weight), s.splat(c.weight)];
                // SAFETY: the four pixels exist.
                let [a, b, d, e] = [(0, c.first), (0, c.second), (1, c.first), (1, c.second)]
                    .map(|(r, column)| unsafe { self.input.add((rows[r] * w + column) * channels) });
                // SAFETY: so does the output pixel.
                let to = unsafe { self.out.add((unit * width + x) * channels) };
                for k in (0..channels).step_by(S::LANES) {
                    let n = S::LANES.min(channels - k);
                    // SAFETY: channels k..k + n exist.
                    unsafe {
                        let [a, b, d, e] = [a, b, d, e].map(|p| s.load_up_to(p.add(k), n));
                        let (top, bottom) = (between(s, a, b, wide), between(s, d, e, wide));
                        s.store_up_to(to.add(k), between(s, top, bottom, high), n);
                    }
                }
            }
        }
    }
}

/// Fast kernels of this file.
pub static KERNELS: &[StaticKernel] = &[
    StaticKernel {
        schema: "aten::upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners, \
                 float[]? scale_factors, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, LIST),
    },
    StaticKernel {
        schema: "aten::upsample_bilinear2d.out(Tensor self, SymInt[2] output_size, bool align_corners, \
                 float? scales_h=None, float? scales_w=None, *, Tensor(a!) out) -> Tensor(a!)",
        variant: "f32",
        prepare: |ctx| prepare(ctx, SINGLE),
    },
];
