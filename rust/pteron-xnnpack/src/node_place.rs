//! Errors that name the node they are about.

use crate::payload::{Node, kind_name};
use pteron_core::Error;

/// The error with the node's number and kind in its text, and its debug handle.
pub(crate) fn in_node(error: Error, number: usize, node: &Node) -> Error {
    of_kind(error, number, node.tag, node.debug_handle)
}

/// The same for a node that is not read yet.
pub(crate) fn of_kind(error: Error, number: usize, tag: u8, debug_handle: u32) -> Error {
    let message =
        format!("node {number} ({}) of the XNNPACK payload: {}", kind_name(tag), error.detail().message);
    error.with_message(message).debug_handle(i64::from(debug_handle))
}
