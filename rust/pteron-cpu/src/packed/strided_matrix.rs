//! Matrices to pack, in any strides.

use pteron_core::{ConstantView, Element, Error, Result};

/// A strided matrix, all of which lies inside its storage.
pub(crate) struct StridedMatrix<'a, T> {
    /// From the first one on.
    pub elements: &'a [T],
    /// Rows, columns.
    pub shape: [usize; 2],
    /// Elements from a row to the next, from a column to the next.
    pub strides: [usize; 2],
}

impl<'a, T: Element> StridedMatrix<'a, T> {
    /// Errors: rank other than 2, another element type, a view that leaves its storage.
    pub fn of(view: &ConstantView<'a>) -> Result<StridedMatrix<'a, T>> {
        let (&[rows, columns], &[down, across]) = (&*view.shape, &*view.strides) else {
            return Err(Error::internal("only a matrix can be packed").got(format!("shape {}", view.shape)));
        };
        let elements = view.elements::<T>()?;
        let last = |extent: usize, stride: usize| extent.saturating_sub(1).checked_mul(stride);
        let last = last(rows, down)
            .zip(last(columns, across))
            .and_then(|(a, b)| a.checked_add(b)?.checked_add(view.offset));
        if rows > 0 && columns > 0 && last.is_none_or(|last| last >= elements.len()) {
            return Err(Error::program("a constant's view leaves its storage")
                .expected(format!("at most {} elements", elements.len()))
                .got(format!(
                    "shape {}, strides {}, first element {}",
                    view.shape, view.strides, view.offset
                )));
        }
        let elements = elements.get(view.offset..).unwrap_or_default();
        Ok(StridedMatrix { elements, shape: [rows, columns], strides: [down, across] })
    }

    /// The element of a row and a column that are there.
    pub fn at(&self, row: usize, column: usize) -> T {
        self.elements[row * self.strides[0] + column * self.strides[1]]
    }
}
