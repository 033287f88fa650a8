//! Watching a run: what begins and ends, with the instructions and debug handles it stands for.

use crate::DelegatePart;
use pteron_core::{ArgView, DelegateEvent, Error};
use pteron_cpu::executor::WorkerTimes;
use std::sync::Arc;

/// One step of the executable.
#[derive(Debug, Clone, Copy)]
pub struct StepInfo<'a> {
    /// Method name.
    pub method: &'a str,
    /// Index of the step.
    pub step: usize,
    /// Kernel, backend or instruction that does the work, such as `gemm.f32_nr32_v1.avx512`.
    pub name: &'a str,
    /// Instructions of the file that the step stands for.
    pub covers: &'a [u32],
    /// Debug handles of those instructions; empty when the file has no debug information.
    pub handles: &'a [i64],
    /// Parts of delegates that load replaced by calls of operators; empty for everything else.
    pub parts: &'a [DelegatePart],
}

/// Memory that a call has allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// For a copy of an input that could not be used in place; kept for the calls that follow.
    InputCopy {
        /// Position among the inputs.
        input: usize,
        /// Its size.
        nbytes: usize,
    },
    /// For an output that owns its memory.
    Output {
        /// Position among the outputs.
        output: usize,
        /// Its size.
        nbytes: usize,
    },
}

/// Receives events on the calling thread while a method runs. Not called at all when absent.
pub trait Tracer {
    /// A step starts.
    fn step_begin(&mut self, step: &StepInfo<'_>);
    /// A step has ended, well or badly.
    fn step_end(&mut self, step: &StepInfo<'_>, error: Option<&Error>);
    /// A delegate is called, inside the step just begun.
    fn delegate_begin(&mut self, _step: &StepInfo<'_>, _backend: &str) {}
    /// The delegate has returned.
    fn delegate_end(&mut self, _step: &StepInfo<'_>, _backend: &str, _error: Option<&Error>) {}
    /// Something that the delegate reports from inside, between its begin and its end.
    fn delegate_event(&mut self, _step: &StepInfo<'_>, _backend: &str, _event: &DelegateEvent<'_>) {}
    /// The call has allocated memory. Those for inputs come before the first step, those for outputs after
    /// the last.
    fn allocation(&mut self, _allocation: Allocation) {}
    /// Shall [`Tracer::value`] be called for what this step has written? Asked when it has ended well.
    fn wants_values(&mut self, _step: &StepInfo<'_>) -> bool {
        false
    }
    /// Shall the run stop? It then fails with [`pteron_core::ErrorKind::Cancelled`]. Asked after the other
    /// methods.
    fn stops_run(&mut self) -> bool {
        false
    }
    /// Where the threads that help with kernels note when they do, for a call on up to `threads` threads. Asked
    /// before the first step; `None`: nobody wants to know.
    fn worker_times(&mut self, _threads: usize) -> Option<Arc<WorkerTimes>> {
        None
    }
    /// Argument number `position` of the step, which it has written; tensors are valid during the call only.
    fn value(&mut self, _step: &StepInfo<'_>, _position: usize, _value: ArgView<'_>) {}
}
