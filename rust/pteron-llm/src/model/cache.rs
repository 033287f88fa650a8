//! The cache of one text: a session of the program with the tokens that it holds.
//!
//! The tokens are the truth: whatever happens to the cache, it can be computed from them again. So a call that fails half
//! way never harms what was there before.

use crate::model::folder::ModelFolder;
use crate::model::json_file::damaged;
use crate::model::signature::{METHOD, PROGRAM, Positions};
use half::{bf16, f16};
use pteron_core::{DType, Error, Result, TensorView};
use pteron_runtime::{
    CancelToken, ExecuteOptions, InputValue, Method, MethodOptions, OutputValue, Outputs, TensorInput,
};
use std::sync::Arc;
use std::time::Instant;

/// What may end a text between and within calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) cancel: CancelToken,
    pub(crate) deadline: Option<Instant>,
}

/// A cache. One thread uses it at a time.
pub struct Cache {
    folder: Arc<ModelFolder>,
    method: Method,
    chunk: usize,
    tokens: Vec<u32>,
    is_harmed: bool,
    // Of calls, kept so that a token allocates nothing.
    ids: Vec<i64>,
    positions: Vec<i64>,
    wide: Vec<f32>,
    outputs: Outputs,
}

impl Cache {
    /// An empty cache. `threads`: most of a call; `chunk`: tokens of a prompt in one call at most.
    pub(crate) fn new(folder: &Arc<ModelFolder>, threads: Option<usize>, chunk: usize) -> Result<Cache> {
        let options = MethodOptions { num_threads: threads, ..MethodOptions::default() };
        let most = folder.signature.chunk;
        Ok(Cache {
            method: folder.program.load_method(METHOD, options)?,
            // Without a cache every call takes all tokens from the first one on.
            chunk: if folder.signature.positions == Positions::None { most } else { chunk.clamp(1, most) },
            folder: folder.clone(),
            tokens: Vec::new(),
            is_harmed: false,
            ids: Vec::new(),
            positions: Vec::new(),
            wide: Vec::new(),
            outputs: Outputs::new(),
        })
    }

    /// The tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many of these tokens the cache already holds at its beginning.
    pub(crate) fn common_prefix(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(mine, theirs)| mine == theirs).count()
    }

    /// Hands the logits `[vocabulary]` behind these tokens to `read`; with its result, how many of them were in the cache
    /// before. The cache holds exactly these tokens then.
    pub(crate) fn prefill<R>(
        &mut self,
        tokens: &[u32],
        bounds: &Bounds,
        read: impl FnOnce(&[f32]) -> Result<R>,
    ) -> Result<(R, usize)> {
        let Some(before) = tokens.len().checked_sub(1) else {
            return Err(Error::input("the prompt has no tokens").expected("at least one token"));
        };
        let kept = self.rewind(self.common_prefix(tokens).min(before))?;
        let mut rest = tokens.get(kept..).unwrap_or_default();
        while rest.len() > self.chunk {
            let (chunk, behind) = rest.split_at(self.chunk);
            self.extend(chunk, bounds, |_| Ok(()))?;
            rest = behind;
        }
        Ok((self.extend(rest, bounds, read)?, kept))
    }

    /// Puts tokens behind those of the cache, at most as many as one call takes, and hands the logits `[vocabulary]` of
    /// the last one to `read`.
    pub(crate) fn extend<R>(
        &mut self,
        tokens: &[u32],
        bounds: &Bounds,
        read: impl FnOnce(&[f32]) -> Result<R>,
    ) -> Result<R> {
        let (begin, all) = (self.tokens.len(), self.tokens.len().saturating_add(tokens.len()));
        if all > self.folder.max_seq_len() {
            return Err(Error::input("the tokens do not fit into the cache")
                .expected(format!("at most {} tokens", self.folder.max_seq_len()))
                .got(format!("{all} tokens")));
        }
        let positions = self.folder.signature.positions;
        self.ids.clear();
        if positions == Positions::None {
            self.ids.extend(self.tokens.iter().map(|token| i64::from(*token)));
        }
        self.ids.extend(tokens.iter().map(|token| i64::from(*token)));
        self.positions.clear();
        match positions {
            Positions::None => {}
            Positions::Start => self.positions.push(begin as i64),
            Positions::Vector => self.positions.extend((begin..all).map(|at| at as i64)),
        }
        self.is_harmed = true;
        self.call(bounds)?;
        self.is_harmed = false;
        self.tokens.extend_from_slice(tokens);
        let row = self.folder.signature.vocabulary;
        let found = match self.outputs.last() {
            Some(OutputValue::Tensor(tensor)) => read(last_row(tensor.view()?, row, &mut self.wide)?),
            Some(OutputValue::Lent(tensor)) => {
                let borrowed = tensor.borrow()?;
                read(last_row(borrowed.view(), row, &mut self.wide)?)
            }
            _ => Err(damaged(PROGRAM, "its logits are no tensor")),
        };
        self.outputs.clear();
        found
    }

    fn call(&mut self, bounds: &Bounds) -> Result<()> {
        let (shape, count) = ([1, self.ids.len()], [self.positions.len()]);
        let broken = || Error::internal("the tokens of a call are not as many as its shape says");
        let ids = TensorInput::from_slice(&shape, &self.ids).ok_or_else(broken)?;
        let positions = TensorInput::from_slice(&count, &self.positions).ok_or_else(broken)?;
        let inputs = [InputValue::Tensor(ids), InputValue::Tensor(positions)];
        let has_positions = self.folder.signature.positions != Positions::None;
        let taken = if has_positions { inputs.as_slice() } else { inputs.split_at(1).0 };
        let options = ExecuteOptions {
            lend_outputs: true,
            cancel: Some(&bounds.cancel),
            deadline: bounds.deadline,
            ..ExecuteOptions::default()
        };
        self.method.execute_into(taken, options, &mut self.outputs)
    }

    /// Forgets tokens behind the first `length`, or all of them where the cache cannot; how many stay.
    pub(crate) fn rewind(&mut self, length: usize) -> Result<usize> {
        let can_rewind = self.folder.can_rewind();
        let mut kept = length.min(self.tokens.len());
        if !can_rewind && (kept < self.tokens.len() || self.is_harmed) {
            kept = 0;
        }
        if kept == 0 && (!self.tokens.is_empty() || self.is_harmed) {
            self.method.reset_state()?;
            self.is_harmed = false;
        }
        self.tokens.truncate(kept);
        Ok(kept)
    }
}

/// The last `length` elements as float32: in place, or in `wide`.
fn last_row<'a>(logits: TensorView<'a>, length: usize, wide: &'a mut Vec<f32>) -> Result<&'a [f32]> {
    wide.clear();
    match logits.dtype() {
        DType::Float32 => return end(logits.as_slice::<f32>()?, length),
        DType::BFloat16 => wide.extend(end(logits.as_slice::<bf16>()?, length)?.iter().map(|x| x.to_f32())),
        DType::Float16 => wide.extend(end(logits.as_slice::<f16>()?, length)?.iter().map(|x| x.to_f32())),
        DType::Float64 => wide.extend(end(logits.as_slice::<f64>()?, length)?.iter().map(|x| *x as f32)),
        other => return Err(damaged(PROGRAM, &format!("its logits are {other}, no floats"))),
    }
    Ok(wide)
}

fn end<T>(elements: &[T], length: usize) -> Result<&[T]> {
    let begin = elements.len().checked_sub(length).filter(|_| length > 0);
    begin
        .and_then(|begin| elements.get(begin..))
        .ok_or_else(|| damaged(PROGRAM, "its logits have fewer elements than a row"))
}
