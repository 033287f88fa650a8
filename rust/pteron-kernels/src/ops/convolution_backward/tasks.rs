//! The products of a convolution's gradients. The gradient of the input is the weights times the incoming gradient, whose
//! columns are added to the image as soon as a tile of them is there; that of the weight is the incoming gradient times the
//! image's columns, a stretch of pixels at a time.

use crate::ops::convolution::Geometry;
use crate::ops::tile_product::{DOTS, TALL, TileProduct, WIDTH};
use crate::vector_math::{Simd, SimdTask};
use pteron_core::{Error, Result};
use std::ops::Range;

/// The window of a convolution of images, `[height, width]` each.
#[derive(Clone, Copy)]
pub(super) struct Window {
    image: [isize; 2],
    out: [isize; 2],
    kernel: [isize; 2],
    stride: [isize; 2],
    padding: [isize; 2],
    dilation: [isize; 2],
}

impl Window {
    pub(super) fn of(g: &Geometry) -> Window {
        let last = |[_, h, w]: [isize; 3]| [h, w];
        Window {
            image: last(g.size),
            out: last(g.out),
            kernel: last(g.kernel),
            stride: last(g.stride),
            padding: last(g.padding),
            dilation: last(g.dilation),
        }
    }

    /// Elements of a window.
    pub(super) fn area(&self) -> usize {
        self.kernel.iter().product::<isize>() as usize
    }

    /// Pixels of an input channel.
    pub(super) fn size(&self) -> usize {
        self.image.iter().product::<isize>() as usize
    }

    /// Pixels of an output channel.
    pub(super) fn pixels(&self) -> usize {
        self.out.iter().product::<isize>() as usize
    }

    /// Calls `visit(some of the pixels, the input's element for the first)` for the output pixels `pixels` whose element
    /// `tap` of the window lies inside the input; pixels count from the first, and the input's elements are a step apart.
    #[inline(always)]
    fn runs(&self, tap: usize, pixels: Range<usize>, mut visit: impl FnMut(Range<usize>, usize)) {
        let tap = [tap as isize / self.kernel[1], tap as isize % self.kernel[1]];
        let [top, left] = [0, 1].map(|d| tap[d] * self.dilation[d] - self.padding[d]);
        let (width, step) = (self.out[1] as usize, self.stride[1]);
        // The pixels of a line whose element lies inside: left + x · step is in 0..the width.
        let first_beyond = |at: isize| (at - left + step - 1).div_euclid(step).max(0) as usize;
        let inside = first_beyond(0)..first_beyond(self.image[1]);
        let mut at = pixels.start;
        while at < pixels.end {
            let (line, x) = (at / width, at % width);
            let n = (width - x).min(pixels.end - at);
            let y = top + line as isize * self.stride[0];
            let (first, end) = (x.max(inside.start), (x + n).min(inside.end));
            if (0..self.image[0]).contains(&y) && first < end {
                let start = at - pixels.start + (first - x);
                let from = y * self.image[1] + left + first as isize * step;
                visit(start..start + (end - first), from as usize);
            }
            at += n;
        }
    }

    /// Elements of the input from one pixel to the next.
    fn step(&self) -> usize {
        self.stride[1] as usize
    }
}

#[cold]
fn outside() -> Error {
    Error::internal("a convolution would leave its tensors")
}

/// The gradient of some channels of an image.
pub(super) struct ImageTask<'a, T> {
    pub window: Window,
    /// Those channels, of `inputs` of the group.
    pub channels: Range<usize>,
    pub inputs: usize,
    /// The group's planes of the incoming gradient.
    pub grad: &'a [T],
    /// The group's weights.
    pub weight: &'a [T],
    pub out: &'a mut [T],
    /// Room for the weights of the channels, tile by tile, and for a tile of every plane.
    pub packed: &'a mut [[T; TALL]],
    pub tile: &'a mut [[T; WIDTH]],
}

