//! The result of a teaching backend goes to its output.

use pteron_core::{Error, Result, TensorView, TensorViewMut};
use pteron_kernels::strided::copy::copy_whole;

/// Copies one tensor into another of the same dtype and shape, whatever their memory orders. An error
/// when dtype or shape differ.
pub(crate) fn copy_tensor(from: TensorView<'_>, mut to: TensorViewMut<'_>) -> Result<()> {
    if from.dtype() != to.dtype() || from.shape() != to.shape() {
        return Err(Error::delegate("a result does not fit its output")
            .expected(format!("{}{}", to.dtype(), to.shape()))
            .got(format!("{}{}", from.dtype(), from.shape())));
    }
    copy_whole(&from, &mut to)
}
