//! What a convolution call says about its window: stride, padding, dilation, groups, and the output
//! extents that follow. Convolutions of one and two dimensions are three-dimensional ones whose leading
//! extents are one.

use pteron_core::{ArgSpec, Dims, Error, PrepareContext, Result};

/// Positions of the arguments of `aten::convolution.out`.
pub const INPUT: usize = 0;
/// See [`INPUT`].
pub const WEIGHT: usize = 1;
/// See [`INPUT`].
pub const BIAS: usize = 2;
const STRIDE: usize = 3;
const PADDING: usize = 4;
const DILATION: usize = 5;
const TRANSPOSED: usize = 6;
const OUTPUT_PADDING: usize = 7;
const GROUPS: usize = 8;
/// See [`INPUT`].
pub const OUT: usize = 9;

/// Largest extent, stride, padding or dilation: products of two of them stay in range.
const LARGEST: usize = i32::MAX as usize;

/// Window and channels of a convolution; (depth, height, width) triples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Spatial dimensions of the tensors: 1, 2 or 3.
    pub spatial_rank: usize,
    /// Kernel extents.
    pub kernel: [usize; 3],
    /// Steps between windows; of the output for a transposed convolution.
    pub stride: [usize; 3],
    /// Zeros before the input, or what is cut off the beginning of a transposed convolution's output.
    pub padding: [usize; 3],
    /// The same behind it; calls of the operator have as much there as before, plans may have other margins.
    pub padding_behind: [usize; 3],
    /// Steps inside a window.
    pub dilation: [usize; 3],
    /// Added to the output of a transposed convolution, at the end.
    pub output_padding: [usize; 3],
    /// Does an input pixel spread over a window of outputs?
    pub is_transposed: bool,
    /// Groups of channels.
    pub groups: usize,
    /// Input channels of a group.
    pub in_channels: usize,
    /// Output channels of a group.
    pub out_channels: usize,
}

/// Extents of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extents {
    /// Images.
    pub images: usize,
    /// Input depth, height and width.
    pub input: [usize; 3],
    /// Output depth, height and width.
    pub output: [usize; 3],
}

impl Extents {
    /// Pixels of an output plane.
    pub fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// Pixels of an input plane.
    pub fn input_pixels(&self) -> usize {
        self.input.iter().product()
    }
}

/// A list of known integers, one per spatial dimension or one for all, as a triple; `fill` stands for
/// the missing leading entries.
fn triple(ctx: &PrepareContext<'_>, i: usize, spatial_rank: usize, fill: usize) -> Option<[usize; 3]> {
    let list = ctx.args.get(i).and_then(ArgSpec::ints)?;
    let mut out = [fill; 3];
    if list.len() != spatial_rank && list.len() != 1 {
        return None;
    }
    for (d, slot) in out[3 - spatial_rank..].iter_mut().enumerate() {
        let v = usize::try_from(*list.get(if list.len() == 1 { 0 } else { d })?).ok()?;
        *slot = (v <= LARGEST).then_some(v)?;
    }
    Some(out)
}

/// The margins before and behind the input: a list with an entry for both, one per spatial dimension or one for all,
/// or, of a plan, all those before and then all those behind.
fn margins(ctx: &PrepareContext<'_>, spatial_rank: usize) -> Option<[[usize; 3]; 2]> {
    let list = ctx.args.get(PADDING).and_then(ArgSpec::ints)?;
    if !has_margins_apart(ctx) {
        return triple(ctx, PADDING, spatial_rank, 0).map(|both| [both; 2]);
    }
    let mut margins = [[0; 3]; 2];
    for (side, values) in margins.iter_mut().zip(list.chunks_exact(spatial_rank)) {
        for (slot, v) in side[3 - spatial_rank..].iter_mut().zip(values) {
            *slot = usize::try_from(*v).ok().filter(|v| *v <= LARGEST)?;
        }
    }
    Some(margins)
}

/// Does the padding list what is before the input and what is behind it, as no call of the operator does?
pub fn has_margins_apart(ctx: &PrepareContext<'_>) -> bool {
    let rank = ctx.tensor(WEIGHT).map_or(0, |w| w.shape.len());
    ctx.args.get(PADDING).and_then(ArgSpec::ints).is_some_and(|l| rank > 2 && l.len() == 2 * (rank - 2))
}

/// The spatial extents of `shape` as a triple.
fn spatial(shape: &Dims) -> [usize; 3] {
    let mut out = [1; 3];
    let rank = shape.len() - 2;
    out[3 - rank..].copy_from_slice(&shape[2..]);
    out
}