impl<T: TileProduct> SimdTask for ImageTask<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let ImageTask { window, channels, inputs, grad, weight, out, packed, tile } = self;
        let (area, outputs, size) = (window.area(), tile.len(), window.size());
        let (rows, pixels) = (channels.len() * area, window.pixels());
        for (t, packed) in packed.chunks_exact_mut(outputs.max(1)).enumerate() {
            for (o, packed) in packed.iter_mut().enumerate() {
                let first = (o * inputs + channels.start) * area + t * TALL;
                let n = TALL.min(rows - t * TALL);
                *packed = [T::ZERO; TALL];
                packed[..n].copy_from_slice(weight.get(first..first + n).ok_or_else(outside)?);
            }
        }
        out.fill(T::ZERO);
        for first in (0..pixels).step_by(WIDTH) {
            let n = WIDTH.min(pixels - first);
            for (tile, grad) in tile.iter_mut().zip(grad.chunks_exact(pixels)) {
                *tile = [T::ZERO; WIDTH];
                tile[..n].copy_from_slice(&grad[first..first + n]);
            }
            for (t, packed) in packed.chunks_exact(outputs.max(1)).enumerate() {
                let sums = T::product(s, packed, tile.iter());
                for (row, sums) in (t * TALL..rows).zip(&sums) {
                    let plane =
                        out.get_mut(row / area * size..(row / area + 1) * size).ok_or_else(outside)?;
                    window.runs(row % area, first..first + n, |pixels, from| {
                        add(&mut plane[from..], &sums[pixels], window.step());
                    });
                }
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn add<T: TileProduct>(to: &mut [T], from: &[T], step: usize) {
    if step == 1 {
        to.iter_mut().zip(from).for_each(|(to, v)| *to += *v);
    } else {
        to.iter_mut().step_by(step).zip(from).for_each(|(to, v)| *to += *v);
    }
}

/// Adds what an image has for the gradient of the weights of some input channels.
pub(super) struct WeightTask<'a, T> {
    pub window: Window,
    pub outputs: usize,
    /// Those channels, of the group.
    pub channels: Range<usize>,
    /// The group's planes of the incoming gradient, and of the input.
    pub grad: &'a [T],
    pub x: &'a [T],
    /// Room for a stretch of the columns.
    pub columns: &'a mut [T],
    /// A row for each output channel and those that fill the last tile.
    pub totals: &'a mut [f64],
}

impl<T: TileProduct> SimdTask for WeightTask<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Result<()> {
        let WeightTask { window, outputs, channels, grad, x, columns, totals } = self;
        let (area, pixels, size) = (window.area(), window.pixels(), window.size());
        let rows = channels.len() * area;
        let even = rows.next_multiple_of(DOTS).max(DOTS);
        let longest = columns.len() / even;
        if longest == 0 || outputs == 0 {
            return Ok(());
        }
        for first in (0..pixels).step_by(longest) {
            let n = longest.min(pixels - first);
            for (row, column) in columns.chunks_exact_mut(longest).enumerate() {
                let column = &mut column[..n];
                column.fill(T::ZERO);
                if row >= rows {
                    continue;
                }
                let channel = channels.start + row / area;
                let plane = x.get(channel * size..(channel + 1) * size).ok_or_else(outside)?;
                window.runs(row % area, first..first + n, |pixels, from| {
                    let (to, from, step) = (&mut column[pixels], &plane[from..], window.step());
                    if step == 1 {
                        let n = to.len();
                        to.copy_from_slice(&from[..n]);
                    } else {
                        to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, v)| *to = *v);
                    }
                });
            }
            for (o, totals) in (0..outputs).step_by(TALL).zip(totals.chunks_exact_mut(TALL * even)) {
                // The last channel fills the tile.
                let left: [&[T]; TALL] = std::array::from_fn(|i| {
                    let at = (o + i).min(outputs - 1) * pixels + first;
                    grad.get(at..at + n).unwrap_or(&[])
                });
                for (r, right) in columns.chunks_exact(DOTS * longest).enumerate() {
                    let right: [&[T]; DOTS] = std::array::from_fn(|i| &right[i * longest..i * longest + n]);
                    for (i, sums) in T::dots(s, left, right).iter().enumerate() {
                        let totals = &mut totals[i * even + r * DOTS..][..DOTS];
                        totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum.to_f64());
                    }
                }
            }
        }
        Ok(())
    }
}
