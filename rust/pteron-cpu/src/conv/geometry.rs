//! What a convolution call says about its window: stride, padding, dilation, groups, and the output
//! extents that follow. One-dimensional convolutions are two-dimensional ones of height one.

use pteron_core::{ArgSpec, Dims, Error, PrepareContext, Result};

/// Positions of the arguments of `aten::convolution.out`.
pub const INPUT: usize = 0;
/// See [`INPUT`].
pub const WEIGHT: usize = 1;
/// See [`INPUT`].
pub const BIAS: usize = 2;
/// See [`INPUT`].
pub const OUT: usize = 9;
const STRIDE: usize = 3;
const PADDING: usize = 4;
const DILATION: usize = 5;
const TRANSPOSED: usize = 6;
const GROUPS: usize = 8;

/// Window and channels of a convolution; (vertical, horizontal) pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Spatial dimensions of the tensors: 1 or 2.
    pub spatial_rank: usize,
    /// Kernel extents.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Zeros around the input.
    pub padding: [usize; 2],
    /// Steps inside a window.
    pub dilation: [usize; 2],
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
    /// Input height and width.
    pub input: [usize; 2],
    /// Output height and width.
    pub output: [usize; 2],
}

impl Extents {
    /// Pixels of an output plane.
    pub fn pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }
}

/// A list of one or two known integers as a (vertical, horizontal) pair; `fill` stands for the missing
/// vertical entry of one-dimensional convolutions.
fn pair(ctx: &PrepareContext<'_>, i: usize, spatial_rank: usize, fill: usize) -> Option<[usize; 2]> {
    let list = ctx.args.get(i).and_then(ArgSpec::ints)?;
    let get = |j: usize| usize::try_from(*list.get(j)?).ok();
    match (spatial_rank, list.len()) {
        (1, 1) => Some([fill, get(0)?]),
        (2, 1) => Some([get(0)?; 2]),
        (2, 2) => Some([get(0)?, get(1)?]),
        _ => None,
    }
}

impl Geometry {
    /// The geometry of a plain (not transposed) convolution whose parameters are all known at load;
    /// `None` for any other.
    pub fn of(ctx: &PrepareContext<'_>) -> Option<Self> {
        let (input, weight) = (ctx.tensor(INPUT)?, ctx.tensor(WEIGHT)?);
        let spatial_rank = weight.shape.len().checked_sub(2).filter(|r| matches!(r, 1 | 2))?;
        if input.shape.len() != weight.shape.len()
            || !matches!(ctx.args.get(TRANSPOSED), Some(ArgSpec::Bool(Some(false))))
        {
            return None;
        }
        let groups = usize::try_from(ctx.args.get(GROUPS)?.number()? as i64).ok().filter(|g| *g > 0)?;
        let kernel = match spatial_rank {
            1 => [1, weight.shape[2]],
            _ => [weight.shape[2], weight.shape[3]],
        };
        let geometry = Geometry {
            spatial_rank,
            kernel,
            stride: pair(ctx, STRIDE, spatial_rank, 1)?,
            padding: pair(ctx, PADDING, spatial_rank, 0)?,
            dilation: pair(ctx, DILATION, spatial_rank, 1)?,
            groups,
            in_channels: weight.shape[1],
            out_channels: weight.shape[0] / groups,
        };
        let is_sound = [geometry.kernel, geometry.stride, geometry.dilation].iter().flatten().all(|v| *v > 0)
            && weight.shape[0] % groups == 0
            && geometry.out_channels > 0
            && geometry.in_channels > 0;
        is_sound.then_some(geometry)
    }

    /// Multiplications of one output element.
    pub fn depth(&self) -> usize {
        self.in_channels * self.kernel[0] * self.kernel[1]
    }

    /// All output channels.
    pub fn total_out_channels(&self) -> usize {
        self.out_channels * self.groups
    }

    /// All input channels.
    pub fn total_in_channels(&self) -> usize {
        self.in_channels * self.groups
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
        let input = if self.spatial_rank == 1 { [1, shape[2]] } else { [shape[2], shape[3]] };
        let mut output = [0; 2];
        for d in 0..2 {
            let window = self.dilation[d] * (self.kernel[d] - 1) + 1;
            let room = (input[d] + 2 * self.padding[d]).checked_sub(window).ok_or_else(|| {
                Error::kernel("the window of a convolution is larger than its padded input")
                    .expected(format!("at least {window} along a spatial dimension"))
                    .got(format!("{} with padding {}", input[d], self.padding[d]))
            })?;
            output[d] = room / self.stride[d] + 1;
        }
        Ok(Extents { images: shape[0], input, output })
    }

    /// The output shape for `extents`.
    pub fn output_shape(&self, extents: &Extents) -> Result<Dims> {
        let mut shape = Dims::new(&[extents.images, self.total_out_channels()])?;
        if self.spatial_rank == 2 {
            shape.push(extents.output[0])?;
        }
        shape.push(extents.output[1])?;
        Ok(shape)
    }

    /// Is every output pixel a function of the one input pixel at the same place?
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }
}
