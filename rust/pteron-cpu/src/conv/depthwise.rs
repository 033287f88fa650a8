//! Depthwise f32 convolution: every channel has its own window. Channel planes are computed row by row from
//! a padded copy of the plane in which columns of one stride phase are contiguous; channels-last tensors
//! pixel by pixel over vectors of channels. Unsafe island.

use super::dense::check_bias;
use super::geometry::{BIAS, Extents, Geometry, INPUT, OUT, WEIGHT};
use crate::epilogue::Epilogue;
use crate::packed::PackedFormat;
use crate::vector_math::simd::MAX_LANES;
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{
    AlignedBuffer, Args, BindArgs, Bound, DType, Error, Grid, PackKey, PackedBytes, PrepareContext, Prepared,
    Result, Scratch, WorkerScratch,
};
use std::sync::Arc;

/// Packed format of depthwise weights for channel planes: row-major f32 [C, KH, KW].
pub const PLANES_FORMAT: &str = "f32_depthwise_planes_v1";
/// Packed format of depthwise weights for channels-last: row-major f32 [KH, KW, C].
pub const INTERLEAVED_FORMAT: &str = "f32_depthwise_interleaved_v1";

/// The format for planes as a table entry: the shape is that of the weight, [C, 1, KH, KW] or [C, 1, KW].
pub const PACKED_PLANES: PackedFormat = PackedFormat {
    name: PLANES_FORMAT,
    dtype: Some(DType::Float32),
    elements: |shape| shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d)),
    position: |shape, index| shape.iter().zip(index).fold(0, |at, (n, i)| at * n + i),
};

/// The format for channels-last as a table entry: the shape is that of the weight.
pub const PACKED_INTERLEAVED: PackedFormat = PackedFormat {
    name: INTERLEAVED_FORMAT,
    dtype: Some(DType::Float32),
    elements: PACKED_PLANES.elements,
    position: |shape, index| {
        let tap = shape.iter().zip(index).skip(1).fold(0, |at, (n, i)| at * n + i);
        tap * shape.first().copied().unwrap_or(0) + index.first().copied().unwrap_or(0)
    },
};

/// Output elements of a chunk, about.
const CHUNK: usize = 16 << 10;

struct Depthwise {
    level: SimdLevel,
    name: String,
    geometry: Geometry,
    weights: Arc<PackedBytes>,
    epilogue: Epilogue,
    is_interleaved: bool,
    scratch_floats: usize,
}

/// Work of one call: planes (or output rows when channels-last), split evenly.
#[derive(Debug, Clone, Copy, Default)]
struct Units {
    extents: Extents,
    count: usize,
    per_chunk: usize,
}

/// The padded copy of a plane: rows of `phases` stretches of `phase_length` columns.
#[derive(Debug, Clone, Copy)]
struct PaddedPlane {
    rows: usize,
    phases: usize,
    phase_length: usize,
}

impl PaddedPlane {
    fn of(geometry: &Geometry, extents: &Extents) -> Self {
        let [sh, sw] = geometry.stride;
        let reach = |d: usize| (geometry.kernel[d] - 1) * geometry.dilation[d];
        PaddedPlane {
            rows: (extents.output[0] - 1) * sh + reach(0) + 1,
            phases: sw,
            // Whole vectors are loaded at row ends.
            phase_length: extents.output[1].next_multiple_of(MAX_LANES) + reach(1) / sw + 1,
        }
    }

    fn row_length(&self) -> usize {
        self.phases * self.phase_length
    }
}

/// Prepares a depthwise convolution with one output channel per input channel, when both tensors lie in
/// the same memory order and the weight is constant.
pub fn prepare(
    ctx: &PrepareContext<'_>,
    geometry: Geometry,
    epilogue: &Epilogue,
    [is_interleaved, is_output_interleaved]: [bool; 2],
) -> Result<Option<Box<dyn Prepared>>> {
    let (Some(weight), Some(input)) = (ctx.args.get(WEIGHT).and_then(|a| a.constant()), ctx.tensor(INPUT))
    else {
        return Ok(None);
    };
    if geometry.in_channels != 1 || geometry.out_channels != 1 || is_interleaved != is_output_interleaved {
        return Ok(None);
    }
    let format = if is_interleaved { INTERLEAVED_FORMAT } else { PLANES_FORMAT };
    let weights = ctx.packs.get_or_pack(PackKey::new(weight, format), || {
        let planes = weight.to_vec::<f32>()?;
        let taps = geometry.kernel[0] * geometry.kernel[1];
        let mut pack = AlignedBuffer::zeroed(planes.len() * size_of::<f32>())?;
        for (i, slot) in pack.as_mut_elements::<f32>().iter_mut().enumerate() {
            let at = if is_interleaved { i % geometry.groups * taps + i / geometry.groups } else { i };
            *slot =
                planes.get(at).copied().ok_or_else(|| Error::internal("depthwise weight is too small"))?;
        }
        Ok(pack)
    })?;
    // Extents only grow with the input, so the bound gives the largest plane.
    let Ok(extents) = geometry.extents(&input.shape) else { return Ok(None) };
    let plane = PaddedPlane::of(&geometry, &extents);
    let level = SimdLevel::at_most(ctx.cpu.isa);
    Ok(Some(Box::new(Depthwise {
        level,
        name: format!("convolution.{format}.{}", level.isa().name()),
        geometry,
        weights,
        epilogue: epilogue.clone(),
        is_interleaved,
        scratch_floats: if is_interleaved { 0 } else { plane.rows * plane.row_length() },
    })))
}

