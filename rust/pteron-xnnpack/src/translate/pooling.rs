//! Pooling, and resizing of images.

use super::translator::Translator;
use super::windows::{Image, windows};
use crate::payload::Window;
use pteron_core::{DType, DimOrder, Dims, Error, Result};

impl Translator<'_> {
    pub(super) fn max_pooling(
        &mut self,
        window: &Window,
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        let dtype = self.dtype_of(output)?;
        let held = self.real(input, dtype)?;
        let (image, extents) = self.image(&held)?;
        let (image, [number, channels, height, width], window, is_ceil) =
            match rounding(window, &extents, held.is_dynamic) {
                Some(is_ceil) => (image, extents, *window, is_ceil),
                // The operator has one padding for both sides, of half a window at most.
                None => {
                    let (padded, extents) =
                        self.padded(&held, window.before, window.after, f64::NEG_INFINITY)?;
                    (padded, extents, Window { before: [0, 0], after: [0, 0], ..*window }, false)
                }
            };
        let extents = [number, channels, windows(height, &window, 0)?, windows(width, &window, 1)?];
        let out = self.image_like(&image, extents)?;
        let indices = self.sheet.intermediate(DType::Int64, out.extents, out.order, out.is_dynamic)?;
        let (kernel, stride) = (self.pair(window.kernel), self.pair(window.stride));
        let (padding, dilation) = (self.pair(window.before), self.pair(window.dilation));
        let is_ceil = self.sheet.bool(is_ceil);
        let args = [image.tensor, kernel, stride, padding, dilation, is_ceil];
        self.sheet.call("aten::max_pool2d_with_indices.out", &args, &[out.tensor, indices.tensor]);
        self.finish(output, out, limits)
    }

    pub(super) fn average_pooling(
        &mut self,
        window: &Window,
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        let dtype = self.dtype_of(output)?;
        let held = self.real(input, dtype)?;
        let (image, [number, channels, height, width]) = self.image(&held)?;
        if window.before != window.after {
            return Err(Error::missing_operator("an average has another padding before than after")
                .expected("equal padding, as ExecuTorch's exporter writes it")
                .got(format!("{:?} and {:?}", window.before, window.after)));
        }
        let extents = [number, channels, windows(height, window, 0)?, windows(width, window, 1)?];
        let out = self.image_like(&image, extents)?;
        let (kernel, stride, padding) =
            (self.pair(window.kernel), self.pair(window.stride), self.pair(window.before));
        // Padding does not count in XNNPACK's averages.
        let (no, none) = (self.sheet.bool(false), self.sheet.none());
        let args = [image.tensor, kernel, stride, padding, no, no, none];
        self.sheet.call("aten::avg_pool2d.out", &args, &[out.tensor]);
        self.finish(output, out, limits)
    }

    /// The largest element of each column or row, and where it is.
    pub(super) fn arg_max_pooling(
        &mut self,
        window: &Window,
        input: usize,
        values: usize,
        indices: usize,
    ) -> Result<()> {
        let dtype = self.dtype_of(values)?;
        let held = self.real(input, dtype)?;
        let (image, [number, channels, height, width]) = self.image(&held)?;
        let is_unpadded = window.before == [0, 0] && window.after == [0, 0];
        let (axis, extents): (usize, Image) = match window.kernel {
            [h, 1] if h == height && is_unpadded => (2, [number, channels, 1, width]),
            [1, w] if w == width && is_unpadded => (3, [number, channels, height, 1]),
            kernel => {
                return Err(Error::missing_operator(
                    "places of largest elements are found along whole columns or rows",
                )
                .expected(format!("a window of [{height}, 1] or [1, {width}] without padding"))
                .got(format!("{kernel:?}")));
            }
        };
        let largest = self.image_like(&image, extents)?;
        let places =
            self.sheet.intermediate(DType::Int64, largest.extents, largest.order, largest.is_dynamic)?;
        let (axis, keeps) = (self.sheet.extent(axis), self.sheet.bool(true));
        let outputs = [largest.tensor, places.tensor];
        self.sheet.call("aten::max.dim_max", &[image.tensor, axis, keeps], &outputs);
        // Whatever type the payload states for places: exporters write fp32 and mean the integers of the argument.
        self.finish_raw(indices, places);
        self.finish(values, largest, (f32::NEG_INFINITY, f32::INFINITY))
    }

    /// The mean over rows and columns.
    pub(super) fn global_average_pooling(
        &mut self,
        input: usize,
        output: usize,
        keeps_dims: bool,
        limits: (f32, f32),
    ) -> Result<()> {
        let dtype = self.dtype_of(output)?;
        let held = self.real(input, dtype)?;
        let (image, [number, channels, ..]) = self.image(&held)?;
        let out = if keeps_dims {
            self.image_like(&image, [number, channels, 1, 1])?
        } else {
            let extents = Dims::new(&[number, channels])?;
            self.sheet.intermediate(dtype, extents, DimOrder::contiguous(2), image.is_dynamic)?
        };
        let (axes, keeps, none) = (self.pair([2, 3]), self.sheet.bool(keeps_dims), self.sheet.none());
        self.sheet.call("aten::mean.out", &[image.tensor, axes, keeps, none], &[out.tensor]);
        self.finish(output, out, limits)
    }

    pub(super) fn resize(
        &mut self,
        (height, width): (usize, usize),
        aligns_corners: bool,
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        let dtype = self.dtype_of(output)?;
        let held = self.real(input, dtype)?;
        let (image, [number, channels, ..]) = self.image(&held)?;
        let out = self.image_like(&image, [number, channels, height, width])?;
        let (size, corners, none) =
            (self.pair([height, width]), self.sheet.bool(aligns_corners), self.sheet.none());
        self.sheet.call(
            "aten::upsample_bilinear2d.vec_out",
            &[image.tensor, size, corners, none],
            &[out.tensor],
        );
        self.finish(output, out, limits)
    }
}

