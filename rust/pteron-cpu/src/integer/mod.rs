//! Products and convolutions in integers.

mod spec;

pub use spec::{IntegerInput, IntegerOperation, IntegerOutput, IntegerSpec, RowScheme};

use pteron_core::PrepareContext;
use pteron_kernels::grid_kernel::Preparation;

/// Prepares the kernel of `spec`; `None` when none takes these arguments.
pub fn prepare(_ctx: &PrepareContext<'_>, _spec: &IntegerSpec) -> Preparation {
    Ok(None)
}