impl Geometry {
    /// The geometry of a convolution whose parameters are all known at load; `None` for any other, and
    /// for one that is wrong in itself (the reference kernel says what is wrong).
    pub fn of(ctx: &PrepareContext<'_>) -> Option<Self> {
        let (input, weight) = (ctx.tensor(INPUT)?, ctx.tensor(WEIGHT)?);
        let spatial_rank = weight.shape.len().checked_sub(2).filter(|r| (1..=3).contains(r))?;
        let is_transposed = match ctx.args.get(TRANSPOSED)? {
            ArgSpec::Bool(known) => (*known)?,
            _ => return None,
        };
        let groups = match ctx.args.get(GROUPS)? {
            ArgSpec::Int(known) => usize::try_from((*known)?).ok().filter(|g| *g > 0)?,
            _ => return None,
        };
        if input.shape.len() != weight.shape.len() {
            return None;
        }
        if is_transposed && has_margins_apart(ctx) {
            return None;
        }
        let [padding, padding_behind] = margins(ctx, spatial_rank)?;
        let geometry = Geometry {
            spatial_rank,
            kernel: [1; 3],
            stride: triple(ctx, STRIDE, spatial_rank, 1)?,
            padding,
            padding_behind,
            dilation: triple(ctx, DILATION, spatial_rank, 1)?,
            output_padding: if is_transposed {
                triple(ctx, OUTPUT_PADDING, spatial_rank, 0)?
            } else {
                [0; 3]
            },
            is_transposed,
            groups,
            in_channels: 1,
            out_channels: 1,
        };
        geometry.with_weight(&weight.shape)
    }

    /// The same with window and channels of a weight of this shape; `None` if it does not fit.
    pub fn with_weight(self, weight: &Dims) -> Option<Self> {
        if weight.len() != self.spatial_rank + 2 || !weight[0].is_multiple_of(self.groups) {
            return None;
        }
        let (in_channels, out_channels) = match self.is_transposed {
            true => (weight[0] / self.groups, weight[1]),
            false => (weight[1], weight[0] / self.groups),
        };
        Geometry { kernel: spatial(weight), in_channels, out_channels, ..self }.sound()
    }

    /// The same if it is right in itself: extents, steps and channels positive and of a size whose products stay in range.
    pub(crate) fn sound(self) -> Option<Self> {
        self.is_sound().then_some(self)
    }

    fn is_sound(&self) -> bool {
        let is_positive =
            [self.kernel, self.stride, self.dilation].iter().flatten().all(|v| (1..=LARGEST).contains(v));
        // What is added to a transposed output has to be less than a step, or than the gap in a window.
        let is_small = (0..3).all(|d| self.output_padding[d] < self.stride[d].max(self.dilation[d]));
        is_positive && is_small && self.out_channels > 0 && self.in_channels > 0
    }

    /// Multiplications of one output element (of a transposed convolution: at most).
    pub fn depth(&self) -> usize {
        self.in_channels * self.taps()
    }

    /// Elements of the window.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// All output channels.
    pub fn total_out_channels(&self) -> usize {
        self.out_channels * self.groups
    }

    /// All input channels.
    pub fn total_in_channels(&self) -> usize {
        self.in_channels * self.groups
    }

    /// Input positions from the first to the last element of a window along `d`.
    pub fn reach(&self, d: usize) -> usize {
        (self.kernel[d] - 1) * self.dilation[d]
    }

    /// Extents for an input of `shape`; an error when channels differ or the window does not fit.
    pub fn extents(&self, shape: &Dims) -> Result<Extents> {
        if shape.len() != self.spatial_rank + 2 || shape[1] != self.total_in_channels() {
            return Err(Error::kernel("the input of a convolution has the wrong number of channels")
                .argument("input")
                .expected(format!(
                    "rank {} with {} channels",
                    self.spatial_rank + 2,
                    self.total_in_channels()
                ))
                .got(shape.to_string()));
        }
        let input = spatial(shape);
        let mut output = [1; 3];
        for d in 3 - self.spatial_rank..3 {
            output[d] = self.output_extent(d, input[d])?;
        }
        Ok(Extents { images: shape[0], input, output })
    }

    fn output_extent(&self, d: usize, n: usize) -> Result<usize> {
        let padding = (self.padding[d] + self.padding_behind[d]) as i64;
        let (reach, stride) = (self.reach(d) as i64, self.stride[d] as i64);
        let extent = i64::try_from(n).ok().filter(|n| *n <= LARGEST as i64).map(|n| {
            if self.is_transposed {
                (n - 1) * stride + reach + 1 + self.output_padding[d] as i64 - padding
            } else {
                let room = n + padding - reach - 1;
                if room < 0 { 0 } else { room / stride + 1 }
            }
        });
        extent.filter(|e| *e > 0 && n > 0).map(|e| e as usize).ok_or_else(|| {
            Error::kernel("the window of a convolution is larger than its padded input")
                .expected(format!("at least {} along a spatial dimension", reach + 1))
                .got(format!("{n} with padding {padding}"))
        })
    }

    /// The output shape for `extents`.
    pub fn output_shape(&self, extents: &Extents) -> Result<Dims> {
        let mut shape = Dims::new(&[extents.images, self.total_out_channels()])?;
        for extent in &extents.output[3 - self.spatial_rank..] {
            shape.push(*extent)?;
        }
        Ok(shape)
    }

    /// Is every output pixel a function of the one input pixel at the same place?
    pub fn is_pointwise(&self) -> bool {
        // A transposed one is no different then.
        self.kernel == [1; 3]
            && self.stride == [1; 3]
            && self.padding == [0; 3]
            && self.padding_behind == [0; 3]
            && self.output_padding == [0; 3]
    }
}
