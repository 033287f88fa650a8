//! The convolution kernel: the window of each output pixel is a row, and rows times packed weights is a product. Tensors
//! that lie in channel planes are brought into channels-last order in phases of their own. Unsafe island.
#![allow(unsafe_code, reason = "rows are addressed by stride, and chunks share the result")]

use super::columns::Numbers;
use super::gather::{Gather, Source};
use super::kit::Kit;
use super::planes::{Phase, Reordered, Tensors};
use super::product::{Group, Product, Rows, Split, Target, row_stride};
use super::window::{Call, summand_of};
use crate::conv::geometry::Extents;
use crate::packed::s8_nr32k4_v1::{FORMAT, Panels, QUAD};
use pteron_core::{Args, BindArgs, ConstantView, Dims, Error, Grid, PrepareContext, Result, Scratch};
use pteron_kernels::grid_kernel::{GridKernel, Part, Preparation, prepared};

/// Groups at most: each has packed weights of its own.
const MOST_GROUPS: usize = 64;
/// Bytes of a row at most up to which rows of a block lie without gaps, where they do so in the input: longer ones could
/// push each other out of the first-level cache.
const SHORT_ROW: usize = 256;

struct Convolution {
    product: Product,
    /// Bytes between the rows of a block.
    stride: usize,
    call: Call,
    reordered: Reordered,
}

/// A bound call.
#[derive(Clone, Copy, Default)]
struct Bound {
    split: Split,
    extents: Extents,
}

/// Prepares a convolution; `None` where the kernel does not take the arguments.
pub(super) fn prepare(
    ctx: &PrepareContext<'_>,
    call: Call,
    numbers: Numbers,
    kit: &'static Kit,
) -> Preparation {
    let geometry = call.geometry;
    if geometry.groups > MOST_GROUPS {
        return Ok(None);
    }
    let Some(weight) = ctx.args.get(1).and_then(|a| a.constant()) else {
        return Ok(None);
    };
    let n = geometry.out_channels;
    let mut groups = Vec::with_capacity(geometry.groups);
    for g in 0..geometry.groups {
        let panels = Panels::get_or_pack(ctx.packs, ctx.cpu, &outputs_last(weight, g, n)?)?;
        let columns = numbers.columns(g * n..(g + 1) * n, kit.shift, |c| panels.sum(c))?;
        groups.push(Group { panels, columns });
    }
    let reordered = Reordered::new(ctx, call, &numbers)?;
    let kind = if geometry.is_pointwise() { "pointwise" } else { "window" };
    let behind = if call.summand.is_some() { "+residual" } else { "" };
    let name = format!("integer.convolution.{FORMAT}.{kind}.{}{behind}", kit.name);
    let k = geometry.depth();
    let is_dense =
        geometry.is_pointwise() && geometry.groups == 1 && k.is_multiple_of(QUAD) && k <= SHORT_ROW;
    let stride = if is_dense { k } else { row_stride(k) };
    let product = Product { kit, numbers, groups, n, k };
    prepared(name, Convolution { product, stride, call, reordered })
}

/// The weights of group `g`, [O, I, spatial], as [spatial, I, O].
fn outputs_last<'a>(weight: &ConstantView<'a>, g: usize, outputs: usize) -> Result<ConstantView<'a>> {
    let mut view = *weight;
    let reorder = |from: &Dims, output: usize| {
        let mut to = Dims::new(&from[2..])?;
        to.push(from[1])?;
        to.push(output)?;
        Ok::<Dims, Error>(to)
    };
    view.offset = weight.offset + g * outputs * weight.strides[0];
    view.shape = reorder(&weight.shape, outputs)?;
    view.strides = reorder(&weight.strides, weight.strides[0])?;
    Ok(view)
}

impl Convolution {
    /// Computes a chunk of the product.
    fn multiply(
        &self,
        bound: &Bound,
        args: &Args<'_>,
        chunk: usize,
        shared: *mut u8,
        block: &mut [u8],
    ) -> Result<()> {
        let (product, geometry) = (&self.product, &self.call.geometry);
        let (stride, block) = (self.stride, block.as_mut_ptr());
        let chunk = bound.split.chunk(chunk);
        let out_stride = geometry.total_out_channels() * product.numbers.out_bytes();
        let Tensors { input, flip, out } = self.reordered.tensors(args, shared)?;
        let summand = summand_of(args, self.call.summand)?;
        let channels = geometry.total_in_channels();
        let bytes = bound.extents.images * bound.extents.input_pixels() * channels;
        let source = match geometry.is_pointwise() {
            true => Source::Rows(channels),
            false => Source::Windows(geometry, &bound.extents),
        };
        for rows in bound.split.blocks(&chunk.tiles) {
            let gather = Gather {
                source,
                input: input.wrapping_add(chunk.group * geometry.in_channels),
                readable: bytes - chunk.group * geometry.in_channels,
                length: product.k,
                flip,
                zero: product.numbers.zero as u8,
                first: rows.start,
                count: rows.len(),
                to: product.bytes_of(block),
                stride,
            };
            let first = rows.start * out_stride;
            let target = Target {
                out: out.wrapping_add(first),
                stride: out_stride,
                summand: summand.wrapping_add(first),
            };
            let rows = Rows { first: gather.to, stride, count: rows.len(), parameters: None };
            // SAFETY: the input has the windows of these pixels (`bind` computed the extents from its shape), the scratch
            // room for a block of rows, whole quads of them since rows are multiples of a quad apart; the output has
            // a row of all channels for each pixel and overlaps nothing (alias rule `None`), and so has a summand, which `bind`
            // compared with it; the kit is one of this processor.
            unsafe {
                (product.kit.gather)(&gather);
                let rows = product.widened(rows, block);
                product.run(chunk.group, rows, chunk.panels.clone(), target);
            }
        }
        Ok(())
    }
}

impl GridKernel for Convolution {
    type Problem = Bound;

    fn scratch(&self) -> Scratch {
        Scratch { per_worker: self.product.block_bytes(), shared: self.reordered.shared_bytes() }
    }

    fn needs(&self, index: usize) -> bool {
        index == 0 || index == self.call.out || Some(index) == self.call.summand
    }

    fn new_problem(&self) -> Bound {
        Bound::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, bound: &mut Bound) -> Result<Grid> {
        let extents = self.call.bind(args)?;
        let rows = extents.images * extents.pixels();
        let [before, behind] = self.reordered.chunks(&extents)?;
        *bound = Bound { split: Split::new(&self.product, rows), extents };
        Ok(bound.split.grid(before, behind))
    }

    fn run(&self, bound: &Bound, mut part: Part<'_>) -> Result<()> {
        let (args, shared) = (part.args, part.scratch.shared);
        let phase = self.reordered.phase(part.phase);
        if phase != Phase::Compute {
            // SAFETY: `bind` asked for the chunks of these extents, the frame gives the shared scratch that was asked for, and
            // runs phases in order.
            return unsafe { self.reordered.run(&phase, args, &bound.extents, part.chunk, shared) };
        }
        let block = part.take_scratch(self.product.block_bytes())?;
        self.multiply(bound, args, part.chunk, shared, block)
    }
}
