//! The border of the optimiser: what it asks of the loader, what it gives back, and the form in which its parts hand
//! a method to each other.

use crate::ir::{FoldedConstant, MethodIr, StepIr};
use pteron_core::{
    AlignedBuffer, ArgSpec, ConstantKey, ConstantView, Instruction, Result, Schema, TensorSpec, ValueId,
};
use pteron_cpu::plan::PlanSpec;
use pteron_kernels::single_call::CallArg;
use std::sync::Arc;

/// What the optimiser asks of the loader.
pub trait Loader {
    /// Schema of an operator, as the registered kernels have it.
    fn schema(&self, operator: &str) -> Option<&Schema>;
    /// Would `plan` find a kernel for these arguments?
    fn can_prepare(&self, plan: &PlanSpec, args: &[ArgSpec<'_>]) -> Result<bool>;
    /// What preparing knows about a value.
    fn arg_spec<'s>(&'s self, ir: &'s MethodIr, folded: &'s [FoldedConstant], value: ValueId) -> ArgSpec<'s>;
    /// A constant computed from others; see [`pteron_core::PackStore::derive`].
    fn derive(
        &self,
        recipe: &str,
        sources: &[ConstantView<'_>],
        spec: &TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<(ConstantKey, Arc<AlignedBuffer>)>>;
    /// The result of a call of `operator`, the output being argument `out` of `args`, with the shape that it
    /// has there; nothing where that cannot be known at load.
    ///
    /// Errors: `LimitExceeded`, where memory does not suffice.
    fn evaluate(&self, operator: &str, args: Vec<CallArg>, out: usize) -> Result<Option<AlignedBuffer>>;
}

/// The result.
pub struct Optimized {
    /// Steps in the order in which they are executed.
    pub steps: Vec<StepIr>,
    /// For each instruction that can be jumped to, and for the end of the chain: the step where its code
    /// begins (an index into `steps`, or their number). Others may hold any number.
    pub entries: Vec<u32>,
    /// Constants made at load; `ConstantRef::Folded` indexes them.
    pub folded: Vec<FoldedConstant>,
}

/// The instructions of a method while rules work on them, by their index in the file; `None` where one was
/// folded away.
pub(in crate::optimize) type Chain = [Option<Instruction>];
