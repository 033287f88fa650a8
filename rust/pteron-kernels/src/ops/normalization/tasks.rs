//! Rows, planes, pixels and groups of normalisations on one instruction set. Unsafe island (vector loads).

use super::group_norm::Grouping;
use crate::chunk::{ChunkOf, ChunkOfMut};
use crate::elementwise::operand::{Sink, Source, load_up_to, store_up_to};
use crate::reduction::moments::{moments, sum_of};
use crate::vector_math::{Simd, SimdTask};
use pteron_core::Element;

/// Rows of a layer norm.
pub struct LayerRows<'a, T> {
    pub input: &'a [T],
    /// One number for each element of a row.
    pub weight: Option<&'a [T]>,
    /// One number for each element of a row.
    pub bias: Option<&'a [T]>,
    pub eps: f64,
    pub out: &'a mut [T],
    /// One number for each row.
    pub mean: &'a mut [T],
    /// One number for each row.
    pub rstd: &'a mut [T],
    /// Elements of a row.
    pub length: usize,
}

impl<T: Source + Sink> SimdTask for LayerRows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.length;
        assert!([self.weight, self.bias].iter().flatten().all(|p| p.len() >= n), "too few parameters");
        let (weight, bias) = (self.weight.map(<[T]>::as_ptr), self.bias.map(<[T]>::as_ptr));
        let rows = self.input.chunks_exact(n).zip(self.out.chunks_exact_mut(n));
        for ((x, y), (row_mean, row_rstd)) in rows.zip(self.mean.iter_mut().zip(self.rstd)) {
            let (x, y) = (x.as_ptr(), y.as_mut_ptr());
            // SAFETY: `x` and `y` are the start of `n` elements, by the slices they were taken from, and the parameters have as
            // many, by the assertion; i + m ≤ n.
            unsafe {
                let (mean, rstd) = moments(s, x, n, self.eps);
                *row_mean = T::of_number(mean);
                *row_rstd = T::of_number(rstd);
                let (mean, rstd) = (s.splat(mean), s.splat(rstd));
                let mut i = 0;
                while i < n {
                    let m = S::LANES.min(n - i);
                    let v = s.mul(s.sub(load_up_to(s, x.add(i), m), mean), rstd);
                    let b = match bias {
                        Some(b) => load_up_to(s, b.add(i), m),
                        None => s.zero(),
                    };
                    let v = match weight {
                        Some(w) => s.fma(v, load_up_to(s, w.add(i), m), b),
                        None => s.add(v, b),
                    };
                    store_up_to(s, y.add(i), v, m);
                    i += m;
                }
            }
        }
    }
}

/// Rows of an RMS norm.
pub struct RmsRows<'a, T, W> {
    pub input: &'a [T],
    /// One number for each element of a row.
    pub weight: Option<&'a [W]>,
    pub eps: f32,
    /// Is a row rounded to its type before the weight?
    pub rounds: bool,
    pub out: &'a mut [T],
    /// Elements of a row.
    pub length: usize,
}

impl<T: Source + Sink, W: Source> SimdTask for RmsRows<'_, T, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.length;
        assert!(self.weight.is_none_or(|w| w.len() >= n), "too few weights");
        let weight = self.weight.map(<[W]>::as_ptr);
        for (x, y) in self.input.chunks_exact(n).zip(self.out.chunks_exact_mut(n)) {
            let (x, y) = (x.as_ptr(), y.as_mut_ptr());
            // SAFETY: `x` and `y` are the start of `n` elements, by the slices they were taken from, and there are as many
            // weights, by the assertion; i + m ≤ n.
            unsafe {
                let mean = (sum_of(s, x, n, |v| s.mul(v, v)) / n as f64) as f32;
                let factor = s.splat(1.0 / (mean + self.eps).sqrt());
                for i in (0..n).step_by(S::LANES) {
                    let m = S::LANES.min(n - i);
                    let v = s.mul(load_up_to(s, x.add(i), m), factor);
                    let Some(w) = weight else {
                        store_up_to(s, y.add(i), v, m);
                        continue;
                    };
                    let mut v = v;
                    if self.rounds {
                        store_up_to(s, y.add(i), v, m);
                        v = load_up_to(s, y.add(i), m);
                    }
                    store_up_to(s, y.add(i), s.mul(v, load_up_to(s, w.add(i), m)), m);
                }
            }
        }
    }
}

/// What a batch norm at inference knows of its channels. The chunks have no slices: the kernel works in place.
#[derive(Clone, Copy)]
pub struct ChannelParameters<'a, P> {
    pub weight: Option<ChunkOf<'a, P>>,
    pub bias: Option<ChunkOf<'a, P>>,
    pub mean: ChunkOf<'a, P>,
    pub var: ChunkOf<'a, P>,
    pub eps: f64,
    pub channels: usize,
}

impl<P: Source + Element> ChannelParameters<'_, P> {
    /// Panics unless there is a number for every channel.
    #[inline(always)]
    fn check(&self) {
        let all = [self.weight, self.bias, Some(self.mean), Some(self.var)];
        assert!(all.iter().flatten().all(|p| p.len() >= self.channels), "too few parameters");
    }

    /// (scale, shift) of a channel.
    ///
    /// # Safety
    /// `c` is a channel, and [`ChannelParameters::check`] was called.
    #[inline(always)]
    unsafe fn of_channel(&self, c: usize) -> (f32, f32) {
        // SAFETY: `check` found one element for each channel in every chunk.
        let at = |p: ChunkOf<'_, P>| unsafe { *p.as_ptr().add(c) }.number();
        let invstd = (1.0 / (f64::from(at(self.var)) + self.eps).sqrt()) as f32;
        let scale = self.weight.map_or(invstd, |w| invstd * at(w));
        (scale, self.bias.map_or(0.0, at) - at(self.mean) * scale)
    }
}

