//! How the program of a language model is called.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::model::json_file::damaged;
use crate::sampling::sampler::MOST_LOGITS;
use pteron_core::{DType, Error, Result};
use pteron_runtime::{Extent, IoKind, IoSpec, Program, TensorIo};

/// The file of the program in a folder.
pub(crate) const PROGRAM: &str = "model.pte";
/// The method that computes the next tokens.
pub(crate) const METHOD: &str = "forward";

/// What stands behind the tokens of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// A position for each token.
    Vector,
    /// The position of the first token.
    Start,
    /// Nothing: the program has no cache, and a call takes all tokens.
    None,
}

/// How `forward` is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Sequences in a call.
    pub batch: usize,
    /// Most tokens in a call.
    pub chunk: usize,
    /// Logits of a position.
    pub vocabulary: usize,
    /// What stands behind the tokens.
    pub positions: Positions,
}

impl Signature {
    /// Reads the signature of `forward`.
    ///
    /// Errors: `Program` where it is no `(input_ids int64[batch, tokens], cache_position int64[tokens])` that gives logits
    /// `[batch, tokens, vocabulary]`.
    pub fn of(program: &Program) -> Result<Signature> {
        if !program.methods().contains(&METHOD) {
            return Err(damaged(PROGRAM, &format!("no method {METHOD}")));
        }
        let (tokens, position) = match program.inputs(METHOD)? {
            [tokens] => (int64(tokens, 2)?, None),
            [tokens, position] => (int64(tokens, 2)?, Some(int64(position, 1)?)),
            _ => return Err(wrong_inputs()),
        };
        let [rows, columns] = tokens.extents.as_slice() else { return Err(wrong_inputs()) };
        let result = match program.outputs(METHOD)?.last().map(|spec| &spec.kind) {
            Some(IoKind::Tensor(result)) if matches!(result.extents.len(), 2 | 3) => result,
            _ => return Err(wrong_outputs()),
        };
        let Some(Extent::Static(vocabulary)) = result.extents.last() else { return Err(wrong_outputs()) };
        if !(1..=MOST_LOGITS).contains(vocabulary) {
            return Err(damaged(PROGRAM, &format!("{METHOD} gives {vocabulary} logits of a position")));
        }
        let (fewest, chunk) = columns.range();
        if fewest > 1 || chunk == 0 {
            return Err(damaged(PROGRAM, &format!("{METHOD} does not take one token")));
        }
        // ExecuTorch's exporter states extents from 0 up to the largest.
        let (least, most) = rows.range();
        let batch = if least <= 1 && most >= 1 { 1 } else { least };
        let positions = match position {
            None => Positions::None,
            Some(position) if chunk > 1 && position.extents == [Extent::Static(1)] => Positions::Start,
            Some(_) => Positions::Vector,
        };
        Ok(Signature { batch, chunk, vocabulary: *vocabulary, positions })
    }
}

fn int64(spec: &IoSpec, rank: usize) -> Result<&TensorIo> {
    match &spec.kind {
        IoKind::Tensor(found) if found.dtype == DType::Int64 && found.extents.len() == rank => Ok(found),
        _ => Err(wrong_inputs()),
    }
}

fn wrong_inputs() -> Error {
    damaged(
        PROGRAM,
        &format!("{METHOD} takes no input_ids int64[batch, tokens], cache_position int64[tokens]"),
    )
}

fn wrong_outputs() -> Error {
    damaged(PROGRAM, &format!("{METHOD} gives no logits [batch, tokens, vocabulary]"))
}
