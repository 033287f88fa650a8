//! From the instructions of an expanded method back to those of the file, for errors, traces and listings.

use crate::load::debug_info::DebugInfo;
use pteron_core::Error;
use pteron_format::DelegateDef;
use std::fmt::{self, Display, Formatter};

/// Where each instruction of a method comes from.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    // Empty where nothing was expanded: every instruction is the file's.
    all: Vec<Origin>,
}

/// Where one instruction comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Index in the file.
    pub instruction: u32,
    /// The part of a delegate that it is, if that was expanded.
    pub part: Option<DelegatePart>,
}

/// A part of a delegate that load replaced by calls of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegatePart {
    /// Index of the delegate.
    pub delegate: u32,
    /// Index of the payload's node.
    pub node: u32,
    /// Debug handle of the node, in the delegate's number space.
    pub handle: u32,
}

impl Origins {
    /// Of the instructions of an expanded method in order, and of the end behind them.
    pub(crate) fn new(all: Vec<Origin>) -> Self {
        Origins { all }
    }

    /// Where instruction `index` comes from.
    pub(crate) fn of(&self, index: u32) -> Origin {
        self.all.get(index as usize).copied().unwrap_or(Origin { instruction: index, part: None })
    }

    /// The file's instruction that instruction `index` stands for.
    pub(crate) fn instruction(&self, index: u32) -> u32 {
        self.of(index).instruction
    }

    /// Says where in the file an error is that names an instruction of the expanded method.
    pub(crate) fn locate(&self, error: Error, delegates: &[DelegateDef], debug: &DebugInfo) -> Error {
        let Some(index) = error.detail().instruction.filter(|_| !self.all.is_empty()) else { return error };
        let origin = self.of(u32::try_from(index).unwrap_or(u32::MAX));
        let error = error.with_instruction(origin.instruction as usize);
        let Some(part) = origin.part else { return error };
        let method = error.detail().method.clone().unwrap_or_default();
        let message = format!("node {} of the delegate: {}", part.node, error.detail().message);
        let error = error.with_message(message).debug_handle(i64::from(part.handle));
        delegate_place(error, delegates, debug, &method, part.delegate)
    }
}

impl Display for Origin {
    /// `7`, or `7.3` for node 3 of the delegate that instruction 7 calls.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.instruction)?;
        match self.part {
            Some(part) => write!(f, ".{}", part.node),
            None => Ok(()),
        }
    }
}

/// Adds what is known of the place of an error in delegate number `delegate`: its backend, and by the error's debug
/// handle, looked up in the delegate's own table, operator and line of the model.
pub(crate) fn delegate_place(
    mut error: Error,
    delegates: &[DelegateDef],
    debug: &DebugInfo,
    method: &str,
    delegate: u32,
) -> Error {
    if let Some(def) = delegates.get(delegate as usize) {
        error = error.backend(def.backend.as_str());
    }
    if let Some(handle) = error.detail().debug_handle
        && let Some(source) = debug.delegate_source(method, delegate, handle)
    {
        if let Some(operator) = source.operator {
            error = error.operator(operator);
        }
        if let Some(line) = source.source_line {
            error = error.source_line(line);
        }
    }
    error
}
