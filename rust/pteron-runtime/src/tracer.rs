//! Watching a run: what begins and ends, with the instructions and debug handles it stands for.

use pteron_core::Error;

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
}
