//! Windows over rows and columns: extents of results, padding that operators do not have.

use super::held::{Held, channels_last};
use super::translator::Translator;
use crate::payload::Window;
use pteron_core::{Dims, Error, Result};

/// Extents of images: number, channels, height, width.
pub(super) type Image = [usize; 4];

impl Translator<'_> {
    /// A value as images with channels in front of rows and columns, and their extents.
    pub(super) fn image(&mut self, held: &Held) -> Result<(Held, Image)> {
        held.require_rank(4)?;
        let held = self.ordered(held, channels_last()?)?;
        match *held.extents {
            [number, channels, height, width] => Ok((held, [number, channels, height, width])),
            _ => Err(Error::internal("an image of an XNNPACK payload lost a dimension")),
        }
    }

    /// Images of other extents.
    pub(super) fn image_like(&mut self, held: &Held, extents: Image) -> Result<Held> {
        self.sheet.intermediate(held.dtype, Dims::new(&extents)?, held.order, held.is_dynamic)
    }

    /// Images with `before` and `after` rows and columns of `value` around them.
    pub(super) fn padded(
        &mut self,
        held: &Held,
        before: [usize; 2],
        after: [usize; 2],
        value: f64,
    ) -> Result<(Held, Image)> {
        let (held, [number, channels, height, width]) = self.image(held)?;
        let ([top, left], [bottom, right]) = (before, after);
        if [top, left, bottom, right] == [0; 4] {
            return Ok((held, [number, channels, height, width]));
        }
        let sum = |extent: usize, before: usize, after: usize| {
            extent.checked_add(before).and_then(|n| n.checked_add(after)).ok_or_else(too_large)
        };
        let extents = [number, channels, sum(height, top, bottom)?, sum(width, left, right)?];
        let out = self.image_like(&held, extents)?;
        // From the last dimension outwards.
        let pad = self.sheet.extents(&[left, right, top, bottom]);
        let value = self.sheet.double(value);
        self.sheet.call("aten::constant_pad_nd.out", &[held.tensor, pad, value], &[out.tensor]);
        Ok((out, extents))
    }

    /// Plain arguments that are pairs.
    pub(super) fn pair(&mut self, pair: [usize; 2]) -> usize {
        self.sheet.extents(&pair)
    }
}

/// How many windows there are over `extent` elements and their padding.
pub(super) fn windows(extent: usize, window: &Window, axis: usize) -> Result<usize> {
    let ([Some(kernel), Some(stride), Some(dilation)], Some(before), Some(after)) = (
        [window.kernel.get(axis), window.stride.get(axis), window.dilation.get(axis)],
        window.before.get(axis),
        window.after.get(axis),
    ) else {
        return Err(Error::internal("a window has two dimensions"));
    };
    let span = kernel.checked_sub(1).and_then(|k| k.checked_mul(*dilation)).and_then(|k| k.checked_add(1));
    let span = span.ok_or_else(too_large)?;
    let room = extent.checked_add(*before).and_then(|n| n.checked_add(*after)).ok_or_else(too_large)?;
    let Some(steps) = room.checked_sub(span).and_then(|rest| rest.checked_div(*stride)) else {
        return Err(Error::program("the window is larger than the padded input")
            .expected(format!("at most {room} elements"))
            .got(format!("{span} elements")));
    };
    steps.checked_add(1).ok_or_else(too_large)
}

pub(super) fn too_large() -> Error {
    Error::program("extents of the node are too large to add up")
}
