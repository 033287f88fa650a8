//! What a caller can set for one call.

use crate::{CancelToken, OutputBuffer, Tracer};
use std::time::Instant;

/// Options of one call; the default sets nothing.
#[derive(Default)]
pub struct ExecuteOptions<'a> {
    /// Memory for outputs, by position; missing or `None` entries get fresh memory.
    pub outputs: &'a [Option<OutputBuffer<'a>>],
    /// Lend outputs where the session computed them instead of copying them: as [`crate::OutputValue::Lent`],
    /// for those that lie in memory of the session alone. The session's next call, and what sets its state,
    /// fail with [`pteron_core::ErrorKind::OutputsInUse`] while an export of one lives.
    pub lend_outputs: bool,
    /// What may stop the call, and others with it.
    pub cancel: Option<&'a CancelToken>,
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Most instructions to execute.
    pub budget: Option<u64>,
    /// Most threads for this call, at least 1; never more than the session was loaded with.
    pub num_threads: Option<usize>,
    /// Who watches.
    pub tracer: Option<&'a mut dyn Tracer>,
    /// Called on the calling thread about every 100 ms between steps; an error stops the run with it.
    /// (Bindings check for signals here.)
    pub poll: Option<&'a mut dyn FnMut() -> pteron_core::Result<()>>,
}
