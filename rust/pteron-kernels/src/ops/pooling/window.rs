//! The sliding window of a pooling operator: extents, steps, and which inputs an output covers.

use crate::chunk::CHUNK;
use crate::frame::Split;
use pteron_core::{ArgSpec, Args, DType, Dims, Error, PrepareContext, Result, TensorSpec};

/// A window over images or volumes; (depth, height, width) triples, the depth of an image being one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Spatial dimensions of the tensors: 2 or 3.
    pub rank: usize,
    /// Extents.
    pub kernel: [usize; 3],
    /// Steps between windows.
    pub stride: [usize; 3],
    /// Margin around the input.
    pub padding: [usize; 3],
    /// Steps inside a window.
    pub dilation: [usize; 3],
    /// Round the number of windows up?
    pub is_ceil: bool,
}

/// Extents of one call, images and channels together or apart as the memory order wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extents {
    /// Images.
    pub images: usize,
    /// Channels.
    pub channels: usize,
    /// Input depth, height and width.
    pub input: [usize; 3],
    /// Output depth, height and width.
    pub output: [usize; 3],
}

impl Extents {
    /// Elements of an input plane.
    pub fn input_pixels(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of an output plane.
    pub fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// The output shape for tensors of `rank` spatial dimensions.
    pub fn output_shape(&self, rank: usize) -> Result<Dims> {
        let mut shape = Dims::new(&[self.images, self.channels])?;
        for extent in &self.output[3 - rank..] {
            shape.push(*extent)?;
        }
        Ok(shape)
    }
}

/// The spatial extents of `shape` as a triple.
pub fn spatial(shape: &Dims, rank: usize) -> [usize; 3] {
    let mut out = [1; 3];
    out[3 - rank..].copy_from_slice(&shape[2..]);
    out
}

/// Largest parameter: products of two stay in range.
const LARGEST: i64 = i32::MAX as i64;

/// A list of known integers at `i`, one for all or one for each of `rank` dimensions, behind `fill`; `None` when
/// unknown or out of range, `empty` when the list is empty.
fn triple(
    ctx: &PrepareContext<'_>,
    i: usize,
    rank: usize,
    fill: usize,
    empty: Option<[usize; 3]>,
) -> Option<[usize; 3]> {
    let list = ctx.args.get(i).and_then(ArgSpec::ints)?;
    if list.is_empty() {
        return empty;
    }
    let mut out = [fill; 3];
    if list.len() != 1 && list.len() != rank {
        return None;
    }
    for (d, slot) in out[3 - rank..].iter_mut().enumerate() {
        let v = *list.get(if list.len() == 1 { 0 } else { d })?;
        *slot = usize::try_from(v).ok().filter(|_| v <= LARGEST)?;
    }
    Some(out)
}

impl Window {
    /// The window of an operator with kernel, stride and padding at 1, 2 and 3, when all are known.
    pub fn of(
        ctx: &PrepareContext<'_>,
        rank: usize,
        dilation_at: Option<usize>,
        ceil_at: usize,
    ) -> Option<Self> {
        let kernel = triple(ctx, 1, rank, 1, None)?;
        let stride = triple(ctx, 2, rank, 1, Some(kernel))?;
        let padding = triple(ctx, 3, rank, 0, None)?;
        let dilation = dilation_at.map_or(Some([1; 3]), |i| triple(ctx, i, rank, 1, None))?;
        let is_ceil = match ctx.args.get(ceil_at)? {
            ArgSpec::Bool(known) => (*known)?,
            _ => return None,
        };
        let window = Window { rank, kernel, stride, padding, dilation, is_ceil };
        let is_sound = [kernel, stride, dilation].iter().flatten().all(|v| *v > 0)
            && (0..3).all(|d| window.padding[d] * 2 <= kernel[d]);
        is_sound.then_some(window)
    }

