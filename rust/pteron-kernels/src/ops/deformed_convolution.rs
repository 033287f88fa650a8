//! torchvision's deform_conv2d: a convolution whose pixels are read at places that are data.
//!
//! Shape: input `[N, C, H, W]`, weight `[O, C / groups, h, w]`, offsets `[N, 2 * offset_groups * h * w, oh, ow]` (down, then
//! across), mask `[N, offset_groups * h * w, oh, ow]` where `use_mask`, bias `[O]` give `[N, O, oh, ow]`. Dtype: float32,
//! float64, and float16, which is computed in float32; all alike. Edge cases: pixels outside of the image are zero, also
//! for offsets that are infinite; a place that is NaN gives NaN.
//!
//! Places and weights of a block of output pixels are found once for all channels that share them; what is read there
//! becomes the columns of a matrix, which the weights multiply in tiles of registers.

use crate::elements::{Reader, Writer};
use crate::frame::Split;
use crate::grid_kernel::{GridKernel, Part, Preparation, prepared, take_scratch};
use crate::operator::{Operator, kernel};
use crate::ops::layout::same_dtype;
use crate::ops::real::Real;
use crate::ops::tile_product::{TALL, TileProduct, WIDTH};
use crate::routine::dtype_of;
use crate::shape::{check_rank, check_same};
use crate::vector_math::{Simd, SimdLevel, SimdTask};
use pteron_core::{Args, BindArgs, DType, Error, Grid, PrepareContext, Result, Scratch};

mod weights;

use weights::Packed;

const OUT: usize = 14;
/// Rows of columns that are added up before they are added to the rest: shorter sums are more accurate.
const DEPTH: usize = 128;
/// Bytes of the columns of a block, about, unless it is one tile wide.
const COLUMN_BYTES: usize = 256 << 10;
/// Most tiles of a block.
const MOST_TILES: usize = 8;

/// The bound shapes.
#[derive(Debug, Clone, Copy, Default)]
struct Problem {
    batch: usize,
    channels: usize,
    image: [usize; 2],
    outputs: usize,
    window: [usize; 2],
    out: [usize; 2],
    stride: [i64; 2],
    pad: [i64; 2],
    dilation: [i64; 2],
    groups: usize,
    offset_groups: usize,
    has_mask: bool,
    split: Split,
    /// Output pixels of a block.
    block: usize,
}

impl Problem {
    fn of(args: &Args<'_>) -> Result<Problem> {
        let (input, weight, offsets) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
        check_rank("the image", 4, input.shape()).map_err(|e| e.argument("input"))?;
        check_rank("the weight", 4, weight.shape()).map_err(|e| e.argument("weight"))?;
        let number = |i: usize, name: &str, least: i64| {
            let n = args.int(i)?;
            if (least..=i64::from(i32::MAX)).contains(&n) {
                return Ok(n);
            }
            Err(Error::kernel("a value is out of range")
                .argument(name)
                .expected(format!("between {least} and {}", i32::MAX))
                .got(n.to_string()))
        };
        let (x, w) = (input.shape(), weight.shape());
        let mut p = Problem {
            batch: x[0],
            channels: x[1],
            image: [x[2], x[3]],
            outputs: w[0],
            window: [w[2], w[3]],
            stride: [number(5, "stride_h", 1)?, number(6, "stride_w", 1)?],
            pad: [number(7, "pad_h", 0)?, number(8, "pad_w", 0)?],
            dilation: [number(9, "dilation_h", 1)?, number(10, "dilation_w", 1)?],
            groups: number(11, "groups", 1)? as usize,
            offset_groups: number(12, "offset_groups", 1)? as usize,
            has_mask: args.bool(13)?,
            ..Problem::default()
        };
        for d in 0..2 {
            p.out[d] = p.extent(d)?;
        }
        let fits = w[1].checked_mul(p.groups) == Some(p.channels)
            && p.outputs.is_multiple_of(p.groups)
            && p.channels.is_multiple_of(p.offset_groups);
        if !fits || p.channels == 0 {
            return Err(Error::kernel("groups, offset groups, channels and weight do not fit together")
                .argument("weight")
                .expected("channels that are a multiple of both, of which the weight has those of a group")
                .got(format!(
                    "{} groups, {} offset groups, input {x}, weight {w}",
                    p.groups, p.offset_groups
                )));
        }
        let places = p.offset_groups.saturating_mul(p.taps());
        let of = |each: usize| [p.batch, places.saturating_mul(each), p.out[0], p.out[1]];
        check_same("the tensor of offsets", &of(2), offsets.shape()).map_err(|e| e.argument("offset"))?;
        if p.has_mask {
            check_same("the mask", &of(1), args.tensor(3)?.shape()).map_err(|e| e.argument("mask"))?;
        }
        check_same("the bias", &[p.outputs], args.tensor(4)?.shape()).map_err(|e| e.argument("bias"))?;
        Ok(p)
    }

