//! Views of a constant by stride arithmetic.

use pteron_core::Dims;

/// First element, extents and strides of a view, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub offset: usize,
    pub shape: Dims,
    pub strides: Dims,
}

impl View {
    /// Dimensions reordered; `None` when `order` is not a permutation (negative counts from the end).
    pub fn permute(&self, order: &[i64]) -> Option<View> {
        if order.len() != self.shape.len() {
            return None;
        }
        let (mut shape, mut strides, mut seen) = (Dims::EMPTY, Dims::EMPTY, 0u32);
        for d in order {
            let d = wrap(*d, self.shape.len())?;
            let bit = 1u32.checked_shl(u32::try_from(d).ok()?)?;
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
            shape.push(*self.shape.get(d)?).ok()?;
            strides.push(*self.strides.get(d)?).ok()?;
        }
        Some(View { offset: self.offset, shape, strides })
    }

    /// The same elements in row-major order under other extents; `None` when that needs a copy.
    /// Follows PyTorch's rule for `Tensor.view`: each group of old dimensions that new ones split must
    /// be contiguous among themselves.
    pub fn reshape(&self, shape: &Dims) -> Option<View> {
        if shape.numel().ok()? != self.shape.numel().ok()? {
            return None;
        }
        let mut strides = Dims::filled(shape.len(), 0).ok()?;
        if shape.numel().ok()? == 0 {
            return Some(View { offset: self.offset, shape: *shape, strides });
        }
        // Old dimensions of extent 1 carry no order.
        let old: Vec<(usize, usize)> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|(n, _)| *n != 1).collect();
        let mut old = old.into_iter().rev().peekable();
        // The current group: elements still to hand out and the stride of the next one.
        let (mut left, mut stride) = (1usize, 1usize);
        for d in (0..shape.len()).rev() {
            let n = *shape.get(d)?;
            if n != 1 && left == 1 {
                let (extent, s) = old.next()?;
                (left, stride) = (extent, s);
                while let Some((next, next_stride)) = old.peek().copied() {
                    if next_stride != s.checked_mul(left)? {
                        break;
                    }
                    left = left.checked_mul(next)?;
                    old.next();
                }
            }
            *strides.get_mut(d)? = stride;
            if n != 1 {
                if left.checked_rem(n)? != 0 {
                    return None;
                }
                left = left.checked_div(n)?;
                stride = stride.checked_mul(n)?;
            }
        }
        (left == 1 && old.next().is_none()).then_some(View { offset: self.offset, shape: *shape, strides })
    }

    /// One index of a dimension.
    pub fn select(&self, dim: i64, index: i64) -> Option<View> {
        let d = wrap(dim, self.shape.len())?;
        let i = wrap(index, *self.shape.get(d)?)?;
        let mut out = *self;
        out.offset = self.offset.checked_add(i.checked_mul(*self.strides.get(d)?)?)?;
        out.shape.remove(d).ok()?;
        out.strides.remove(d).ok()?;
        Some(out)
    }

    /// A dimension of extent 1 before `dim`.
    pub fn unsqueeze(&self, dim: i64) -> Option<View> {
        let d = wrap(dim, self.shape.len().checked_add(1)?)?;
        let mut out = *self;
        out.shape.insert(d, 1).ok()?;
        out.strides.insert(d, 1).ok()?;
        Some(out)
    }
}

/// A possibly negative index into `0..len`.
fn wrap(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    (0..len).contains(&index).then(|| usize::try_from(index).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(shape: &[usize]) -> View {
        let shape = Dims::new(shape).unwrap();
        let strides = pteron_core::DimOrder::contiguous(shape.len()).strides(&shape);
        View { offset: 0, shape, strides }
    }

    fn dims(d: &[usize]) -> Dims {
        Dims::new(d).unwrap()
    }

    #[test]
    fn permute_and_back() {
        let v = dense(&[2, 3, 4]);
        let p = v.permute(&[2, 0, -2]).unwrap();
        assert_eq!((&*p.shape, &*p.strides), (&[4, 2, 3][..], &[1, 12, 4][..]));
        assert_eq!(p.permute(&[1, 2, 0]).unwrap(), v);
        assert!(v.permute(&[0, 0, 1]).is_none());
        assert!(v.permute(&[0, 1]).is_none());
    }

    #[test]
    fn reshape_splits_and_joins_where_no_copy_is_needed() {
        let v = dense(&[6, 4]);
        assert_eq!(v.reshape(&dims(&[2, 3, 4])).unwrap(), dense(&[2, 3, 4]));
        assert_eq!(v.reshape(&dims(&[24])).unwrap(), dense(&[24]));
        assert_eq!(&*v.reshape(&dims(&[1, 6, 1, 4])).unwrap().shape, &[1, 6, 1, 4]);
        let t = v.permute(&[1, 0]).unwrap();
        assert!(t.reshape(&dims(&[24])).is_none());
        assert_eq!(&*t.reshape(&dims(&[2, 2, 6])).unwrap().strides, &[2, 1, 4]);
        assert!(v.reshape(&dims(&[5, 5])).is_none());
    }

    #[test]
    fn select_and_unsqueeze() {
        let v = dense(&[2, 3]);
        let s = v.select(0, -1).unwrap();
        assert_eq!((s.offset, &*s.shape), (3, &[3][..]));
        assert!(v.select(0, 2).is_none());
        assert_eq!(&*v.unsqueeze(-1).unwrap().shape, &[2, 3, 1]);
    }
}