    /// Extents for an input of `shape` (batch, channels, spatial).
    pub fn extents(&self, shape: &Dims) -> Result<Extents> {
        let input = spatial(shape, self.rank);
        if shape[1..].contains(&0) {
            return Err(Error::kernel("only the batch of what is pooled may be empty").got(shape.to_string()));
        }
        let mut output = [1; 3];
        for d in 3 - self.rank..3 {
            let (n, p, s) = (input[d], self.padding[d], self.stride[d]);
            let reach = self.dilation[d] * (self.kernel[d] - 1) + 1;
            let padded = n + 2 * p;
            // Rounding up, the last window may reach beyond the input, and so may the only one.
            let steps = match padded.checked_sub(reach) {
                Some(room) if self.is_ceil => Some(room.div_ceil(s)),
                Some(room) => Some(room / s),
                None => (self.is_ceil && n > 0 && reach - padded < s).then_some(0),
            };
            let steps = steps.ok_or_else(|| {
                Error::kernel("the window of a pooling operator is larger than its padded input")
                    .expected(format!("at least {reach} along a spatial dimension"))
                    .got(format!("{n} with padding {p}"))
            })?;
            // The last window has to start inside the input or its leading margin.
            output[d] = if self.is_ceil && steps * s >= n + p { steps } else { steps + 1 };
        }
        Ok(Extents { images: shape[0], channels: shape[1], input, output })
    }

    /// For tap `k` of dimension `d`: the outputs whose input position lies inside, as a range, and the input
    /// position of the first of them.
    #[inline(always)]
    pub fn covered(&self, extents: &Extents, d: usize, k: usize) -> (std::ops::Range<usize>, usize) {
        let (s, p, at) = (self.stride[d], self.padding[d], k * self.dilation[d]);
        let first = p.saturating_sub(at).div_ceil(s);
        let end = (extents.input[d] + p).saturating_sub(at).div_ceil(s).min(extents.output[d]);
        (first..end.max(first), (first * s + at).wrapping_sub(p))
    }

    /// The first input position of output `o` along dimension `d`, margins skipped.
    #[inline(always)]
    pub fn first_position(&self, d: usize, o: usize) -> usize {
        let (at, p) = (o * self.stride[d], self.padding[d]);
        if at >= p { at - p } else { at + (p - at).div_ceil(self.dilation[d]) * self.dilation[d] - p }
    }

    /// The input position of tap `k` of output `o` along dimension `d`, if it lies inside.
    #[inline(always)]
    pub fn position(&self, extents: &Extents, d: usize, o: usize, k: usize) -> Option<usize> {
        let at = (o * self.stride[d] + k * self.dilation[d]).wrapping_sub(self.padding[d]);
        (at < extents.input[d]).then_some(at)
    }
}

/// Which inputs the outputs of a pooling operator cover.
#[derive(Debug, Clone, Copy)]
pub enum Windows {
    /// A window that slides.
    Fixed(Window),
    /// As many windows as asked for: ⌊o·n/m⌋..⌈(o+1)·n/m⌉.
    Adaptive,
}

/// Input positions of a window along one dimension: from `start` by `step`, below `end`.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    pub start: usize,
    pub end: usize,
    pub step: usize,
}

impl Stretch {
    /// The positions.
    #[inline(always)]
    pub fn positions(self) -> impl Iterator<Item = usize> + Clone {
        (self.start..self.end).step_by(self.step)
    }
}

impl Windows {
    /// Positions of window `o` along dimension `d` that lie inside the input.
    #[inline(always)]
    pub fn stretch(&self, extents: &Extents, d: usize, o: usize) -> Stretch {
        let n = extents.input[d];
        match self {
            Windows::Fixed(window) => {
                let last = o * window.stride[d] + window.dilation[d] * (window.kernel[d] - 1) + 1;
                let end = last.saturating_sub(window.padding[d]).min(n);
                Stretch { start: window.first_position(d, o), end, step: window.dilation[d] }
            }
            Windows::Adaptive => {
                let m = extents.output[d];
                Stretch { start: o * n / m, end: ((o + 1) * n).div_ceil(m), step: 1 }
            }
        }
    }