/// Planes of one channel each.
pub struct ChannelPlanes<'a, T, P> {
    /// The planes; `out` may be the same memory.
    pub input: ChunkOf<'a, T>,
    pub out: ChunkOfMut<'a, T>,
    pub parameters: ChannelParameters<'a, P>,
    /// The first plane, counted over all images.
    pub first: usize,
    /// Elements of a plane.
    pub size: usize,
}

impl<T: Source + Sink + Element, P: Source + Element> SimdTask for ChannelPlanes<'_, T, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (n, numel) = (self.size, self.input.len().min(self.out.len()));
        self.parameters.check();
        for plane in 0..numel / n {
            // SAFETY: planes of `n` elements lie one behind the other in both chunks, `numel / n` of them; a remainder by
            // the number of channels is a channel, and the parameters were checked.
            unsafe {
                let (scale, shift) =
                    self.parameters.of_channel((self.first + plane) % self.parameters.channels);
                let (x, y) = (self.input.as_ptr().add(plane * n), self.out.as_ptr().add(plane * n));
                affine(s, x, y, n, scale, shift);
            }
        }
    }
}

/// Pixels of all channels each.
pub struct ChannelPixels<'a, T, P> {
    /// The pixels; `out` may be the same memory.
    pub input: ChunkOf<'a, T>,
    pub out: ChunkOfMut<'a, T>,
    pub parameters: ChannelParameters<'a, P>,
    /// Room for one number of each channel.
    pub scales: &'a mut [f32],
    /// Room for one number of each channel.
    pub shifts: &'a mut [f32],
}

impl<T: Source + Sink + Element, P: Source + Element> SimdTask for ChannelPixels<'_, T, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (channels, numel) = (self.parameters.channels, self.input.len().min(self.out.len()));
        self.parameters.check();
        let (scales, shifts) = (&mut self.scales[..channels], &mut self.shifts[..channels]);
        for (c, (scale, shift)) in scales.iter_mut().zip(shifts.iter_mut()).enumerate() {
            // SAFETY: there are `channels` scales, so `c` is a channel; the parameters were checked.
            (*scale, *shift) = unsafe { self.parameters.of_channel(c) };
        }
        let (scales, shifts) = (scales.as_ptr(), shifts.as_ptr());
        for pixel in 0..numel / channels {
            let mut i = 0;
            while i < channels {
                let m = S::LANES.min(channels - i);
                // SAFETY: pixels of `channels` elements lie one behind the other in both chunks, and scales and shifts have as
                // many elements; i + m ≤ channels.
                unsafe {
                    let at = pixel * channels + i;
                    let (scale, shift) = (s.load_up_to(scales.add(i), m), s.load_up_to(shifts.add(i), m));
                    let x = load_up_to(s, self.input.as_ptr().add(at), m);
                    store_up_to(s, self.out.as_ptr().add(at), s.fma(x, scale, shift), m);
                }
                i += m;
            }
        }
    }
}

/// Groups of channels of a group norm.
pub struct ChannelGroups<'a, T> {
    pub input: &'a [T],
    /// One number for each channel.
    pub weight: Option<&'a [T]>,
    /// One number for each channel.
    pub bias: Option<&'a [T]>,
    pub eps: f64,
    pub out: &'a mut [T],
    /// One number for each group.
    pub mean: &'a mut [T],
    /// One number for each group.
    pub rstd: &'a mut [T],
    /// The first group, counted over all images.
    pub first: usize,
    pub grouping: Grouping,
}

impl<T: Source + Sink> SimdTask for ChannelGroups<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Grouping { groups, channels_per_group, pixels } = self.grouping;
        let size = channels_per_group * pixels;
        let members = self.input.chunks_exact(size).zip(self.out.chunks_exact_mut(size));
        let statistics = self.mean.iter_mut().zip(self.rstd);
        for (i, ((x, y), (group_mean, group_rstd))) in members.zip(statistics).enumerate() {
            // SAFETY: `x` is a slice of `size` elements, at least one.
            let (mean, rstd) = unsafe { moments(s, x.as_ptr(), size, self.eps) };
            (*group_mean, *group_rstd) = (T::of_number(mean), T::of_number(rstd));
            let first_channel = (self.first + i) % groups * channels_per_group;
            for (c, (x, y)) in x.chunks_exact(pixels).zip(y.chunks_exact_mut(pixels)).enumerate() {
                let channel = first_channel + c;
                let scale = self.weight.map_or(rstd, |w| rstd * w[channel].number());
                let shift = self.bias.map_or(0.0, |b| b[channel].number()) - mean * scale;
                // SAFETY: `x` and `y` are slices of `pixels` elements.
                unsafe { affine(s, x.as_ptr(), y.as_mut_ptr(), pixels, scale, shift) };
            }
        }
    }
}

/// y = x · scale + shift.
///
/// # Safety
/// `n` elements behind `x` and `y`, which may be the same.
#[inline(always)]
unsafe fn affine<S: Simd, T: Source + Sink>(s: S, x: *const T, y: *mut T, n: usize, scale: f32, shift: f32) {
    let (scale, shift) = (s.splat(scale), s.splat(shift));
    let mut i = 0;
    while i < n {
        let m = S::LANES.min(n - i);
        // SAFETY: i + m ≤ n.
        unsafe { store_up_to(s, y.add(i), s.fma(load_up_to(s, x.add(i), m), scale, shift), m) };
        i += m;
    }
}