    /// Output pixels along a dimension.
    fn extent(&self, d: usize) -> Result<usize> {
        let (image, window) = (self.image[d] as i64, self.window[d] as i64);
        let reach = (window - 1).saturating_mul(self.dilation[d]).saturating_add(1);
        let room = image.saturating_add(2 * self.pad[d]).saturating_sub(reach);
        if window < 1 || room < 0 {
            return Err(Error::kernel("the weight does not fit into the image")
                .argument("input")
                .expected(format!("at least {reach} pixels with padding"))
                .got(format!("{image} and {} of padding on both sides", self.pad[d])));
        }
        Ok((room / self.stride[d]) as usize + 1)
    }

    /// Places of a window.
    fn taps(&self) -> usize {
        self.window[0].saturating_mul(self.window[1])
    }

    /// Rows of the matrix of columns, of all groups.
    fn rows(&self) -> usize {
        self.channels.saturating_mul(self.taps())
    }

    /// Output pixels of an image.
    fn pixels(&self) -> usize {
        self.out[0] * self.out[1]
    }
}

/// Output pixels of a block, for so many rows of columns of elements of `size` bytes.
fn block_of(rows: usize, size: usize) -> usize {
    let tiles = COLUMN_BYTES / rows.saturating_mul(WIDTH * size).max(1);
    tiles.clamp(1, MOST_TILES) * WIDTH
}

/// Where one place of the window lies for every pixel of a block: weights of four neighbours, where they are in a plane, and
/// which of them are there.
struct Places<'s, T> {
    weights: [&'s mut [T]; 4],
    offsets: &'s mut [[u32; 4]],
    present: &'s mut [u32],
    factors: &'s mut [T],
}

/// All four neighbours are there.
const WHOLE: u32 = 15;

/// What a block of output pixels is computed from.
struct Block<'a, 's, T: Real> {
    p: &'a Problem,
    input: Reader<'a, T>,
    /// The input's elements, if they are numbers as they lie.
    direct: Option<&'a [T]>,
    weight: Reader<'a, T>,
    offset: Reader<'a, T>,
    mask: Option<Reader<'a, T>>,
    bias: Reader<'a, T>,
    out: Writer<'a, T>,
    image: usize,
    first: usize,
    pixels: usize,
    columns: &'s mut [T],
    tile: &'s mut [T],
    /// The weights of all tiles, where they are known at load.
    packed: Option<&'a [T]>,
    places: Places<'s, T>,
}

impl<T: TileProduct> Block<'_, '_, T> {
    /// The places of `tap` in offset group `group`.
    #[inline(always)]
    fn find(&mut self, group: usize, tap: usize) -> Result<()> {
        let p = self.p;
        let at = |strides: &[usize], channel: usize, [y, x]: [usize; 2]| {
            self.image * strides[0] + channel * strides[1] + y * strides[2] + x * strides[3]
        };
        let (down, across) = (tap / p.window[1], tap % p.window[1]);
        let place = group * p.taps() + tap;
        let steps = self.input.meta().strides();
        for i in 0..self.pixels {
            let pixel = self.first + i;
            let spot = [pixel / p.out[1], pixel % p.out[1]];
            let moved = |d: usize, tap: usize| -> Result<T> {
                let start = spot[d] as i64 * p.stride[d] - p.pad[d] + tap as i64 * p.dilation[d];
                let offset = self.offset.get(at(self.offset.meta().strides(), 2 * place + d, spot))?;
                Ok(T::from_i64(start) + offset)
            };
            let (y, x) = (moved(0, down)?, moved(1, across)?);
            if let Some(mask) = &self.mask {
                self.places.factors[i] = mask.get(at(mask.meta().strides(), place, spot))?;
            }
            let (rows, columns) = (neighbours(y, p.image[0]), neighbours(x, p.image[1]));
            let mut present = 0;
            for corner in 0..4 {
                let (row, column) = (rows[corner / 2], columns[corner % 2]);
                self.places.weights[corner][i] = row.1 * column.1;
                let pixel = row.0.zip(column.0).map(|(r, c)| r * steps[2] + c * steps[3]);
                present |= u32::from(pixel.is_some()) << corner;
                self.places.offsets[i][corner] = pixel.unwrap_or(0) as u32;
            }
            self.places.present[i] = present;
        }
        Ok(())
    }

