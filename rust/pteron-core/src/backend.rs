//! The contract between the runtime and backends, whoever registers them: Rust, Python or a plugin.

pub use crate::output_view::OutputView;
use crate::{Error, OwnedTensor, Result, TensorView};
use std::sync::Arc;

/// Whether a backend can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// Yes.
    Available,
    /// No, and why.
    Unavailable(String),
}

/// A key and value that the exporter stored for the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileSpec {
    /// Its name.
    pub key: String,
    /// Its bytes.
    pub value: Vec<u8>,
}

/// A load-time option for a backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendOption {
    /// Bool.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// String.
    String(String),
}

/// Named blobs that travel with a program.
pub trait NamedData: Send + Sync {
    /// The bytes of `key`, valid while the program lives.
    fn get(&self, key: &str) -> Option<&[u8]>;
}

/// What a backend is told at load.
pub struct InitContext<'a> {
    /// The method being loaded.
    pub method: &'a str,
    /// Options the caller set for this backend, in order.
    pub options: &'a [(String, BackendOption)],
    /// Named blobs of the program and its data files.
    pub named_data: Arc<dyn NamedData>,
    /// Threads that a call of the session may use at most, the calling one included; at least 1.
    pub num_threads: usize,
}

/// One input of a delegate call.
#[derive(Clone, Copy)]
pub enum ArgView<'a> {
    /// A tensor to read.
    Tensor(TensorView<'a>),
    /// An integer.
    Int(i64),
    /// A float.
    Double(f64),
    /// A bool.
    Bool(bool),
    /// A string.
    String(&'a str),
    /// Absent.
    None,
}

impl<'a> ArgView<'a> {
    /// The tensor; an error when this is something else.
    pub fn tensor(&self) -> Result<TensorView<'a>> {
        match self {
            ArgView::Tensor(t) => Ok(*t),
            _ => Err(Error::delegate("a delegate input is not a tensor")),
        }
    }
}

/// What a delegate may ask of the runtime while it executes.
pub struct ExecuteContext<'a> {
    /// The method that runs.
    pub method: &'a str,
    /// Index of the instruction.
    pub instruction: usize,
    /// Should the delegate stop early? Polled by long-running delegates.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// What the calling thread looks at while it runs (signals, a deadline without a watch of its own): for a delegate
    /// that runs a program on this thread. An error ends the run and is the delegate's result as it is. `None`: nothing.
    pub poll: Option<&'a dyn Fn() -> Result<()>>,
    /// Who is told what happens inside the delegate; `None` in calls that nobody traces.
    pub events: Option<&'a mut dyn FnMut(DelegateEvent<'_>)>,
}

/// What a delegate calls a part of itself, as in the mapping that its exporter gave (`DelegateMappingBuilder`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventId<'a> {
    /// A number.
    Int(i64),
    /// A name.
    Name(&'a str),
}

/// Something that took time inside a delegate.
#[derive(Debug, Clone, Copy)]
pub struct DelegateEvent<'a> {
    /// The part of the delegate that it belongs to.
    pub id: EventId<'a>,
    /// When it began, in nanoseconds on a clock of the delegate's choice.
    pub start_ns: u64,
    /// When it ended, on the same clock.
    pub end_ns: u64,
    /// Whatever the delegate adds.
    pub metadata: &'a [u8],
}

/// Makes delegates from blobs. Shared by all programs of a runtime.
pub trait Backend: Send + Sync {
    /// The id that programs name.
    fn name(&self) -> &str;
    /// Can it be used on this machine?
    fn is_available(&self) -> Availability {
        Availability::Available
    }
    /// Makes a delegate from what the exporter's `preprocess` produced. Called once per call site and
    /// session. `processed` is untrusted: an error, never a panic, when it is damaged.
    fn init(
        &self,
        ctx: &InitContext<'_>,
        processed: &[u8],
        specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>>;
}

/// The mutable buffers that a delegate owns. The runtime calls these between runs.
pub trait DelegateState {
    /// Copies of all buffers, by name: as the model calls them, since all delegates and the method itself
    /// share one space of names.
    fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>>;
    /// Are there no buffers? Then calls do not depend on each other.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.get_state()?.is_empty())
    }
    /// Sets the buffers named; each is one that `get_state` gave, of the same dtype and shape, row-major.
    fn set_state(&mut self, state: &[(&str, TensorView<'_>)]) -> Result<()>;
    /// Puts all buffers back to their initial contents.
    fn reset_state(&mut self) -> Result<()>;
}

/// An initialised subgraph. Dropping it is `destroy`.
pub trait Delegate: Send {
    /// The mutable buffers that it owns; what is given at first is given always. For one that gives none
    /// although the file says that it owns buffers, `get_state`, `set_state` and `reset_state` of the method are
    /// errors.
    fn state(&mut self) -> Option<&mut dyn DelegateState> {
        None
    }
    /// How many of the call's arguments, counted from the end, are outputs.
    fn num_outputs(&self) -> usize;
    /// Computes outputs from inputs. An error may carry the delegate's own debug handle
    /// ([`Error::debug_handle`]); the runtime finds its source line.
    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()>;
}
