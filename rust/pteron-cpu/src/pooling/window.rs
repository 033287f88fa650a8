//! The sliding window of a pooling operator: extents, steps, and which inputs an output covers.

use pteron_core::{ArgSpec, Args, DType, Dims, Error, PrepareContext, Result, TensorSpec};

/// A two-dimensional window; (vertical, horizontal) pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Extents.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Margin around the input.
    pub padding: [usize; 2],
    /// Steps inside a window.
    pub dilation: [usize; 2],
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
    /// Input height and width.
    pub input: [usize; 2],
    /// Output height and width.
    pub output: [usize; 2],
}

/// A list of one or two known integers at `i`; `None` when unknown, `empty` when the list is empty.
fn pair(ctx: &PrepareContext<'_>, i: usize, empty: Option<[usize; 2]>) -> Option<[usize; 2]> {
    let list = ctx.args.get(i).and_then(ArgSpec::ints)?;
    let get = |j: usize| usize::try_from(*list.get(j)?).ok();
    match list.len() {
        0 => empty,
        1 => Some([get(0)?; 2]),
        2 => Some([get(0)?, get(1)?]),
        _ => None,
    }
}

impl Window {
    /// The window of an operator with kernel, stride and padding at 1, 2 and 3, when all are known.
    pub fn of(ctx: &PrepareContext<'_>, dilation_at: Option<usize>, ceil_at: usize) -> Option<Self> {
        let kernel = pair(ctx, 1, None)?;
        let stride = pair(ctx, 2, Some(kernel))?;
        let dilation = dilation_at.map_or(Some([1, 1]), |i| pair(ctx, i, None))?;
        let is_ceil = match ctx.args.get(ceil_at)? {
            ArgSpec::Bool(known) => (*known)?,
            _ => return None,
        };
        let window = Window { kernel, stride, padding: pair(ctx, 3, None)?, dilation, is_ceil };
        let is_sound = [kernel, stride, dilation].iter().flatten().all(|v| *v > 0)
            && (0..2).all(|d| window.padding[d] * 2 <= kernel[d]);
        is_sound.then_some(window)
    }

    /// Extents for an input of `shape` (rank 4).
    pub fn extents(&self, shape: &Dims) -> Result<Extents> {
        let mut output = [0; 2];
        for d in 0..2 {
            let (n, p, s) = (shape[2 + d], self.padding[d], self.stride[d]);
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
        Ok(Extents { images: shape[0], channels: shape[1], input: [shape[2], shape[3]], output })
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

/// Channels-last? `None` unless `specs` are f32 tensors of rank 4, all row-major or all channels-last.
pub fn common_order(specs: &[Option<&TensorSpec>]) -> Option<bool> {
    let first = (*specs.first()?)?;
    let is_interleaved = first.dim_order.is_channels_last();
    let is_alike = |t: &Option<&TensorSpec>| {
        t.is_some_and(|t| t.shape.len() == 4 && t.dtype == DType::Float32 && t.dim_order == first.dim_order)
    };
    (specs.iter().all(is_alike) && (is_interleaved || first.dim_order.is_contiguous()))
        .then_some(is_interleaved)
}

/// The shape of argument 0.
pub fn input_shape(args: &Args<'_>) -> Result<Dims> {
    Ok(*args.tensor(0)?.shape())
}

/// How a call splits: planes (or output rows when channels-last) per chunk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Units {
    /// Extents of the call.
    pub extents: Extents,
    /// Planes, or output rows of all images.
    pub count: usize,
    /// Units of a chunk.
    pub per_chunk: usize,
    /// Input elements of a unit, about.
    pub size: usize,
}

impl Units {
    /// Splits `extents` into chunks of about 16k outputs.
    pub fn new(extents: Extents, is_interleaved: bool) -> Self {
        let [height, width] = extents.output;
        let (count, size) = match is_interleaved {
            true => (extents.images * height, width * extents.channels),
            false => (extents.images * extents.channels, height * width),
        };
        Units { extents, count, per_chunk: (16usize << 10).div_ceil(size.max(1)), size }
    }

    /// Units of chunk `chunk`.
    pub fn range(&self, chunk: u32) -> std::ops::Range<usize> {
        let first = chunk as usize * self.per_chunk;
        first..(first + self.per_chunk).min(self.count)
    }

    /// The grid, `ns` being the cost of 16 outputs.
    pub fn grid(&self, ns: usize) -> pteron_core::Grid {
        if self.count * self.size == 0 {
            return pteron_core::Grid::EMPTY;
        }
        let work = self.per_chunk.min(self.count) * self.size * ns / 16;
        pteron_core::Grid::chunks(self.count.div_ceil(self.per_chunk), work)
    }
}
