//! Plans: what the rewrite rules fused, ready to be prepared.
//!
//! # The argument convention
//!
//! A plan that grew from a call of an operator has the arguments of that operator's schema, in its order
//! and at its positions, outputs included (and without the return that a call in the file repeats); the
//! output may be that of a later call which the plan stands for. Behind them come the tensors that it
//! reads besides, in the order in which rules added them: [`Epilogue::residual`] is such a position.
//! `aten::addmm.out` with a residual: `self, mat1, mat2, beta, alpha, out, residual`.
//!
//! An operation of the engine's own has no operator name; its arguments are the tensors it reads, in the
//! order its [`Op`] states, then those that rules added, then the tensors it writes.

mod rule_switches;

pub use rule_switches::RuleSwitches;

use crate::epilogue::Epilogue;
use crate::graph::Op;
use pteron_core::{ArgKind, PrepareContext, Schema, SchemaArg};
use pteron_kernels::grid_kernel::Preparation;
use std::fmt;

/// A fused run, described.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSpec {
    /// What it computes.
    pub op: Op,
    /// Operator whose argument convention it follows; empty for operations of the engine's own.
    pub operator: String,
    /// What comes behind it.
    pub epilogue: Epilogue,
    /// How many tensors it writes.
    pub outputs: u32,
}

impl PlanSpec {
    /// Prepares the plan's kernel; `None` when no fast kernel takes these arguments (the calls it
    /// covers then stay as they are).
    pub fn prepare(&self, ctx: &PrepareContext<'_>) -> Preparation {
        match &self.op {
            Op::Attention(spec) => crate::attention::prepare_attention(ctx, spec),
            Op::Elementwise(chain) => pteron_kernels::elementwise::chain_kernel::prepare(ctx, chain),
            Op::Integer(spec) => crate::integer::prepare(ctx, spec),
            Op::RmsNorm(norm) => pteron_kernels::ops::normalization::rms_norm::prepare(ctx, norm),
            Op::Rotary(rotary) => crate::rotary::prepare(ctx, rotary),
            Op::MaxPool => pteron_kernels::ops::pooling::max_values::prepare(ctx),
            Op::Linear => crate::linear::prepare_linear_like(ctx, &self.operator, &self.epilogue),
            Op::RowProduct => crate::linear::prepare_rows(ctx, &self.epilogue),
            Op::Convolution | Op::PaddedConvolution => crate::conv::prepare_convolution(ctx, &self.epilogue),
            Op::WeightOnly(spec) => crate::weight_only::prepare(ctx, spec, &self.epilogue),
            Op::Winograd => crate::conv::winograd::prepare(ctx, &self.epilogue),
            Op::Clamp { .. } | Op::View | Op::Opaque | Op::Fixed => Ok(None),
        }
    }

    /// A call of an operator and nothing more, which its own kernels take.
    pub fn is_call(&self) -> bool {
        let is_changed = matches!(self.op, Op::Winograd | Op::PaddedConvolution);
        self.epilogue.is_none() && !self.operator.is_empty() && !is_changed
    }

    /// Names and roles of `count` arguments. `base`: the schema of the operator, if it has one.
    pub fn schema(&self, base: Option<&Schema>, count: usize) -> Schema {
        let argument = |name: String, is_output: bool| SchemaArg {
            name,
            kind: ArgKind::Tensor,
            is_output,
            is_updated: false,
        };
        let mut args = base.map_or_else(Vec::new, |s| s.args.clone());
        let own_inputs = count.saturating_sub(self.outputs as usize);
        while args.len() < count {
            let at = args.len();
            args.push(match base {
                Some(_) => argument(format!("operand{at}"), false),
                None if at < own_inputs => argument(format!("input{at}"), false),
                None => argument("out".into(), true),
            });
        }
        Schema { name: self.to_string(), args, returns: self.outputs as usize, has_scalar_return: false }
    }
}

impl fmt::Display for PlanSpec {
    /// `aten::addmm.out + residual + clamp(0, inf)`, `elementwise[sigmoid, mul]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Op::Attention(spec) = &self.op {
            write!(f, "{spec}")?;
        }
        if let Op::Integer(spec) = &self.op {
            write!(f, "{spec}")?;
        }
        if let Op::WeightOnly(spec) = &self.op {
            write!(f, "{spec}")?;
        }
        if let Op::RmsNorm(norm) = &self.op {
            write!(f, "{norm}")?;
        }
        if let Op::Rotary(rotary) = &self.op {
            write!(f, "{rotary}")?;
        }
        if self.op == Op::RowProduct {
            f.write_str("row product")?;
        }
        if self.op == Op::MaxPool {
            f.write_str("max pool")?;
        }
        if let Op::Elementwise(chain) = &self.op {
            return write!(f, "elementwise[{chain}]");
        }
        let by = match self.op {
            Op::Winograd => " by winograd",
            Op::PaddedConvolution => " padded",
            _ => "",
        };
        write!(f, "{}{by}{}", self.operator, self.epilogue)
    }
}
