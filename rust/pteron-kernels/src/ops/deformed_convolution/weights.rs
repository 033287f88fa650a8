//! The weights of a deformed convolution, in the order in which tiles read them.

use crate::ops::real::Real;
use crate::ops::tile_product::TALL;
use crate::routine::dtype_of;
use pteron_core::{ArgSpec, DType, PrepareContext, Result};

/// The weights in tiles, where they are known at load.
pub(super) enum Packed {
    Single(Vec<f32>),
    Double(Vec<f64>),
    None,
}

impl Packed {
    pub(super) fn of(ctx: &PrepareContext<'_>) -> Result<Packed> {
        let groups = ctx.args.get(11).and_then(ArgSpec::number).filter(|g| *g >= 1.0 && *g <= 65536.0);
        let (Some(weight), Some(groups)) = (ctx.args.get(1).and_then(ArgSpec::constant), groups) else {
            return Ok(Packed::None);
        };
        let (outputs, groups) = (weight.shape.first().copied().unwrap_or(0), groups as usize);
        if outputs == 0 || !outputs.is_multiple_of(groups) {
            // What `bind` refuses.
            return Ok(Packed::None);
        }
        Ok(match dtype_of(ctx, 1)? {
            DType::Float32 => Packed::Single(pack(&weight.row_major::<f32>()?, outputs, groups)),
            DType::Float64 => Packed::Double(pack(&weight.row_major::<f64>()?, outputs, groups)),
            _ => Packed::None,
        })
    }
}

/// The weights `[O, C / groups, h, w]`, dense, as tiles of [`TALL`] output channels of one group: those of a row of columns
/// side by side.
fn pack<T: Real>(weight: &[T], outputs: usize, groups: usize) -> Vec<T> {
    let rows = weight.len() / outputs.max(1);
    let each = outputs / groups.max(1);
    let mut packed = Vec::with_capacity(groups * each.div_ceil(TALL) * rows * TALL);
    for group in 0..groups {
        for first in (0..each).step_by(TALL) {
            let channels = TALL.min(each - first);
            let of = |o: usize, row: usize| match o < channels {
                true => weight[(group * each + first + o) * rows + row],
                false => T::ZERO,
            };
            packed.extend(
                (0..rows).flat_map(|row| (0..TALL).map(move |o| (o, row))).map(|(o, row)| of(o, row)),
            );
        }
    }
    packed
}
