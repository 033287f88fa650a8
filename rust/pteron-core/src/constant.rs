//! Constants as kernels see them at load: bytes of the program, possibly through a layout-only
//! change (permute, view) that was folded symbolically.

use crate::{DType, Dims, Element, Error, Result, memory_reserve};

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

    /// All logical elements in row-major order, copied.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let data = self.elements::<T>()?;
        let numel = self.numel()?;
        let mut out = memory_reserve::try_with_capacity(numel)?;
        let rank = self.shape.len();
        let mut index = Dims::filled(rank, 0)?;
        for _ in 0..numel {
            let at = self.position(&index);
            out.push(*data.get(at).ok_or_else(|| Error::program("constant view leaves its storage"))?);
            for d in (0..rank).rev() {
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