    /// Reads a channel at the places: one row of columns.
    #[inline(always)]
    fn read(&mut self, channel: usize, row: usize) -> Result<()> {
        let steps = self.input.meta().strides();
        let base = self.image * steps[0] + channel * steps[1];
        let width = self.columns.len() / self.p.rows();
        let to = &mut self.columns[row * width..][..width];
        let Places { weights, offsets, present, factors } = &self.places;
        // One pixel and its neighbours: absent ones count as zeros, and a place that is NaN makes NaN of them.
        let sum = |i: usize, fetch: &dyn Fn(usize) -> Result<T>| -> Result<T> {
            let mut sum = T::ZERO;
            for corner in 0..4 {
                let there = present[i] >> corner & 1 != 0;
                let value = if there { fetch(base + offsets[i][corner] as usize)? } else { T::ZERO };
                sum += weights[corner][i] * value;
            }
            Ok(sum)
        };
        match self.direct.and_then(|all| all.get(base..)) {
            Some(plane) => {
                for i in 0..self.pixels {
                    to[i] = if present[i] == WHOLE {
                        let value = |corner: usize| weights[corner][i] * plane[offsets[i][corner] as usize];
                        value(0) + value(1) + value(2) + value(3)
                    } else {
                        sum(i, &|at| Ok(plane[at - base]))?
                    };
                }
            }
            None => {
                for (i, to) in to.iter_mut().enumerate().take(self.pixels) {
                    *to = sum(i, &|at| self.input.get(at))?;
                }
            }
        }
        if self.mask.is_some() {
            to.iter_mut().zip(factors.iter()).take(self.pixels).for_each(|(to, factor)| *to = *to * *factor);
        }
        to[self.pixels..].fill(T::ZERO);
        Ok(())
    }

    /// The weights of `tall` output channels from `first` on, those of a row of columns side by side.
    #[inline(always)]
    fn gather_tile(&mut self, first: usize, tall: usize) -> Result<()> {
        let p = self.p;
        let steps = self.weight.meta().strides();
        for row in 0..p.rows() / p.groups {
            let (channel, tap) = (row / p.taps(), row % p.taps());
            let place = channel * steps[1] + tap / p.window[1] * steps[2] + tap % p.window[1] * steps[3];
            for o in 0..TALL {
                let value = if o < tall { self.weight.get((first + o) * steps[0] + place)? } else { T::ZERO };
                self.tile[row * TALL + o] = value;
            }
        }
        Ok(())
    }

