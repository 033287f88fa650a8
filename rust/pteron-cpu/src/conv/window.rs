//! Which input pixels an output pixel reads, as arithmetic progressions per dimension.
//!
//! A plain convolution has one *phase*. In a transposed one, output o receives input i through tap k where
//! o + padding = i · stride + k · dilation; outputs with the same remainder modulo the stride read the same
//! taps, so each remainder is a phase of its own: a plain convolution of unit stride over some of the
//! taps. (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", section 4.)

use super::geometry::{Extents, Geometry};

/// One spatial dimension of one phase. Output q (of `count`) is output `out_start + q · out_step` of the
/// tensor; its tap t (of `taps`) is kernel element `kernel_start + t · kernel_step` and reads input
/// `q · in_step + in_start + t · tap_step`, zero when that is outside `0..size`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Axis {
    /// Outputs of the phase.
    pub count: usize,
    /// See [`Axis`].
    pub out_start: usize,
    /// See [`Axis`].
    pub out_step: usize,
    /// Taps of the phase; zero when it reads nothing.
    pub taps: usize,
    /// See [`Axis`].
    pub kernel_start: usize,
    /// See [`Axis`].
    pub kernel_step: usize,
    /// See [`Axis`].
    pub in_step: isize,
    /// See [`Axis`].
    pub in_start: isize,
    /// See [`Axis`].
    pub tap_step: isize,
    /// Input extent.
    pub size: usize,
}

/// The phase of a call: how outputs, taps and inputs go together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phase {
    /// Depth, height and width.
    pub axes: [Axis; 3],
}

impl Phase {
    /// Output pixels of the phase in one image.
    pub fn pixels(&self) -> usize {
        self.axes.iter().map(|a| a.count).product()
    }

    /// Taps of the phase.
    pub fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.taps).product()
    }
}

/// Number of phases along `d`.
fn phases_along(geometry: &Geometry, extents: &Extents, d: usize) -> usize {
    if geometry.is_transposed { geometry.stride[d].min(extents.output[d]) } else { 1 }
}

/// Number of phases of a call.
pub fn phase_count(geometry: &Geometry, extents: &Extents) -> usize {
    (0..3).map(|d| phases_along(geometry, extents, d)).product()
}

/// Phase `index` of [`phase_count`].
pub fn phase(geometry: &Geometry, extents: &Extents, index: usize) -> Phase {
    let mut axes = [Axis::default(); 3];
    let mut rest = index;
    for d in (0..3).rev() {
        let n = phases_along(geometry, extents, d);
        axes[d] = match geometry.is_transposed {
            true => transposed_axis(geometry, extents, d, rest % n),
            false => plain_axis(geometry, extents, d),
        };
        rest /= n;
    }
    Phase { axes }
}

fn plain_axis(geometry: &Geometry, extents: &Extents, d: usize) -> Axis {
    Axis {
        count: extents.output[d],
        out_start: 0,
        out_step: 1,
        taps: geometry.kernel[d],
        kernel_start: 0,
        kernel_step: 1,
        in_step: geometry.stride[d] as isize,
        in_start: -(geometry.padding[d] as isize),
        tap_step: geometry.dilation[d] as isize,
        size: extents.input[d],
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Outputs `remainder + q · stride`.
fn transposed_axis(geometry: &Geometry, extents: &Extents, d: usize, remainder: usize) -> Axis {
    let (stride, dilation, kernel) = (geometry.stride[d], geometry.dilation[d], geometry.kernel[d]);
    let from = remainder + geometry.padding[d];
    // Tap k takes part when k · dilation ≡ from (mod stride): every `step`-th one, if any.
    let step = stride / gcd(stride, dilation);
    let first = (0..step.min(kernel)).find(|k| (k * dilation) % stride == from % stride);
    let first_or_zero = first.unwrap_or(0);
    Axis {
        count: (extents.output[d] - remainder).div_ceil(stride),
        out_start: remainder,
        out_step: stride,
        taps: first.map_or(0, |k| (kernel - k).div_ceil(step)),
        kernel_start: first_or_zero,
        kernel_step: step,
        in_step: 1,
        in_start: (from as isize - (first_or_zero * dilation) as isize).div_euclid(stride as isize),
        tap_step: -((step * dilation / stride) as isize),
        size: extents.input[d],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every (output, tap) of every phase against the definition, in one dimension.
    #[test]
    fn phases_cover_every_pair_of_output_and_tap_once() {
        for (kernel, stride, padding, dilation, n) in [
            (3, 2, 1, 1, 5),
            (4, 2, 1, 1, 6),
            (2, 3, 0, 1, 4),
            (3, 4, 2, 2, 5),
            (5, 2, 3, 3, 7),
            (1, 3, 0, 1, 2),
        ] {
            for is_transposed in [false, true] {
                let geometry = Geometry {
                    spatial_rank: 1,
                    kernel: [1, 1, kernel],
                    stride: [1, 1, stride],
                    padding: [0, 0, padding],
                    padding_behind: [0, 0, padding],
                    dilation: [1, 1, dilation],
                    output_padding: [0; 3],
                    is_transposed,
                    groups: 1,
                    in_channels: 1,
                    out_channels: 1,
                };
                let shape = pteron_core::Dims::new(&[1, 1, n]).unwrap();
                let Ok(extents) = geometry.extents(&shape) else { continue };
                let mut found = Vec::new();
                for i in 0..phase_count(&geometry, &extents) {
                    let Axis { count, taps, size, .. } = phase(&geometry, &extents, i).axes[2];
                    let a = phase(&geometry, &extents, i).axes[2];
                    for q in 0..count {
                        for t in 0..taps {
                            let x = q as isize * a.in_step + a.in_start + t as isize * a.tap_step;
                            if (0..size as isize).contains(&x) {
                                found.push((
                                    a.out_start + q * a.out_step,
                                    a.kernel_start + t * a.kernel_step,
                                    x,
                                ));
                            }
                        }
                    }
                }
                let mut expected = Vec::new();
                for o in 0..extents.output[2] as isize {
                    for k in 0..kernel as isize {
                        for x in 0..n as isize {
                            let (wide, narrow) = if is_transposed { (o, x) } else { (x, o) };
                            if wide + padding as isize == narrow * stride as isize + k * dilation as isize {
                                expected.push((o as usize, k as usize, x));
                            }
                        }
                    }
                }
                found.sort();
                assert_eq!(found, expected, "{geometry:?}");
            }
        }
    }
}
