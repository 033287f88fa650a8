//! Kernels of the engine, which stand before those of the operator table. Their schema is that of the operator's row.

use pteron_core::{StaticKernel, kernel::PrepareFn};

/// A kernel of an operator whose row is in `pteron-kernels`.
#[derive(Clone, Copy)]
pub struct EngineKernel {
    /// The operator: `aten::mm.out`.
    pub operator: &'static str,
    /// See [`pteron_core::Kernel::variant`].
    pub variant: &'static str,
    /// See [`pteron_core::Kernel::prepare`].
    pub prepare: PrepareFn,
}

/// An entry of a table of [`EngineKernel`]s.
pub(crate) const fn engine_kernel(
    operator: &'static str,
    variant: &'static str,
    prepare: PrepareFn,
) -> EngineKernel {
    EngineKernel { operator, variant, prepare }
}

impl EngineKernel {
    /// The kernel with the schema of its operator; `None` for an operator without a row, which a test rules out.
    pub(crate) fn with_schema(&self) -> Option<StaticKernel> {
        let row = pteron_kernels::operators().find(|row| row.name() == self.operator)?;
        Some(StaticKernel { schema: row.schema, variant: self.variant, prepare: self.prepare })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_kernel_of_the_engine_has_a_row() {
        for kernel in crate::engine_kernels() {
            assert!(kernel.with_schema().is_some(), "{}", kernel.operator);
        }
    }
}