    /// Multiplies the columns of a group of channels by the weights of some output channels.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S, first: usize) -> Result<()> {
        let p = self.p;
        let rows = p.rows() / p.groups;
        let width = self.columns.len() / p.rows();
        let group = first / (p.outputs / p.groups);
        let tall = TALL.min((group + 1) * (p.outputs / p.groups) - first);
        let index =
            group * (p.outputs / p.groups).div_ceil(TALL) + (first - group * (p.outputs / p.groups)) / TALL;
        let packed = self.packed.and_then(|all| all.get(index * rows * TALL..(index + 1) * rows * TALL));
        if packed.is_none() {
            self.gather_tile(first, tall)?;
        }
        let bias = self.bias.meta().strides()[0];
        let to = *self.out.meta().strides();
        for start in (0..self.pixels).step_by(WIDTH) {
            let mut sums = [[T::ZERO; WIDTH]; TALL];
            let columns = self.columns[group * rows * width..][..rows * width].chunks(width * DEPTH);
            let (weights, _) = packed.unwrap_or(&self.tile[..rows * TALL]).as_chunks();
            for (weights, columns) in weights.chunks(DEPTH).zip(columns) {
                let tile = columns.chunks_exact(width).filter_map(|row| row.get(start..)?.first_chunk());
                let part = T::product(s, weights, tile);
                for (sums, part) in sums.iter_mut().zip(part) {
                    sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
                }
            }
            let count = WIDTH.min(self.pixels - start);
            for (o, sums) in sums.iter_mut().enumerate().take(tall) {
                let bias = self.bias.get((first + o) * bias)?;
                sums.iter_mut().for_each(|sum| *sum += bias);
                let channel = self.image * to[0] + (first + o) * to[1];
                let pixel = self.first + start;
                if to[2] == to[3] * p.out[1] {
                    self.out.write((channel + pixel * to[3]) as isize, to[3] as isize, &sums[..count])?;
                    continue;
                }
                for (i, sum) in sums[..count].iter().enumerate() {
                    let at = [(pixel + i) / p.out[1], (pixel + i) % p.out[1]];
                    self.out.put(channel + at[0] * to[2] + at[1] * to[3], *sum)?;
                }
            }
        }
        Ok(())
    }
}

/// The two pixels beside a place along a dimension, where they are, with their weights.
#[inline(always)]
fn neighbours<T: Real>(at: T, extent: usize) -> [(Option<usize>, T); 2] {
    if at.is_nan() {
        return [(None, at); 2];
    }
    if at <= T::from_i64(-1) || at >= T::from_i64(extent as i64) {
        return [(None, T::ZERO); 2];
    }
    // At least minus one, so that cutting off the fraction of the next number is rounding down.
    let low = (at + T::ONE).to_i64() - 1;
    let low = if T::from_i64(low) > at { low - 1 } else { low };
    let part = at - T::from_i64(low);
    let pixel = |n: i64| usize::try_from(n).ok().filter(|n| *n < extent);
    [(pixel(low), T::ONE - part), (pixel(low + 1), part)]
}

impl<T: TileProduct> SimdTask for Block<'_, '_, T> {
    type Output = Result<()>;
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) -> Result<()> {
        let p = self.p;
        let shared = p.channels / p.offset_groups;
        for group in 0..p.offset_groups {
            for tap in 0..p.taps() {
                self.find(group, tap)?;
                for channel in group * shared..(group + 1) * shared {
                    self.read(channel, channel * p.taps() + tap)?;
                }
            }
        }
        let each = p.outputs / p.groups;
        for group in 0..p.groups {
            for first in (group * each..(group + 1) * each).step_by(TALL) {
                self.multiply(s, first)?;
            }
        }
        Ok(())
    }
}

struct DeformedConvolution {
    level: SimdLevel,
    dtype: DType,
    /// Most rows of columns.
    rows: usize,
    packed: Packed,
}

impl DeformedConvolution {
    /// Bytes of a number while computing.
    fn size(&self) -> usize {
        if self.dtype == DType::Float64 { 8 } else { 4 }
    }

    fn convolve<T: TileProduct>(
        &self,
        p: &Problem,
        args: &Args<'_>,
        chunk: usize,
        mut scratch: &mut [u8],
        packed: Option<&[T]>,
    ) -> Result<()> {
        let blocks = p.pixels().div_ceil(p.block);
        let (image, first) = (chunk / blocks, chunk % blocks * p.block);
        let input = Reader::<T>::new(args.tensor(0)?)?;
        let is_direct = self.dtype != DType::Float16;
        let direct = if is_direct { Some(input.block(0, 1, input.meta().numel(), &mut [])?) } else { None };
        let mut take = |n: usize| take_scratch::<T>(&mut scratch, n);
        let (columns, tile) = (take(p.rows() * p.block)?, take(p.rows() / p.groups * TALL)?);
        let weights = [take(p.block)?, take(p.block)?, take(p.block)?, take(p.block)?];
        let factors = take(p.block)?;
        let (offsets, present) = (take_scratch(&mut scratch, p.block)?, take_scratch(&mut scratch, p.block)?);
        let mask = if p.has_mask { Some(Reader::new(args.tensor(3)?)?) } else { None };
        self.level.dispatch(Block {
            p,
            input,
            direct,
            weight: Reader::new(args.tensor(1)?)?,
            offset: Reader::new(args.tensor(2)?)?,
            mask,
            bias: Reader::new(args.tensor(4)?)?,
            out: Writer::new(args.output(OUT)?)?,
            image,
            first,
            pixels: p.block.min(p.pixels() - first),
            columns,
            tile,
            packed,
            places: Places { weights, offsets, present, factors },
        })
    }
}

