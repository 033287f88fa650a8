//! Payloads of ExecuTorch's XNNPACK delegate: read, checked, and translated to calls of operators that every program
//! may call. Executes nothing; `pteron-runtime` puts the calls in the place of the delegate's instruction.
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod datatype;
mod expansion;
#[allow(unsafe_code, reason = "what flatc writes")]
mod generated;
mod listing;
mod node_place;
mod payload;
mod read;
#[cfg(test)]
mod testing;
mod translate;

pub use expansion::{
    ConstantBytes, ExpandedConstant, ExpandedTensor, ExpandedValue, Expansion, OperatorCall,
};

use pteron_core::{NamedData, Result, TensorSpec};

/// The id of the backend whose payloads these are, as programs name it.
pub const BACKEND: &str = "XnnpackBackend";

/// The operator calls that do what the delegate of `payload` does.
///
/// `arguments` are those of the delegate call in order, inputs before outputs: dtype, extents (upper bounds of dynamic
/// ones), memory order; `None` for an argument that is no tensor. `named` holds the weights that the payload names; lengths
/// of all of them are checked, bytes are read only where a weight is computed anew.
///
/// # Errors
/// `ErrorKind::Program` for a damaged payload, one that breaks a rule of the format, or does not fit the arguments;
/// `ErrorKind::ExternalData` for a weight that is not there or too short; `ErrorKind::MissingOperator` for a node, dtype or
/// flag without translation; `ErrorKind::LimitExceeded` when memory cannot be had. Errors name the node and carry its
/// debug handle.
pub fn expand(payload: &[u8], arguments: &[Option<TensorSpec>], named: &dyn NamedData) -> Result<Expansion> {
    let read = read::read(payload, arguments, named)?;
    translate::translate(&read, payload, arguments, named)
}
