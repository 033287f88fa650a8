//! What rules ask of the runtime.

use super::{Draft, Graph, TensorId};
use pteron_core::{AlignedBuffer, ConstantView, Result, TensorSpec};

/// The loader of the method that the graph is a run of.
pub trait Host {
    /// Would the drafted node find a kernel?
    fn can_prepare(&mut self, graph: &Graph, draft: &Draft) -> Result<bool>;

    /// The contents of a constant tensor.
    fn constant(&self, graph: &Graph, tensor: TensorId) -> Option<ConstantView<'_>>;

    /// A new constant, computed by `make` (dense, row-major) from the constants `sources`. Two calls with
    /// the same recipe and the same sources give the same constant: `make` is then not asked again, and
    /// packed copies are shared, between methods too.
    fn add_constant(
        &mut self,
        graph: &mut Graph,
        recipe: &str,
        sources: &[TensorId],
        spec: TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<TensorId>>;
}
