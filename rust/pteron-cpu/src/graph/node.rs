//! Nodes of a run.

use super::argument::{Argument, Literal};
use super::ids::TensorId;
use crate::epilogue::Epilogue;
use crate::rotary::Rotary;
use pteron_kernels::elementwise::chain::Chain;
use pteron_kernels::ops::normalization::rms_norm::RmsNorm;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a node computes.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A product of f32 matrices with or without an addend (`addmm`, `mm`, `linear`, `bmm`, `baddbmm`).
    Linear,
    /// A product of f32 rows, with any number of leading dimensions, and a matrix `[k, n]`. Arguments: rows, matrix, a row that
    /// is added to each if there is one, the result.
    RowProduct,
    /// Convolution in f32.
    Convolution,
    /// The same with other margins before the image than behind it: its padding lists those before along every
    /// spatial dimension, then those behind.
    PaddedConvolution,
    /// The same by fewer products ([`crate::conv::winograd`]).
    Winograd,
    /// Elementwise clamp of an f32 tensor; NaN stays NaN.
    Clamp {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// Scaled dot-product attention: its arguments are what the description says, the output last.
    Attention(Box<crate::attention::AttentionSpec>),
    /// A chain of elementwise functions. Arguments: its inputs, which broadcast, and the result.
    Elementwise(Arc<Chain>),
    /// A product or convolution in integers: its arguments are what the description says, the output last.
    Integer(Box<crate::integer::IntegerSpec>),
    /// A product with a weight that stays quantised: its arguments are what the description says.
    WeightOnly(Box<crate::weight_only::WeightOnlySpec>),
    /// An RMS norm over the last dimension. Arguments: x, the weight if it has one, the result.
    RmsNorm(RmsNorm),
    /// A rotary embedding. Arguments: x, the cosines, the sines, the result.
    Rotary(Rotary),
    /// The largest elements of windows, without their places. Arguments: those of `max_pool2d_with_indices` or
    /// `max_pool3d_with_indices` without the indices.
    MaxPool,
    /// Argument 0 under another shape: the same bytes. Arguments: the tensor, the extents, the result.
    View,
    /// Anything else: a kernel called as the file says.
    Opaque,
    /// An instruction that is no kernel call, or one whose effects go beyond its outputs: stays where it is.
    Fixed,
}

impl Op {
    /// A convolution as the operator has it, or with margins of its own?
    pub fn is_convolution(&self) -> bool {
        matches!(self, Op::Convolution | Op::PaddedConvolution)
    }

    /// Can something be fused behind it ([`crate::epilogue::Epilogue`])?
    pub fn takes_epilogue(&self) -> bool {
        matches!(self, Op::Linear | Op::WeightOnly(_)) || self.is_convolution()
    }
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Operator name of the call it is or grew from.
    pub operator: String,
    /// Its arguments in the order of the operator's schema, outputs included; a fused node has
    /// further inputs behind them (see [`crate::plan`]).
    pub args: Vec<Argument>,
    /// Tensors that it writes, in the order of the schema.
    pub outputs: SmallVec<[TensorId; 1]>,
    /// The appended return of the call as the file has it, where it has one.
    pub returned: Option<Argument>,
    /// What was fused behind it.
    pub epilogue: Epilogue,
    /// Instructions it stands for, in order.
    pub covers: SmallVec<[u32; 2]>,
    /// The file's instruction that is emitted again, with renamed arguments, while no rule changed it.
    pub instruction: Option<u32>,
    /// Values of the program other than tensors that it reads and that something writes.
    pub read_values: SmallVec<[u32; 2]>,
    /// Values of the program other than tensors that it writes.
    pub written_values: SmallVec<[u32; 1]>,
    /// Argument whose bytes the file's plan lets the output take over.
    pub in_place_of: Option<TensorId>,
    /// Taken out of the run?
    pub is_removed: bool,
}