    /// First places of the lines of a plane that windows of output row (oz, oy) cover, in order.
    #[inline(always)]
    pub fn lines(&self, extents: &Extents, [oz, oy]: [usize; 2]) -> impl Iterator<Item = usize> + Clone {
        let [_, height, width] = extents.input;
        let (z, y) = (self.stretch(extents, 0, oz), self.stretch(extents, 1, oy));
        z.positions().flat_map(move |z| y.positions().map(move |y| (z * height + y) * width))
    }

    /// Inputs of an output, about.
    pub fn reads(&self, extents: &Extents) -> usize {
        match self {
            Windows::Fixed(window) => window.kernel.iter().fold(1, |all, k| all.saturating_mul(*k)),
            Windows::Adaptive => {
                (0..3).map(|d| extents.input[d].div_ceil(extents.output[d].max(1))).product()
            }
        }
    }

    /// Extents of an adaptive operator, whose output size is argument 1, for an input of `shape`.
    pub fn adaptive_extents(args: &Args<'_>, shape: &Dims, rank: usize) -> Result<Extents> {
        let size = args.int_list(1)?.to_dims()?;
        if size.len() != rank {
            return Err(Error::kernel("output_size needs one extent per spatial dimension")
                .expected(rank.to_string())
                .got(size.to_string()));
        }
        let (input, mut output) = (spatial(shape, rank), [1; 3]);
        output[3 - rank..].copy_from_slice(&size);
        Ok(Extents { images: shape[0], channels: shape[1], input, output })
    }
}

/// Channels-last? `None` unless `specs` are tensors of `dtype` with `rank` spatial dimensions, all row-major or all
/// channels-last.
pub fn common_order(specs: &[Option<&TensorSpec>], dtype: DType, rank: usize) -> Option<bool> {
    let first = (*specs.first()?)?;
    let is_interleaved = first.dim_order.is_channels_last();
    let is_alike = |t: &Option<&TensorSpec>| {
        t.is_some_and(|t| t.shape.len() == rank + 2 && t.dtype == dtype && t.dim_order == first.dim_order)
    };
    (specs.iter().all(is_alike) && (is_interleaved || first.dim_order.is_contiguous()))
        .then_some(is_interleaved)
}

/// The shape of argument 0.
pub fn input_shape(args: &Args<'_>) -> Result<Dims> {
    Ok(*args.tensor(0)?.shape())
}

/// How the outputs of a call split: units are planes, or output rows of all images when channels-last. An output has `reads`
/// inputs, about, each of which takes `ns` nanoseconds.
pub fn split(extents: &Extents, is_interleaved: bool, reads: usize, ns: f64) -> Split {
    let [depth, height, width] = extents.output;
    let (units, size) = match is_interleaved {
        true => (extents.images * depth * height, width * extents.channels),
        false => (extents.images * extents.channels, extents.pixels()),
    };
    if units * size == 0 {
        Split::NONE
    } else {
        Split::sized(units, size.saturating_mul(reads.max(1)), CHUNK, ns)
    }
}

/// The elements of a chunk's tensors: an error unless `input` and `out` have those of `extents`.
pub fn check_sizes(extents: &Extents, input: usize, out: usize) -> Result<()> {
    let planes = extents.images * extents.channels;
    if input < planes * extents.input_pixels() || out < planes * extents.pixels() {
        return Err(Error::internal("a pooling operator would leave its tensors"));
    }
    Ok(())
}

/// The output rows of a unit, as (image or plane, depth, height).
pub fn rows_of_unit(
    extents: &Extents,
    unit: usize,
    is_interleaved: bool,
) -> impl Iterator<Item = [usize; 3]> {
    let [depth, height, _] = extents.output;
    let per_unit = if is_interleaved { 1 } else { depth * height };
    let first = unit * per_unit;
    let rows = (depth * height).max(1);
    (first..first + per_unit).map(move |r| [r / rows, r / height.max(1) % depth.max(1), r % height.max(1)])
}