impl GridKernel for DeformedConvolution {
    type Problem = Problem;

    fn scratch(&self) -> Scratch {
        let block = block_of(self.rows, self.size());
        // Fewer rows have larger blocks, but no more columns than the largest block of one tile more.
        let columns = self.rows.saturating_mul(block).max(COLUMN_BYTES / self.size());
        let numbers =
            columns.saturating_add(self.rows.saturating_mul(TALL)).saturating_add(5 * MOST_TILES * WIDTH);
        let places = MOST_TILES * WIDTH * size_of::<[u32; 5]>();
        Scratch { per_worker: numbers.saturating_mul(self.size()).saturating_add(places), shared: 0 }
    }

    fn new_problem(&self) -> Problem {
        Problem::default()
    }

    fn bind(&self, args: &mut BindArgs<'_>, p: &mut Problem) -> Result<Grid> {
        *p = Problem::of(&args.args())?;
        args.resize(OUT, &[p.batch, p.outputs, p.out[0], p.out[1]])?;
        // A plane's places travel in 32 bits.
        let input = args.args().tensor(0)?;
        if u32::try_from(input.numel()).is_err() {
            return Err(Error::limit("the image is too large")
                .argument("input")
                .got(input.shape().to_string()));
        }
        p.block = block_of(p.rows(), self.size());
        let blocks = p.pixels().div_ceil(p.block).saturating_mul(p.batch);
        let blocks = if p.outputs == 0 { 0 } else { blocks };
        let work = p.rows().saturating_mul(p.block).saturating_mul(p.outputs / p.groups / 16 + 2);
        p.split = Split::new(blocks, 1, work);
        Ok(p.split.grid())
    }

    fn run(&self, p: &Problem, part: Part<'_>) -> Result<()> {
        let (args, chunk, worker) = (part.args, part.chunk, part.scratch.worker);
        match (&self.packed, self.dtype) {
            (Packed::Double(packed), _) => self.convolve::<f64>(p, args, chunk, worker, Some(packed)),
            (Packed::Single(packed), _) => self.convolve::<f32>(p, args, chunk, worker, Some(packed)),
            (Packed::None, DType::Float64) => self.convolve::<f64>(p, args, chunk, worker, None),
            (Packed::None, _) => self.convolve::<f32>(p, args, chunk, worker, None),
        }
    }
}

fn prepare(ctx: &PrepareContext<'_>) -> Preparation {
    for i in [1, 2, 3, 4] {
        same_dtype(ctx, i, OUT)?;
    }
    same_dtype(ctx, 0, OUT)?;
    let dtype = dtype_of(ctx, 0)?;
    if !matches!(dtype, DType::Float32 | DType::Float64 | DType::Float16) {
        return Err(Error::kernel("images are float16, float32 or float64")
            .argument("input")
            .got(dtype.name()));
    }
    let extent = |i: usize, d: usize| ctx.tensor(i).and_then(|t| t.shape.get(d).copied()).unwrap_or(0);
    let rows = extent(0, 1).saturating_mul(extent(1, 2)).saturating_mul(extent(1, 3));
    let level = SimdLevel::at_most(ctx.cpu.isa);
    prepared("reference", DeformedConvolution { level, dtype, rows, packed: Packed::of(ctx)? })
}

/// Convolutions at places that are data.
pub static OPERATORS: &[Operator] = &[kernel(
    "torchvision::deform_conv2d.out(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask, *, Tensor(a!) out) -> Tensor(a!)",
    prepare,
)];

