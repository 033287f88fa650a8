//! Shape rules that many operators share: wrapped dimensions, broadcasting, reduced shapes.

use pteron_core::{Dims, Error, IntListView, MAX_RANK, Result};

/// `dim` counted from the front; an error unless `-rank ≤ dim < rank` (rank 0 counts as 1).
pub fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    let n = rank.max(1) as i64;
    if dim < -n || dim >= n {
        return Err(Error::kernel("dimension out of range")
            .expected(format!("between {} and {}", -n, n - 1))
            .got(dim.to_string()));
    }
    Ok(if dim < 0 { dim + n } else { dim } as usize)
}

/// Wraps a list of dimensions; an error when one appears twice. Bit `d` of the result is set when
/// dimension `d` is listed.
pub fn dim_set(dims: &IntListView<'_>, rank: usize) -> Result<u32> {
    let mut set = 0u32;
    for dim in dims.iter() {
        let d = wrap_dim(dim?, rank)?;
        if set & (1 << d) != 0 {
            return Err(Error::kernel("a dimension appears twice in the list").got(d.to_string()));
        }
        set |= 1 << d;
    }
    Ok(set)
}

/// Bits of every dimension of a tensor of `rank`.
pub fn all_dims(rank: usize) -> u32 {
    ((1u64 << rank.min(MAX_RANK)) - 1) as u32
}

/// The shape after reducing the dimensions in `set`.
pub fn reduced_shape(shape: &[usize], set: u32, keepdim: bool) -> Result<Dims> {
    let mut out = Dims::EMPTY;
    for (d, extent) in shape.iter().enumerate() {
        if set & (1 << d) == 0 {
            out.push(*extent)?;
        } else if keepdim {
            out.push(1)?;
        }
    }
    Ok(out)
}

/// The shape two shapes broadcast to.
pub fn broadcast(a: &[usize], b: &[usize]) -> Result<Dims> {
    broadcast_shape(&[&Dims::new(a)?, &Dims::new(b)?])
}

/// The shape that `shapes` broadcast to; an error when two extents differ and neither is one.
pub fn broadcast_shape(shapes: &[&Dims]) -> Result<Dims> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = Dims::filled(rank, 1)?;
    for shape in shapes {
        for (slot, &n) in out.iter_mut().rev().zip(shape.iter().rev()) {
            if *slot == 1 {
                *slot = n;
            } else if n != 1 && n != *slot {
                let list: Vec<String> = shapes.iter().map(|s| s.to_string()).collect();
                return Err(Error::kernel("the shapes of the operands do not broadcast")
                    .expected("equal extents, or one of them 1, counted from the last dimension")
                    .got(list.join(" and ")));
            }
        }
    }
    Ok(out)
}

/// An error unless `shape` broadcasts to exactly `target`.
pub fn check_expandable(shape: &[usize], target: &[usize]) -> Result<()> {
    if *broadcast(shape, target)? != *target {
        return Err(Error::kernel("a tensor does not broadcast to the shape it is needed in")
            .expected(format!("{target:?}"))
            .got(format!("{shape:?}")));
    }
    Ok(())
}

/// An error unless the two shapes are equal.
pub fn check_same(what: &str, expected: &[usize], got: &[usize]) -> Result<()> {
    if expected != got {
        return Err(Error::kernel(format!("{what} has a wrong shape"))
            .expected(format!("{expected:?}"))
            .got(format!("{got:?}")));
    }
    Ok(())
}

/// An error unless the tensor has `rank` dimensions.
pub fn check_rank(what: &str, rank: usize, shape: &[usize]) -> Result<()> {
    if shape.len() != rank {
        return Err(Error::kernel(format!("{what} has a wrong rank"))
            .expected(format!("rank {rank}"))
            .got(format!("{shape:?}")));
    }
    Ok(())
}

/// `index` counted from the front; an error unless `-extent ≤ index < extent`.
#[inline]
pub fn wrap_index(index: i64, extent: usize) -> Result<usize> {
    let n = extent as i64;
    if index < -n || index >= n {
        return Err(index_out_of_range(index, -n, n - 1, ""));
    }
    Ok(if index < 0 { index + n } else { index } as usize)
}

/// `index` as it is; an error unless `0 ≤ index < extent`.
#[inline]
pub fn check_index(index: i64, extent: usize) -> Result<usize> {
    check_index_at(index, extent, String::new)
}

/// As [`check_index`], with words about where the index stands.
#[inline]
pub fn check_index_at(index: i64, extent: usize, place: impl FnOnce() -> String) -> Result<usize> {
    if index < 0 || index >= extent as i64 {
        return Err(index_out_of_range(index, 0, extent as i64 - 1, &place()));
    }
    Ok(index as usize)
}

#[cold]
fn index_out_of_range(index: i64, low: i64, high: i64, place: &str) -> Error {
    let expected = if high < low {
        "no index at all: the dimension is empty".to_string()
    } else {
        format!("between {low} and {high}")
    };
    Error::kernel("index out of range").expected(expected).got(format!("{index}{place}"))
}

/// `start` and length of `start..end` by `step` in a dimension of `extent`, with PyTorch's wrapping
/// and clamping.
pub fn slice_range(start: Option<i64>, end: Option<i64>, step: i64, extent: usize) -> Result<(usize, usize)> {
    if step <= 0 {
        return Err(Error::kernel("slice step must be positive").got(step.to_string()));
    }
    let n = extent as i64;
    let wrap = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    let start = wrap(start.unwrap_or(0)).clamp(0, n);
    let end = wrap(end.unwrap_or(i64::MAX)).clamp(start, n);
    let length = (end - start) / step + i64::from((end - start) % step != 0);
    Ok((start as usize, length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_wrap() {
        assert_eq!(wrap_dim(-1, 3).unwrap(), 2);
        assert_eq!(wrap_dim(-1, 0).unwrap(), 0);
        assert!(wrap_dim(3, 3).is_err());
        assert!(wrap_dim(i64::MIN, 3).is_err());
    }

    #[test]
    fn shapes_broadcast() {
        assert_eq!(*broadcast(&[3, 1], &[2, 1, 4]).unwrap(), [2, 3, 4]);
        assert_eq!(*broadcast(&[0], &[1]).unwrap(), [0]);
        assert!(broadcast(&[0], &[2]).is_err());
        assert!(check_expandable(&[2], &[1]).is_err());
    }

    #[test]
    fn slices_clamp() {
        assert_eq!(slice_range(Some(-2), None, 1, 5).unwrap(), (3, 2));
        assert_eq!(slice_range(None, Some(i64::MAX), 2, 5).unwrap(), (0, 3));
        assert_eq!(slice_range(Some(4), Some(2), 1, 5).unwrap(), (4, 0));
        assert_eq!(slice_range(Some(i64::MIN), Some(i64::MAX), i64::MAX, 5).unwrap(), (0, 1));
        assert!(slice_range(None, None, 0, 5).is_err());
    }

    #[test]
    fn indices_are_checked() {
        assert_eq!(wrap_index(-3, 3).unwrap(), 0);
        assert!(wrap_index(3, 3).is_err());
        assert!(wrap_index(i64::MIN, 3).is_err());
        assert!(check_index(-1, 3).is_err());
        assert!(check_index(0, 0).unwrap_err().to_string().contains("empty"));
    }
}