/// A node that a rule proposes. What it covers follows from the nodes it replaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// What it computes.
    pub op: Op,
    /// Operator whose argument convention it follows; empty for operations of the engine's own.
    pub operator: String,
    /// Arguments, outputs included.
    pub args: Vec<Argument>,
    /// Tensors that it writes.
    pub outputs: SmallVec<[TensorId; 1]>,
    /// What comes behind it.
    pub epilogue: Epilogue,
}

impl Node {
    /// A call of `operator` as instruction `instruction` of the file has it.
    pub fn call(
        operator: &str,
        args: Vec<Argument>,
        outputs: SmallVec<[TensorId; 1]>,
        instruction: u32,
    ) -> Self {
        Node {
            op: Op::Opaque,
            operator: operator.to_string(),
            args,
            outputs,
            returned: None,
            epilogue: Epilogue::NONE,
            covers: SmallVec::from_slice(&[instruction]),
            instruction: Some(instruction),
            read_values: SmallVec::new(),
            written_values: SmallVec::new(),
            in_place_of: None,
            is_removed: false,
        }
    }

    /// The same node with other contents, as a proposal.
    pub fn draft(&self) -> Draft {
        Draft {
            op: self.op.clone(),
            operator: self.operator.clone(),
            args: self.args.clone(),
            outputs: self.outputs.clone(),
            epilogue: self.epilogue.clone(),
        }
    }

    /// Tensors that it reads, once per argument.
    pub fn inputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        let is_input = move |t: &TensorId| !self.outputs.contains(t);
        self.args.iter().flat_map(|a| a.tensors()).filter(is_input)
    }

    /// The tensor that argument `position` reads.
    pub fn input(&self, position: usize) -> Option<TensorId> {
        self.args.get(position).and_then(Argument::tensor).filter(|t| !self.outputs.contains(t))
    }

    /// The only tensor that it writes.
    pub fn output(&self) -> Option<TensorId> {
        match *self.outputs.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The literal at `position`.
    pub fn literal(&self, position: usize) -> Option<&Literal> {
        match self.args.get(position) {
            Some(Argument::Literal(literal, _)) => Some(literal),
            _ => None,
        }
    }

    /// The number at `position`, if it is known at load.
    pub fn number(&self, position: usize) -> Option<f64> {
        self.literal(position).and_then(Literal::number)
    }

    /// The integers at `position`, if they are known at load.
    pub fn ints(&self, position: usize) -> Option<&[i64]> {
        match self.literal(position) {
            Some(Literal::Ints(v)) => Some(v),
            _ => None,
        }
    }

    /// Is the argument at `position` certainly absent?
    pub fn is_none(&self, position: usize) -> bool {
        matches!(self.literal(position), Some(Literal::None))
    }
}

impl Draft {
    /// A call of `operator` with one result, which comes last among its arguments.
    pub fn call(operator: &str, mut args: Vec<Argument>, output: TensorId) -> Draft {
        args.push(Argument::Tensor(output));
        Draft {
            op: Op::Opaque,
            operator: operator.into(),
            args,
            outputs: smallvec::smallvec![output],
            epilogue: Epilogue::NONE,
        }
    }

    /// `shown`, whose sizes are `sizes`, as a view of the bytes of `base`.
    pub fn view(base: TensorId, sizes: Argument, shown: TensorId) -> Draft {
        Draft { op: Op::View, ..Draft::call(super::ET_VIEW, vec![Argument::Tensor(base), sizes], shown) }
    }

    /// Puts `to` where the argument `from` was, output or input.
    pub fn rename(&mut self, from: TensorId, to: TensorId) {
        self.args.iter_mut().for_each(|a| a.rename(from, to));
        self.outputs.iter_mut().filter(|t| **t == from).for_each(|t| *t = to);
    }

    /// Adds a tensor that it reads besides the operator's own arguments, as [`crate::plan`] has it; returns its position.
    pub fn push_input(&mut self, tensor: TensorId) -> usize {
        let outputs_behind = if self.operator.is_empty() { self.outputs.len() } else { 0 };
        let at = self.args.len().saturating_sub(outputs_behind);
        self.args.insert(at, Argument::Tensor(tensor));
        at
    }
}