impl Prepared for Depthwise {
    fn name(&self) -> &str {
        &self.name
    }

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.scratch_floats * size_of::<f32>(), shared: 0 }
    }

    fn needs(&self, index: usize) -> bool {
        index != WEIGHT
    }

    fn new_bound(&self) -> Bound {
        Bound::of(Units::default())
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let extents = self.geometry.extents(args.args().tensor(INPUT)?.shape())?;
        args.resize(OUT, &self.geometry.output_shape(&extents)?)?;
        check_bias(&args.args(), &self.geometry)?;
        if extents.images == 0 {
            return Ok(Grid::EMPTY);
        }
        let plane = PaddedPlane::of(&self.geometry, &extents);
        if !self.is_interleaved && plane.rows * plane.row_length() > self.scratch_floats {
            // A bound on the element count lets one extent outgrow what load planned for.
            return Err(Error::kernel("a plane is larger than the upper bound of its extents allows")
                .got(format!("{} x {}", extents.input[0], extents.input[1]))
                .hint("export with an upper bound for each dynamic dimension that covers this input"));
        }
        let (count, size) = match self.is_interleaved {
            true => (extents.images * extents.output[0], extents.output[1] * self.geometry.groups),
            false => (extents.images * self.geometry.groups, extents.pixels()),
        };
        let per_chunk = CHUNK.div_ceil(size);
        *bound.get_mut::<Units>()? = Units { extents, count, per_chunk };
        let taps = self.geometry.kernel[0] * self.geometry.kernel[1];
        Ok(Grid::chunks(count.div_ceil(per_chunk), per_chunk.min(count) * size * taps / 16))
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
        if scratch.worker.len() < self.scratch_floats * size_of::<f32>() {
            return Err(Error::internal("worker scratch is too small"));
        }
        let first = chunk as usize * units.per_chunk;
        let task = UnitsTask {
            geometry: &self.geometry,
            extents: units.extents,
            range: first..(first + units.per_chunk).min(units.count),
            weights: self.weights.as_ptr().cast(),
            clamp: self.epilogue.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY)),
            input: args.tensor(INPUT)?.ptr()?,
            bias: args.optional_tensor(BIAS)?.map_or(Ok(std::ptr::null()), |t| t.ptr::<f32>())?,
            out: args.output(OUT)?.ptr()?,
            padded: (!self.is_interleaved).then_some(scratch.worker.as_mut_ptr().cast()),
        };
        self.level.dispatch(task);
        Ok(())
    }
}

struct UnitsTask<'a> {
    geometry: &'a Geometry,
    extents: Extents,
    range: std::ops::Range<usize>,
    weights: *const f32,
    clamp: (f32, f32),
    input: *const f32,
    /// Null when absent.
    bias: *const f32,
    out: *mut f32,
    /// Channel planes: room for the padded copy.
    padded: Option<*mut f32>,
}

impl SimdTask for UnitsTask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: units of the range exist in input and output, whose sizes `bind` checked; the padded copy
        // fits the scratch.
        unsafe {
            for unit in self.range.clone() {
                match self.padded {
                    Some(padded) => self.plane(s, unit, padded),
                    None => self.interleaved_row(s, unit),
                }
            }
        }
    }
}

