//! Memory order of a dense tensor: a permutation of its dimensions, outermost first.

use crate::{Dims, Error, MAX_RANK, Result};
use std::fmt;

/// A permutation of `0..rank`: `[0, 1, 2, 3]` is contiguous, `[0, 2, 3, 1]` channels-last.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DimOrder {
    len: u8,
    data: [u8; MAX_RANK],
}

impl DimOrder {
    /// Row-major order for `rank` dimensions (at most [`MAX_RANK`]).
    pub fn contiguous(rank: usize) -> Self {
        let mut data = [0u8; MAX_RANK];
        let rank = rank.min(MAX_RANK);
        for (i, d) in data.iter_mut().enumerate().take(rank) {
            *d = i as u8;
        }
        DimOrder { len: rank as u8, data }
    }

    /// Checks that `order` is a permutation of `0..order.len()`.
    pub fn new(order: &[u8]) -> Result<Self> {
        let bad =
            || Error::program("dim_order is not a permutation of the dimensions").got(format!("{order:?}"));
        if order.len() > MAX_RANK {
            return Err(bad());
        }
        let mut seen = 0u32;
        let mut data = [0u8; MAX_RANK];
        for (slot, &d) in data.iter_mut().zip(order) {
            if d as usize >= order.len() || seen & (1 << d) != 0 {
                return Err(bad());
            }
            seen |= 1 << d;
            *slot = d;
        }
        Ok(DimOrder { len: order.len() as u8, data })
    }

    /// The permutation.
    pub fn as_slice(&self) -> &[u8] {
        &self.data[..(self.len as usize).min(MAX_RANK)]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.len as usize
    }

    /// Row-major?
    pub fn is_contiguous(&self) -> bool {
        self.as_slice().iter().enumerate().all(|(i, d)| i == *d as usize)
    }

    /// `[0, 2, .., rank-1, 1]` with rank 3, 4 or 5?
    pub fn is_channels_last(&self) -> bool {
        let o = self.as_slice();
        match o.len() {
            3 => o == [0, 2, 1],
            4 => o == [0, 2, 3, 1],
            5 => o == [0, 2, 3, 4, 1],
            _ => false,
        }
    }

    /// Do `strides` describe a dense tensor of `shape` in this order? See [`is_dense`].
    pub fn is_dense<S: Copy + TryInto<usize>>(&self, shape: &[usize], strides: &[S]) -> bool {
        is_dense(self.as_slice().iter().rev().map(|d| usize::from(*d)), shape, strides)
    }

    /// Strides in elements of a dense tensor of `shape` in this order. Zero extents count as one,
    /// as PyTorch has it. `shape` must have this rank and a representable element count.
    pub fn strides(&self, shape: &Dims) -> Dims {
        let mut out = *shape;
        let mut stride = 1usize;
        for &d in self.as_slice().iter().rev() {
            if let (Some(s), Some(&n)) = (out.get_mut(d as usize), shape.get(d as usize)) {
                *s = stride;
                stride = stride.wrapping_mul(n.max(1));
            }
        }
        out
    }
}

/// Do `strides` describe a dense tensor of `shape`, its dimensions named from the innermost one outwards? Dimensions of
/// extent one have no order, and a tensor without elements is always dense.
pub fn is_dense<S: Copy + TryInto<usize>>(
    innermost_first: impl IntoIterator<Item = usize>,
    shape: &[usize],
    strides: &[S],
) -> bool {
    let mut expected = 1usize;
    let mut fits = |d: usize| {
        let (Some(&n), Some(&stride)) = (shape.get(d), strides.get(d)) else { return false };
        let is_next = n == 1 || stride.try_into().is_ok_and(|stride| stride == expected);
        expected = expected.wrapping_mul(n);
        is_next
    };
    shape.contains(&0) || innermost_first.into_iter().all(&mut fits)
}

impl fmt::Debug for DimOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_follow_the_order() {
        let shape = Dims::new(&[2, 3, 4, 5]).unwrap();
        assert_eq!(&*DimOrder::contiguous(4).strides(&shape), &[60, 20, 5, 1]);
        assert_eq!(&*DimOrder::new(&[0, 2, 3, 1]).unwrap().strides(&shape), &[60, 1, 15, 3]);
        assert!(DimOrder::new(&[0, 2, 3, 1]).unwrap().is_channels_last());
        assert!(DimOrder::new(&[0, 2, 1]).unwrap().is_channels_last());
    }

    #[test]
    fn dense_strides_are_those_of_the_order() {
        let order = DimOrder::new(&[0, 2, 3, 1]).unwrap();
        assert!(order.is_dense(&[2, 3, 4, 5], &[60usize, 1, 15, 3]));
        assert!(!DimOrder::contiguous(4).is_dense(&[2, 3, 4, 5], &[60usize, 1, 15, 3]));
        // One index has no neighbour, and nothing has no order.
        assert!(DimOrder::contiguous(2).is_dense(&[1, 5], &[-7isize, 1]));
        assert!(!DimOrder::contiguous(1).is_dense(&[5], &[-1isize]));
        assert!(DimOrder::contiguous(2).is_dense(&[0, 5], &[3isize, -2]));
        assert!(is_dense(0..2, &[3, 2], &[1isize, 3]) && !is_dense((0..2).rev(), &[3, 2], &[1isize, 3]));
    }

    #[test]
    fn only_permutations_pass() {
        assert!(DimOrder::new(&[0, 0]).is_err());
        assert!(DimOrder::new(&[1, 2]).is_err());
        assert!(DimOrder::new(&[0; 17]).is_err());
        assert!(DimOrder::new(&[]).is_ok());
    }
}
