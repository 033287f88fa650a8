//! Channel planes into channels-last order and back, in phases before and behind a convolution. Unsafe island.
#![allow(unsafe_code, reason = "chunks share a tensor")]

use super::columns::Numbers;
use super::window::Call;
use crate::conv::geometry::Extents;
use pteron_core::{Args, Error, PrepareContext, Result};

/// Pixels of a chunk.
const PIXELS: usize = 1024;
/// Pixels that are moved together, so that what is written stays in the first-level cache.
const TOGETHER: usize = 32;

/// Which tensors of a convolution lie in planes, and the memory that they are reordered in: input, output.
pub(super) struct Reordered {
    call: Call,
    /// Bytes at most; none of a tensor that lies channels-last.
    most: [usize; 2],
    /// The bits that make unsigned bytes of the input's.
    flip: u8,
    /// Bytes of an output element.
    out_bytes: usize,
}

/// The tensors that the product reads and writes, channels-last.
pub(super) struct Tensors {
    pub input: *const u8,
    /// The bits that make unsigned bytes of it.
    pub flip: u8,
    pub out: *mut u8,
}

/// A phase of a call.
#[derive(PartialEq, Eq)]
pub(super) enum Phase {
    /// The input is brought into channels-last order.
    Interleave,
    Compute,
    /// The output is brought into planes.
    Separate,
}

impl Reordered {
    pub(super) fn new(ctx: &PrepareContext<'_>, call: Call, numbers: &Numbers) -> Result<Reordered> {
        let bytes = |i: usize| ctx.tensor(i).map_or(Ok(0), |t| t.nbytes());
        let [is_input_last, is_output_last] = call.is_interleaved;
        let most =
            [if is_input_last { 0 } else { bytes(0)? }, if is_output_last { 0 } else { bytes(call.out)? }];
        Ok(Reordered { call, most, flip: numbers.flip, out_bytes: numbers.out_bytes() })
    }

    /// Bytes that all workers share.
    pub(super) fn shared_bytes(&self) -> usize {
        self.most[0].next_multiple_of(64).saturating_add(self.most[1])
    }

    fn shared(&self, shared: *mut u8) -> [*mut u8; 2] {
        [shared, shared.wrapping_add(self.most[0].next_multiple_of(64))]
    }

    fn has(&self, i: usize) -> bool {
        !self.call.is_interleaved[i]
    }

    fn planes(&self, extents: &Extents) -> [Planes; 2] {
        let geometry = &self.call.geometry;
        let (images, bytes) = (extents.images, self.out_bytes);
        let (from, to) = (geometry.total_in_channels(), geometry.total_out_channels());
        [
            Planes { images, pixels: extents.input_pixels(), channels: from, bytes: 1, flip: self.flip },
            Planes { images, pixels: extents.pixels(), channels: to, bytes, flip: 0 },
        ]
    }

    /// Chunks of the phases before and behind. An error when a tensor is larger than was said.
    pub(super) fn chunks(&self, extents: &Extents) -> Result<[usize; 2]> {
        let mut chunks = [0; 2];
        for (i, planes) in self.planes(extents).iter().enumerate() {
            if self.has(i) {
                planes.check(self.most[i])?;
                chunks[i] = planes.images * planes.pixels.div_ceil(PIXELS);
            }
        }
        Ok(chunks)
    }

    /// What phase `phase` of a call does.
    pub(super) fn phase(&self, phase: u32) -> Phase {
        match phase + u32::from(!self.has(0)) {
            0 => Phase::Interleave,
            1 => Phase::Compute,
            _ => Phase::Separate,
        }
    }

    /// What the computing phase reads and writes.
    pub(super) fn tensors(&self, args: &Args<'_>, shared: *mut u8) -> Result<Tensors> {
        let [input, out] = self.shared(shared);
        let (input, flip) = match self.has(0) {
            true => (input.cast_const(), 0),
            false => (args.tensor(0)?.as_ptr(), self.flip),
        };
        let out = if self.has(1) { out } else { args.output(self.call.out)?.as_ptr() };
        Ok(Tensors { input, flip, out })
    }