/// Is this the padding of the operator, with results rounded down or up? An exporter writes a pooling that rounds up as one
/// with as much more padding at the end.
fn rounding(window: &Window, [_, _, height, width]: &Image, is_dynamic: bool) -> Option<bool> {
    let pick = |pair: [usize; 2], axis: usize| pair.get(axis).copied().unwrap_or_default();
    let is_small = |axis: usize| pick(window.before, axis) <= pick(window.kernel, axis) / 2;
    if !is_small(0) || !is_small(1) {
        return None;
    }
    if window.before == window.after {
        return Some(false);
    }
    let rounds_up = |extent: usize, axis: usize| {
        let surplus = pick(window.after, axis).checked_sub(pick(window.before, axis))?;
        (surplus == surplus_of_ceiling(extent, window, axis)?).then_some(())
    };
    (!is_dynamic && rounds_up(*height, 0).is_some() && rounds_up(*width, 1).is_some()).then_some(true)
}

/// How much more padding makes one window more, where rounding up would have it.
fn surplus_of_ceiling(extent: usize, window: &Window, axis: usize) -> Option<usize> {
    let pick = |pair: [usize; 2]| pair.get(axis).copied();
    let (kernel, stride, dilation) = (pick(window.kernel)?, pick(window.stride)?, pick(window.dilation)?);
    let padding = pick(window.before)?;
    let room = extent.checked_add(padding.checked_mul(2)?)?;
    let rest = room.checked_sub(kernel.checked_sub(1)?.checked_mul(dilation)?)?.checked_sub(1)?;
    let last_start = rest.checked_add(stride.checked_sub(1)?)?.checked_div(stride)?.checked_mul(stride)?;
    let partial = rest.checked_rem(stride)?;
    // The last window has to begin within the input or the padding before it.
    let begins_outside = last_start >= extent.checked_add(padding)?;
    Some(if partial > 0 && !begins_outside { stride.checked_sub(partial)? } else { 0 })
}
