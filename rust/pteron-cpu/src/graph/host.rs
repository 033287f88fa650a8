//! What rules ask of the runtime.

use super::{Draft, Graph, NodeId, TensorId};
use pteron_core::{AlignedBuffer, ConstantView, Result, TensorSpec};

/// Replaces what `find` finds at each of `nodes` where the draft would find a kernel; how often.
pub fn replace_found(
    graph: &mut Graph,
    host: &mut dyn Host,
    nodes: impl IntoIterator<Item = NodeId>,
    find: impl Fn(&Graph, NodeId) -> Option<(Vec<NodeId>, Draft)>,
) -> Result<usize> {
    let mut count = 0;
    for node in nodes {
        if let Some((replaced, draft)) = find(graph, node)
            && host.can_prepare(graph, &draft)?
            && graph.replace(&replaced, draft).is_some()
        {
            count += 1;
        }
    }
    Ok(count)
}

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

    /// The only result of a call of the file whose arguments are all constants and literals, as a new
    /// constant. Nothing where the call has no kernel, fails, or gives what cannot be known at load: random
    /// numbers, a shape that depends on data.
    ///
    /// Errors: `LimitExceeded`, where memory does not suffice.
    fn evaluate(&mut self, graph: &mut Graph, node: NodeId) -> Result<Option<TensorId>>;
}