impl UnitsTask<'_> {
    /// # Safety
    /// Plane `unit` exists; `padded` has room for its copy.
    #[inline(always)]
    unsafe fn plane<S: Simd>(&self, s: S, unit: usize, padded: *mut f32) {
        let channel = unit % self.geometry.groups;
        let [kh, kw] = self.geometry.kernel;
        let layout = PaddedPlane::of(self.geometry, &self.extents);
        // SAFETY: the caller's promise.
        unsafe {
            let [height, width] = self.extents.input;
            self.pad(s, self.input.add(unit * height * width), padded, &layout);
            let weights = self.weights.add(channel * kh * kw);
            let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(channel) };
            let out = self.out.add(unit * self.extents.pixels());
            match (kh, kw) {
                (3, 3) => self.rows::<S, 3, 3>(s, padded, &layout, weights, bias, out),
                (5, 5) => self.rows::<S, 5, 5>(s, padded, &layout, weights, bias, out),
                (7, 7) => self.rows::<S, 7, 7>(s, padded, &layout, weights, bias, out),
                // Zero extents stand for any.
                _ => self.rows::<S, 0, 0>(s, padded, &layout, weights, bias, out),
            }
        }
    }

    /// Copies a plane with zeros around it, columns sorted by stride phase.
    ///
    /// # Safety
    /// `plane` is an input plane; `padded` has room for `layout`.
    #[inline(always)]
    unsafe fn pad<S: Simd>(&self, s: S, plane: *const f32, padded: *mut f32, layout: &PaddedPlane) {
        let ([height, width], [ph, pw]) = (self.extents.input, self.geometry.padding);
        for row in 0..layout.rows {
            let y = row.wrapping_sub(ph);
            for phase in 0..layout.phases {
                // Column q of this phase is column q · phases + phase - pw of the plane.
                let first = pw.saturating_sub(phase).div_ceil(layout.phases).min(layout.phase_length);
                let end = (width + pw).saturating_sub(phase).div_ceil(layout.phases).min(layout.phase_length);
                let columns = if y < height { first..end.max(first) } else { 0..0 };
                // SAFETY: the target is one phase of one row of the copy; source columns are below width.
                unsafe {
                    let target = padded.add(row * layout.row_length() + phase * layout.phase_length);
                    let target_row = std::slice::from_raw_parts_mut(target, layout.phase_length);
                    target_row[..columns.start].fill(0.0);
                    target_row[columns.end..].fill(0.0);
                    let mut q = columns.start;
                    while q < columns.end {
                        let n = S::LANES.min(columns.end - q);
                        let from = plane.add(y * width + q * layout.phases + phase - pw);
                        s.store_up_to(target.add(q), s.load_strided(from, layout.phases, n), n);
                        q += n;
                    }
                }
            }
        }
    }

    /// All output rows of a plane, for a kernel of KH × KW (or any, when zero).
    ///
    /// # Safety
    /// `padded` is the copy of the plane, `out` the output plane.
    #[inline(always)]
    unsafe fn rows<S: Simd, const KH: usize, const KW: usize>(
        &self,
        s: S,
        padded: *const f32,
        layout: &PaddedPlane,
        weights: *const f32,
        bias: f32,
        out: *mut f32,
    ) {
        let [kh, kw] = if KH == 0 { self.geometry.kernel } else { [KH, KW] };
        let ([sh, sw], [dh, dw]) = (self.geometry.stride, self.geometry.dilation);
        let [height, width] = self.extents.output;
        let (low, high) = (s.splat(self.clamp.0), s.splat(self.clamp.1));
        for oy in 0..height {
            for ox in (0..width).step_by(S::LANES) {
                let mut sum = s.splat(bias);
                // SAFETY: window rows and columns lie inside the copy, which has slack for whole vectors.
                unsafe {
                    for ky in 0..kh {
                        let row = padded.add((oy * sh + ky * dh) * layout.row_length() + ox);
                        for kx in 0..kw {
                            let column = kx * dw;
                            let x = s.load(row.add(column % sw * layout.phase_length + column / sw));
                            sum = s.fma(x, s.splat(*weights.add(ky * kw + kx)), sum);
                        }
                    }
                    let n = S::LANES.min(width - ox);
                    s.store_up_to(out.add(oy * width + ox), s.clamp(sum, low, high), n);
                }
            }
        }
    }

    /// One output row of a channels-last tensor.
    ///
    /// # Safety
    /// Output row `unit` (counted over all images) exists.
    #[inline(always)]
    unsafe fn interleaved_row<S: Simd>(&self, s: S, unit: usize) {
        let channels = self.geometry.groups;
        let ([height, width], [out_height, out_width]) = (self.extents.input, self.extents.output);
        let (image, oy) = (unit / out_height, unit % out_height);
        let Geometry { stride, padding, dilation, kernel, .. } = *self.geometry;
        let (low, high) = (s.splat(self.clamp.0), s.splat(self.clamp.1));
        for ox in 0..out_width {
            for c in (0..channels).step_by(S::LANES) {
                let n = S::LANES.min(channels - c);
                // SAFETY: taps outside the image are skipped; channels c..c + n exist.
                unsafe {
                    let mut sum =
                        if self.bias.is_null() { s.zero() } else { s.load_up_to(self.bias.add(c), n) };
                    for ky in 0..kernel[0] {
                        let y = (oy * stride[0] + ky * dilation[0]).wrapping_sub(padding[0]);
                        if y >= height {
                            continue;
                        }
                        for kx in 0..kernel[1] {
                            let x = (ox * stride[1] + kx * dilation[1]).wrapping_sub(padding[1]);
                            if x >= width {
                                continue;
                            }
                            let pixel = (image * height + y) * width + x;
                            let v = s.load_up_to(self.input.add(pixel * channels + c), n);
                            let w = s.load_up_to(self.weights.add((ky * kernel[1] + kx) * channels + c), n);
                            sum = s.fma(v, w, sum);
                        }
                    }
                    let at = (unit * out_width + ox) * channels + c;
                    s.store_up_to(self.out.add(at), s.clamp(sum, low, high), n);
                }
            }
        }
    }
}
