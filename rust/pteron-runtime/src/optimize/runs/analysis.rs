//! What is known of a method when its runs are rewritten.

use super::super::effects::Effects;
use super::super::flow::Flow;
use super::super::{Chain, Loader};

/// A method's chain of instructions with what every step does and sees, and the kernels that there are.
#[derive(Clone, Copy)]
pub(in crate::optimize) struct Analysis<'a> {
    pub chain: &'a Chain,
    pub effects: &'a Effects,
    pub flow: &'a Flow,
    pub loader: &'a dyn Loader,
}
