//! The one to three spatial dimensions of `[N, C, spatial]` or `[C, spatial]`, filled up to three with
//! leading ones: one loop serves signals, images and volumes.

use pteron_core::{Args, Dims, Error, Result, TensorMeta};

/// Integers of argument `i`, one for all or one for each of `N` spatial dimensions and each at least
/// `least`, in the last `N` of three places; the others hold `filler`. `default` is for an empty list.
pub(crate) fn integers<const N: usize>(
    args: &Args<'_>,
    i: usize,
    (name, least, filler): (&str, i64, i64),
    default: Option<[i64; 3]>,
) -> Result<[i64; 3]> {
    let list = args.int_list(i)?;
    let mut values = [filler; 3];
    match (list.len(), default) {
        (0, Some(default)) => return Ok(default),
        (n, _) if n == 1 || n == N => {
            for (d, slot) in values[3 - N..].iter_mut().enumerate() {
                *slot = list.get(if n == 1 { 0 } else { d })?;
            }
        }
        (n, _) => {
            return Err(Error::kernel("a list must have one entry, or one per spatial dimension")
                .argument(name)
                .expected(format!("1 or {N}"))
                .got(n.to_string()));
        }
    }
    match values[3 - N..].iter().find(|v| **v < least || **v > i64::from(i32::MAX)) {
        Some(v) => Err(Error::kernel("a value is out of range")
            .argument(name)
            .expected(format!("between {least} and {}", i32::MAX))
            .got(v.to_string())),
        None => Ok(values),
    }
}

/// The spatial extents of an input, which must have `N` of them and no empty dimension after the batch.
pub(crate) fn extents<const N: usize>(shape: &Dims) -> Result<[i64; 3]> {
    let rank = shape.len();
    if !(N + 1..=N + 2).contains(&rank) || shape[rank - N - 1..].contains(&0) {
        return Err(Error::kernel(
            "the input must be [N, C, spatial] or [C, spatial] without empty dimensions after N",
        )
        .argument("self")
        .expected(format!("{N} spatial dimensions"))
        .got(shape.to_string()));
    }
    spatial_extents::<N>(shape)
}

/// The last `N` extents of a shape that has as many, empty or not.
pub(crate) fn spatial_extents<const N: usize>(shape: &Dims) -> Result<[i64; 3]> {
    let mut out = [1; 3];
    for (slot, n) in out[3 - N..].iter_mut().zip(&shape[shape.len() - N..]) {
        *slot = i32::try_from(*n).map(i64::from).map_err(|_| Error::kernel("an extent is too large"))?;
    }
    Ok(out)
}

/// The shape with other spatial extents.
pub(crate) fn with_extents<const N: usize>(shape: &Dims, extents: [i64; 3]) -> Dims {
    let mut out = *shape;
    let rank = out.len();
    for (slot, n) in out[rank - N..].iter_mut().zip(&extents[3 - N..]) {
        *slot = *n as usize;
    }
    out
}

/// Where the spatial elements of one channel of one batch entry lie.
#[derive(Clone, Copy)]
pub(crate) struct Volume {
    base: usize,
    strides: [usize; 3],
}

impl Volume {
    /// Offset of an element.
    pub(crate) fn at(self, [d, h, w]: [i64; 3]) -> usize {
        self.base + d as usize * self.strides[0] + h as usize * self.strides[1] + w as usize * self.strides[2]
    }

    /// Elements from one to the next along the last dimension.
    pub(crate) fn step(self) -> isize {
        self.strides[2] as isize
    }

    /// Volume number `p` of a tensor, counting batch and channels in row-major order.
    pub(crate) fn of<const N: usize>(meta: &TensorMeta, p: usize) -> Volume {
        let (shape, from, rank) = (meta.shape(), meta.strides(), meta.rank());
        let channels = shape[rank - N - 1];
        let batch = if rank == N + 2 { p / channels * from[0] } else { 0 };
        let mut strides = [0; 3];
        strides[3 - N..].copy_from_slice(&from[rank - N..]);
        Volume { base: batch + p % channels * from[rank - N - 1], strides }
    }
}

/// How many volumes a tensor has.
pub(crate) fn volumes<const N: usize>(meta: &TensorMeta) -> usize {
    meta.shape()[..meta.rank() - N].iter().product()
}

/// Every place of a box of these extents, row-major.
pub(crate) fn places([d, h, w]: [i64; 3]) -> impl Iterator<Item = [i64; 3]> {
    (0..d).flat_map(move |z| (0..h).flat_map(move |y| (0..w).map(move |x| [z, y, x])))
}
