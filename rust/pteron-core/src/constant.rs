//! Constants as kernels see them at load: bytes of the program, possibly through a layout-only
//! change (permute, view) that was folded symbolically.

use crate::{DType, Dims, Element, Error, Result, memory_reserve};
use std::borrow::Cow;

/// Identifies the bytes of a constant within a program, for sharing packed copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConstantKey {
    /// Which storage: the constant segment, a data file, or values computed at load.
    pub origin: u32,
    /// Byte offset within it.
    pub offset: u64,
    /// Length in bytes.
    pub nbytes: u64,
}

/// A constant tensor with any strides. `data` starts at element 0 of the storage.
#[derive(Debug, Clone, Copy)]
pub struct ConstantView<'a> {
    /// Whose bytes these are.
    pub key: ConstantKey,
    /// The storage of the constant.
    pub data: &'a [u8],
    /// Element type.
    pub dtype: DType,
    /// First element, counted in elements from the start of `data`.
    pub offset: usize,
    /// Logical extents.
    pub shape: Dims,
    /// Strides in elements.
    pub strides: Dims,
}

impl<'a> ConstantView<'a> {
    /// The storage as elements; an error for another dtype or misaligned data.
    pub fn elements<T: Element>(&self) -> Result<&'a [T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::kernel("constant has another dtype")
                .expected(T::DTYPE.name())
                .got(self.dtype.name()));
        }
        if self.data.is_empty() {
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(self.data)
            .map_err(|e| Error::program("constant is misaligned for its dtype").got(e.to_string()))
    }

    /// Element at a logical index, by strides; `None` outside the storage.
    pub fn position(&self, index: &[usize]) -> usize {
        index.iter().zip(self.strides.iter()).fold(self.offset, |at, (i, s)| at + i * s)
    }

    /// Number of logical elements.
    pub fn numel(&self) -> Result<usize> {
        self.shape.numel()
    }

    /// All logical elements in row-major order, borrowed where they lie so, else copied.
    ///
    /// Errors: another element type, a view that leaves its storage.
    pub fn row_major<T: Element>(&self) -> Result<Cow<'a, [T]>> {
        let numel = self.numel()?;
        if !self.is_row_major() {
            return self.to_vec().map(Cow::Owned);
        }
        let data = self.elements::<T>()?;
        if numel == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let end = self.offset.checked_add(numel).ok_or_else(leaves_its_storage)?;
        data.get(self.offset..end).map(Cow::Borrowed).ok_or_else(leaves_its_storage)
    }

    fn is_row_major(&self) -> bool {
        let mut step = 1usize;
        self.shape.iter().zip(self.strides.iter()).rev().all(|(n, stride)| {
            let fits = *n == 1 || *stride == step;
            step = step.saturating_mul(*n);
            fits
        })
    }

    /// All logical elements in row-major order, copied.
    ///
    /// Errors: another element type, a view that leaves its storage, no memory.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let data = self.elements::<T>()?;
        let numel = self.numel()?;
        let mut out = memory_reserve::try_with_capacity(numel)?;
        if numel == 0 {
            return Ok(out);
        }
        let last = self
            .shape
            .iter()
            .zip(self.strides.iter())
            .try_fold(self.offset, |at, (n, stride)| at.checked_add((n - 1).checked_mul(*stride)?));
        if last.is_none_or(|last| last >= data.len()) {
            return Err(leaves_its_storage());
        }
        // Row by row: the innermost dimension without a look at the others.
        let outer = self.shape.len().saturating_sub(1);
        let (width, across) = (self.shape.get(outer).copied(), self.strides.get(outer).copied());
        let (width, across) = (width.unwrap_or(1), across.unwrap_or(1));
        let mut index = Dims::filled(outer, 0)?;
        for _ in 0..numel / width {
            let row = &data[self.position(&index)..];
            match across {
                0 => out.extend(std::iter::repeat_n(row[0], width)),
                1 => out.extend_from_slice(&row[..width]),
                _ => out.extend(row.iter().step_by(across).take(width)),
            }
            for d in (0..outer).rev() {
                index[d] += 1;
                if index[d] < self.shape[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        Ok(out)
    }
}

fn leaves_its_storage() -> Error {
    Error::program("constant view leaves its storage")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(data: &'a [f32], offset: usize, shape: &[usize], strides: &[usize]) -> ConstantView<'a> {
        ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: 0 },
            data: bytemuck::cast_slice(data),
            dtype: DType::Float32,
            offset,
            shape: Dims::new(shape).unwrap(),
            strides: Dims::new(strides).unwrap(),
        }
    }

    #[test]
    fn elements_come_in_row_major_order_whatever_the_strides() {
        let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let cases: [(usize, &[usize], &[usize], bool); 9] = [
            (0, &[2, 3, 4], &[12, 4, 1], true),
            (3, &[2, 3], &[3, 1], true),
            (0, &[2, 3, 4], &[1, 2, 6], false),
            (1, &[2, 4], &[4, 2], false),
            (0, &[3, 2], &[1, 0], false),
            (2, &[1, 4, 1], &[99, 1, 77], true),
            (23, &[], &[], true),
            (5, &[1], &[9], true),
            (0, &[2, 3], &[4, 1], false),
        ];
        for (offset, shape, strides, is_borrowed) in cases {
            let view = view(&data, offset, shape, strides);
            let numel = view.numel().unwrap();
            let want: Vec<f32> = (0..numel)
                .map(|mut i| {
                    let mut at = offset;
                    for (n, stride) in shape.iter().zip(strides).rev() {
                        at += i % n * stride;
                        i /= n;
                    }
                    data[at]
                })
                .collect();
            assert_eq!(view.to_vec::<f32>().unwrap(), want, "{shape:?} {strides:?}");
            let got = view.row_major::<f32>().unwrap();
            assert_eq!(&*got, want, "{shape:?} {strides:?}");
            assert_eq!(matches!(got, Cow::Borrowed(_)), is_borrowed, "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn views_outside_their_storage_are_errors_and_empty_ones_are_not() {
        let data = [0.0f32; 6];
        for (offset, shape, strides) in [
            (1, [2, 3], [3, 1]),
            (0, [2, 3], [4, 1]),
            (usize::MAX, [2, 3], [3, 1]),
            (0, [2, 3], [usize::MAX, 1]),
        ] {
            let view = view(&data, offset, &shape, &strides);
            for e in [view.to_vec::<f32>().unwrap_err(), view.row_major::<f32>().unwrap_err()] {
                assert!(e.to_string().contains("leaves its storage"), "{e}");
            }
        }
        let empty = view(&data, 90, &[2, 0], &[0, 1]);
        assert!(empty.to_vec::<f32>().unwrap().is_empty() && empty.row_major::<f32>().unwrap().is_empty());
        assert!(view(&data, 0, &[6], &[1]).row_major::<i32>().is_err());
    }
}
