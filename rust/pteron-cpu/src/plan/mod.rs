//! Plans: what the rewrite rules fused, ready to be prepared. A plan has the arguments of the call it
//! grew from, with the output of the last call it covers.

mod rule_switches;

pub use rule_switches::RuleSwitches;

use crate::epilogue::Epilogue;
use crate::graph::Op;
use pteron_core::{PrepareContext, Prepared, Result};
use std::fmt;

/// A fused run, described.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSpec {
    /// What it computes.
    pub op: Op,
    /// Operator whose argument convention it follows.
    pub operator: String,
    /// What comes behind it.
    pub epilogue: Epilogue,
}

impl PlanSpec {
    /// Prepares the plan's kernel; `None` when no fast kernel takes these arguments (the calls it
    /// covers then stay as they are).
    pub fn prepare(&self, ctx: &PrepareContext<'_>) -> Result<Option<Box<dyn Prepared>>> {
        match self.op {
            Op::Linear => crate::linear::prepare_linear_like(ctx, &self.operator, &self.epilogue),
            Op::Convolution => crate::conv::prepare_convolution(ctx, &self.epilogue),
            Op::Clamp { .. } | Op::Opaque => Ok(None),
        }
    }
}

impl fmt::Display for PlanSpec {
    /// `aten::addmm.out + clamp(0, inf)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.operator, self.epilogue)
    }
}
