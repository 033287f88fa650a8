//! The channels of some output pixels of a depthwise convolution: quads of taps are brought together channel by channel,
//! so that a dot product is four taps of a channel. Unsafe island.
#![allow(unsafe_code, reason = "windows of an image are addressed by stride")]

use super::columns::Columns;
use super::dots::{Dots, Narrowing, TapDots};
use pteron_core::AlignedBuffer;

/// Taps that a dot product takes.
pub(super) const QUAD: usize = 4;

/// A tap of the first of some pixels: the address of its channels, and how far on those of the next pixel are.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Tap {
    pub first: usize,
    pub step: usize,
}

impl Tap {
    /// The channels of pixel `i`, from `channel` on.
    #[inline(always)]
    pub(super) fn channels(self, i: usize, channel: usize) -> *const u8 {
        (self.first as *const u8).wrapping_add(i * self.step + channel)
    }
}

/// A block of channels and what is multiplied with and added to them, in the order of the vectors' lanes.
pub(super) struct Block {
    /// The first channel.
    pub channel: usize,
    /// As [`DepthwisePixels::tap_place`] says.
    pub weights: AlignedBuffer,
    /// Four vectors of each kind.
    pub columns: Columns,
}

/// Some output pixels, neighbours in a line.
pub(super) struct Pixels<'a> {
    pub blocks: &'a [Block],
    /// A whole number of quads.
    pub taps: &'a [Tap],
    pub count: usize,
    /// Where three quads are the columns of a window: how many columns on the next pixel's are. Columns that windows share
    /// are then brought together once. Zero where they are not.
    pub column_step: usize,
    /// Bits that make unsigned bytes of the input's.
    pub flip: u8,
    pub low: f32,
    pub high: f32,
    /// Are all results numbers of i32 before they are limited?
    pub is_bounded: bool,
    /// How bytes are made of the results; none where floats are written.
    pub narrowing: Option<Narrowing>,
    /// The first channel of the first pixel; pixels are `step` bytes apart.
    pub out: *mut u8,
    pub step: usize,
}

/// [`DepthwisePixels::pixels`] compiled for an instruction set.
pub(super) type PixelsFn = unsafe fn(&Pixels<'_>);

/// Sums of a block.
type Sums<D> = [<D as Dots>::Sums; 4];

/// What computes depthwise convolutions with an instruction set.
pub(super) trait DepthwisePixels: Dots {
    /// Where tap `t` of channel number `i` of a block lies among its weights, which have [`Dots::WIDTH`] bytes.
    fn tap_place(t: usize, i: usize) -> usize;

    /// Computes the pixels.
    ///
    /// # Safety
    /// The caller is compiled for the instruction set, which the processor has; the channels of every block exist at each tap
    /// and in the output, and blocks have what the taps ask for.
    unsafe fn pixels(p: &Pixels<'_>);
}

impl<D: TapDots> DepthwisePixels for D {
    fn tap_place(t: usize, i: usize) -> usize {
        (t / QUAD * 4 * D::LANES + i) * QUAD + t % QUAD
    }

    #[inline(always)]
    unsafe fn pixels(p: &Pixels<'_>) {
        for block in p.blocks {
            let block = &Parameters::of(block);
            // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
            unsafe {
                match (p.column_step, p.is_bounded) {
                    (1 | 2, true) if p.taps.len() == 3 * QUAD => columns::<D, true>(p, block),
                    (1 | 2, false) if p.taps.len() == 3 * QUAD => columns::<D, false>(p, block),
                    _ => quads::<D>(p, block),
                }
            }
        }
    }
}

/// A [`Block`] as the loops over pixels read it.
pub(super) struct Parameters {
    pub channel: usize,
    pub weights: *const i8,
    start: *const i32,
    factor: *const f32,
    bias: *const f32,
}

impl Parameters {
    pub(super) fn of(block: &Block) -> Parameters {
        Parameters {
            channel: block.channel,
            weights: block.weights.as_ptr().cast(),
            start: block.columns.start(0),
            factor: block.columns.factor(0),
            bias: block.columns.bias(0),
        }
    }
}

/// The pixels one by one.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn quads<D: TapDots>(p: &Pixels<'_>, block: &Parameters) {
    for i in 0..p.count {
        // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
        unsafe {
            let mut sums = [D::zero(), D::zero(), D::zero(), D::zero()];
            for q in 0..p.taps.len() / QUAD {
                add::<D>(&mut sums, column::<D>(p, block, q, i), block, q);
            }
            write::<D, false>(p, block, lanes::<D>(sums), i);
        }
    }
}

/// The pixels from left to right, which have two columns of three in common, or one.
///
/// # Safety
/// As [`DepthwisePixels::pixels`]; the taps are three quads. `BOUNDED`: as [`Pixels::is_bounded`].
#[inline(always)]
unsafe fn columns<D: TapDots, const BOUNDED: bool>(p: &Pixels<'_>, block: &Parameters) {
    // SAFETY: the caller promises the channels of the block at every tap and in the output, and weights for the quads.
    unsafe {
        let (mut left, mut middle) = (column::<D>(p, block, 0, 0), column::<D>(p, block, 1, 0));
        for i in 0..p.count {
            let right = column::<D>(p, block, 2, i);
            let mut sums = [D::zero(), D::zero(), D::zero(), D::zero()];
            add::<D>(&mut sums, left, block, 0);
            add::<D>(&mut sums, middle, block, 1);
            add::<D>(&mut sums, right, block, 2);
            write::<D, BOUNDED>(p, block, lanes::<D>(sums), i);
            if p.column_step == 1 {
                (left, middle) = (middle, right);
            } else if i + 1 < p.count {
                (left, middle) = (right, column::<D>(p, block, 1, i + 1));
            }
        }
    }
}

/// Quad `q` of the taps of pixel `i`.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn column<D: TapDots>(p: &Pixels<'_>, block: &Parameters, q: usize, i: usize) -> [D::Inputs; 4] {
    let quad = p.taps.as_ptr().wrapping_add(q * QUAD);
    // SAFETY: the caller promises the channels of the block at every tap of the quad.
    unsafe {
        let taps = [
            (*quad).channels(i, block.channel),
            (*quad.add(1)).channels(i, block.channel),
            (*quad.add(2)).channels(i, block.channel),
            (*quad.add(3)).channels(i, block.channel),
        ];
        D::interleave(taps, p.flip)
    }
}

