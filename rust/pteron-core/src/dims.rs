//! A list of at most [`MAX_RANK`] extents, held inline so that shapes never allocate.

use crate::{Error, MAX_RANK, Result};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Extents or strides of a tensor, outermost first. Dereferences to a slice.
#[derive(Clone, Copy)]
pub struct Dims {
    len: u8,
    data: [usize; MAX_RANK],
}

impl Dims {
    /// No dimensions: the shape of a scalar.
    pub const EMPTY: Dims = Dims { len: 0, data: [0; MAX_RANK] };

    /// A copy of `dims`; an error when there are more than [`MAX_RANK`].
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_RANK {
            return Err(Error::program("a tensor has too many dimensions")
                .expected(format!("rank at most {MAX_RANK}"))
                .got(format!("rank {}", dims.len())));
        }
        let mut out = Self::EMPTY;
        out.len = dims.len() as u8;
        out.data[..dims.len()].copy_from_slice(dims);
        Ok(out)
    }

    /// `rank` times `value`; an error when `rank` exceeds [`MAX_RANK`].
    pub fn filled(rank: usize, value: usize) -> Result<Self> {
        let mut out = Self::EMPTY;
        for _ in 0..rank {
            out.push(value)?;
        }
        Ok(out)
    }

    /// From i64 extents as files have them; negative ones are refused.
    pub fn from_i64(dims: impl IntoIterator<Item = i64>) -> Result<Self> {
        let mut out = Self::EMPTY;
        for d in dims {
            let d = usize::try_from(d)
                .map_err(|_| Error::program("a tensor has a negative extent").got(d.to_string()))?;
            out.push(d)?;
        }
        Ok(out)
    }

    /// Appends one extent.
    pub fn push(&mut self, dim: usize) -> Result<()> {
        let at = self.len as usize;
        match self.data.get_mut(at) {
            Some(slot) => {
                *slot = dim;
                self.len += 1;
                Ok(())
            }
            None => Err(Error::program("a tensor has too many dimensions")
                .expected(format!("rank at most {MAX_RANK}"))),
        }
    }

    /// Inserts one extent before position `at` (0 ≤ `at` ≤ rank).
    pub fn insert(&mut self, at: usize, dim: usize) -> Result<()> {
        self.push(dim)?;
        if at >= self.len() {
            return Err(Error::program("dimension out of range").got(at.to_string()));
        }
        self[at..].rotate_right(1);
        Ok(())
    }

    /// Removes and returns the extent at `at`.
    pub fn remove(&mut self, at: usize) -> Result<usize> {
        if at >= self.len() {
            return Err(Error::program("dimension out of range").got(at.to_string()));
        }
        self[at..].rotate_left(1);
        self.len -= 1;
        Ok(self.data[self.len as usize])
    }

    /// Product of the extents; 1 for a scalar; an error when it exceeds `usize`.
    pub fn numel(&self) -> Result<usize> {
        crate::sizes::checked_numel(self)
    }
}

impl Deref for Dims {
    type Target = [usize];
    #[inline(always)]
    fn deref(&self) -> &[usize] {
        // `len` never exceeds MAX_RANK; min() lets the compiler see it.
        &self.data[..(self.len as usize).min(MAX_RANK)]
    }
}
impl DerefMut for Dims {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.data[..(self.len as usize).min(MAX_RANK)]
    }
}
impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for Dims {}
impl std::hash::Hash for Dims {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state)
    }
}
impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_and_remove_are_inverse() {
        let mut d = Dims::new(&[2, 3, 4]).unwrap();
        d.insert(1, 9).unwrap();
        assert_eq!(&*d, &[2, 9, 3, 4]);
        assert_eq!(d.remove(1).unwrap(), 9);
        assert_eq!(&*d, &[2, 3, 4]);
        assert!(d.remove(3).is_err());
        assert!(d.insert(5, 1).is_err());
    }

    #[test]
    fn rank_limit() {
        assert!(Dims::new(&[1; 16]).is_ok());
        assert!(Dims::new(&[1; 17]).is_err());
        assert!(Dims::from_i64([-1]).is_err());
    }
}