    /// A chunk of a phase other than the computing one.
    ///
    /// # Safety
    /// `args` and `extents` are those of a call that [`Reordered::chunks`] was asked about, `shared` has
    /// [`Reordered::shared_bytes`], and in the last phase the output was computed.
    pub(super) unsafe fn run(
        &self,
        phase: &Phase,
        args: &Args<'_>,
        extents: &Extents,
        chunk: usize,
        shared: *mut u8,
    ) -> Result<()> {
        let ([input, output], [moved_input, moved_output]) = (self.planes(extents), self.shared(shared));
        // SAFETY: the tensors have the extents that `chunks` saw, and the shared memory has room for them, which it checked;
        // they do not overlap, and chunks have pixels of their own.
        unsafe {
            match phase {
                Phase::Interleave => input.interleave(chunk, args.tensor(0)?.as_ptr(), moved_input),
                Phase::Separate => output.separate(chunk, moved_output, args.output(self.call.out)?.as_ptr()),
                Phase::Compute => {}
            }
        }
        Ok(())
    }
}

/// A tensor of images.
struct Planes {
    images: usize,
    pixels: usize,
    channels: usize,
    /// Bytes of an element: one or four.
    bytes: usize,
    /// Bits that are flipped, of elements of one byte.
    flip: u8,
}

impl Planes {
    /// An error when the tensor has more than `most` bytes.
    fn check(&self, most: usize) -> Result<()> {
        let bytes = self.images * self.pixels * self.channels * self.bytes;
        if bytes > most {
            return Err(Error::kernel("a tensor of a convolution is larger than its upper bound")
                .expected(format!("at most {most} bytes"))
                .got(bytes.to_string()));
        }
        Ok(())
    }

    /// First element and pixels of a chunk: of its image, of all images' pixels, how many.
    fn place(&self, chunk: usize) -> (usize, usize, usize) {
        let in_image = self.pixels.div_ceil(PIXELS);
        let first = chunk % in_image * PIXELS;
        (chunk / in_image * self.pixels * self.channels, first, PIXELS.min(self.pixels - first))
    }

    /// Calls `write` with the place of each element of a chunk's pixels: in planes, and channels-last.
    fn each(&self, chunk: usize, mut write: impl FnMut(usize, usize)) {
        let (image, first, count) = self.place(chunk);
        for start in (first..first + count).step_by(TOGETHER) {
            let end = (start + TOGETHER).min(first + count);
            for c in 0..self.channels {
                for p in start..end {
                    write(image + c * self.pixels + p, image + p * self.channels + c);
                }
            }
        }
    }

    /// The bytes of a chunk's pixels, from planes to channels-last, flipped.
    ///
    /// # Safety
    /// Both tensors have the extents, one byte per element, and do not overlap.
    unsafe fn interleave(&self, chunk: usize, from: *const u8, to: *mut u8) {
        if self.channels == 3 {
            let (image, first, count) = self.place(chunk);
            // SAFETY: the caller promises the planes and the pixels of all images, of which these are some; no other chunk
            // writes to these pixels.
            unsafe {
                let plane =
                    |c: usize| std::slice::from_raw_parts(from.add(image + c * self.pixels + first), count);
                let to = to.add(image + first * 3).cast::<[u8; 3]>();
                let pixels = std::slice::from_raw_parts_mut(to, count);
                return three_planes([plane(0), plane(1), plane(2)], pixels, self.flip);
            }
        }
        self.each(chunk, |plane, last| {
            // SAFETY: `each` names elements of the two tensors that the caller promises.
            unsafe { *to.add(last) = *from.add(plane) ^ self.flip }
        });
    }

    /// The elements of a chunk's pixels, from channels-last to planes.
    ///
    /// # Safety
    /// Both tensors have the extents, aligned to their elements, and do not overlap.
    unsafe fn separate(&self, chunk: usize, from: *const u8, to: *mut u8) {
        let (floats, to_floats) = (from.cast::<f32>(), to.cast::<f32>());
        let is_byte = self.bytes == 1;
        self.each(chunk, |plane, last| {
            // SAFETY: `each` names elements of the two tensors that the caller promises, with their alignment.
            unsafe {
                match is_byte {
                    true => *to.add(plane) = *from.add(last),
                    false => *to_floats.add(plane) = *floats.add(last),
                }
            }
        });
    }
}

/// The pixels of three planes, flipped.
fn three_planes([red, green, blue]: [&[u8]; 3], pixels: &mut [[u8; 3]], flip: u8) {
    for (((pixel, r), g), b) in pixels.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [r ^ flip, g ^ flip, b ^ flip];
    }
}