/// Adds the products of quad `q`.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn add<D: Dots>(sums: &mut Sums<D>, [a, b, c, d]: [D::Inputs; 4], block: &Parameters, q: usize) {
    let vector = D::LANES * QUAD;
    // SAFETY: the caller promises four vectors of weights for each quad.
    unsafe {
        let weights = block.weights.add(q * 4 * vector);
        sums[0] = D::dot(sums[0], a, D::weights::<0>(weights));
        sums[1] = D::dot(sums[1], b, D::weights::<0>(weights.add(vector)));
        sums[2] = D::dot(sums[2], c, D::weights::<0>(weights.add(2 * vector)));
        sums[3] = D::dot(sums[3], d, D::weights::<0>(weights.add(3 * vector)));
    }
}

/// The sums of a block, one per lane.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn lanes<D: Dots>([a, b, c, d]: Sums<D>) -> [D::I; 4] {
    // SAFETY: the caller promises the instruction set.
    unsafe { [D::lanes(a), D::lanes(b), D::lanes(c), D::lanes(d)] }
}

/// Writes the block's channels of pixel `i`. `BOUNDED`: limits are those of bytes alone, where bytes are written.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
pub(super) unsafe fn write<D: Dots, const BOUNDED: bool>(
    p: &Pixels<'_>,
    block: &Parameters,
    sums: [D::I; 4],
    i: usize,
) {
    let out = p.out.wrapping_add(i * p.step);
    // SAFETY: the caller promises the channels of the block in the output.
    unsafe {
        match p.narrowing {
            Some(narrowing) => {
                let whole = [
                    D::nearest(real::<D, BOUNDED>(p, block, 0, sums[0])),
                    D::nearest(real::<D, BOUNDED>(p, block, 1, sums[1])),
                    D::nearest(real::<D, BOUNDED>(p, block, 2, sums[2])),
                    D::nearest(real::<D, BOUNDED>(p, block, 3, sums[3])),
                ];
                D::store_channels(out.wrapping_add(block.channel), whole, narrowing);
            }
            None => {
                let out = out.cast::<f32>().wrapping_add(block.channel);
                for (v, sums) in sums.into_iter().enumerate() {
                    let mut lanes = [0f32; 16];
                    D::store(lanes.as_mut_ptr(), real::<D, false>(p, block, v, sums), D::LANES);
                    for (lane, x) in lanes.iter().enumerate().take(D::LANES) {
                        *out.add(D::channel_of(v, lane)) = *x;
                    }
                }
            }
        }
    }
}

/// Vector `v` of a block as real numbers; limited, if not `BOUNDED`.
///
/// # Safety
/// As [`DepthwisePixels::pixels`].
#[inline(always)]
unsafe fn real<D: Dots, const BOUNDED: bool>(
    p: &Pixels<'_>,
    block: &Parameters,
    v: usize,
    sums: D::I,
) -> D::F {
    let at = v * D::LANES;
    // SAFETY: the caller promises the instruction set; a block has four vectors of each parameter.
    unsafe {
        let sum = D::add_i(sums, D::load_i(block.start.add(at)));
        let factor = D::load(block.factor.add(at));
        let real = D::add(D::mul(D::to_float(sum), factor), D::load(block.bias.add(at)));
        if BOUNDED { real } else { D::clamp(real, D::splat(p.low), D::splat(p.high)) }
    }
}