#[cfg(test)]
mod tests {
    use crate::testing::{Arg, Tensor, error_text, numbers, run_out};
    use pteron_core::{DType, Result};

    /// A window of one pixel with weight 1 over `[1, 1, 2, 3]`, moved by `offset` everywhere.
    fn moved(down: f32, across: f32) -> Vec<f32> {
        let offsets: Vec<f32> = [[down; 6], [across; 6]].concat();
        let args = [
            Tensor::of(&[1, 1, 2, 3], &[1f32, 2., 4., 8., 16., 32.]).into(),
            Tensor::of(&[1, 1, 1, 1], &[1f32]).into(),
            Tensor::of(&[1, 2, 2, 3], &offsets).into(),
            Tensor::of(&[1, 1], &[0f32]).into(),
            Tensor::of(&[1], &[0f32]).into(),
        ];
        call(args.to_vec(), [1, 1], false, &[1, 1, 2, 3]).unwrap()
    }

    fn call(mut args: Vec<Arg>, groups: [i64; 2], has_mask: bool, shape: &[usize]) -> Result<Vec<f32>> {
        args.extend([1i64, 1, 0, 0, 1, 1].map(Arg::Int));
        args.extend(groups.map(Arg::Int));
        args.push(has_mask.into());
        Ok(run_out("torchvision::deform_conv2d.out", &args, DType::Float32, shape)?.values())
    }

    #[test]
    fn pixels_are_read_where_the_offsets_say() {
        assert_eq!(moved(0., 0.), [1., 2., 4., 8., 16., 32.]);
        assert_eq!(moved(1., -1.), [0., 8., 16., 0., 0., 0.]);
        assert_eq!(moved(0., 0.5), [1.5, 3., 2., 12., 24., 16.]);
        assert_eq!(moved(-0.5, 0.), [0.5, 1., 2., 4.5, 9., 18.]);
        for far in [2., -2., 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(moved(far, 0.), [0.; 6], "{far}");
        }
        assert!(moved(f32::NAN, 0.).iter().chain(&moved(0., f32::NAN)).all(|v| v.is_nan()));
    }

    #[test]
    fn groups_masks_and_bias_count() {
        let (input, weight) = (numbers(2 * 4 * 49, 1), numbers(6 * 2 * 9, 2));
        let (mask, bias) = (numbers(2 * 2 * 9 * 25, 3), numbers(6, 4));
        let zeros = vec![0f32; 2 * 4 * 9 * 25];
        let args = vec![
            Tensor::of(&[2, 4, 7, 7], &input).into(),
            Tensor::of(&[6, 2, 3, 3], &weight).into(),
            Tensor::of(&[2, 36, 5, 5], &zeros).into(),
            Tensor::of(&[2, 18, 5, 5], &mask).into(),
            Tensor::of(&[6], &bias).into(),
        ];
        let got = call(args.clone(), [2, 2], true, &[2, 6, 5, 5]).unwrap();
        for (i, got) in got.iter().enumerate() {
            let (n, o, y, x) = (i / 150, i / 25 % 6, i / 5 % 5, i % 5);
            let mut want = bias[o];
            for tap in 0..18 {
                let (c, down, across) = (tap / 9, tap % 9 / 3, tap % 3);
                // Two groups of channels, and as many of offsets.
                let channel = o / 3 * 2 + c;
                let factor = mask[((n * 18 + o / 3 * 9 + tap % 9) * 5 + y) * 5 + x];
                want += weight[o * 18 + tap]
                    * factor
                    * input[((n * 4 + channel) * 7 + y + down) * 7 + x + across];
            }
            assert!((got - want).abs() < 1e-2, "{i}: {got}, expected {want}");
        }
        assert!(error_text(call(args.clone(), [2, 3], true, &[2, 6, 5, 5])).contains("3 offset groups"));
        assert!(error_text(call(args.clone(), [2, 1], true, &[2, 6, 5, 5])).contains("offset"));
        let mut other = args;
        other[3] = Tensor::of(&[1, 1], &[0f32]).into();
        assert!(error_text(call(other, [2, 2], true, &[2, 6, 5, 5])).contains("mask"));
    }
}
