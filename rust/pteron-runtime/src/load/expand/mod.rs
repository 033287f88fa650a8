//! Delegates whose payload the runtime understands become operators before anything else happens to the method: the
//! instruction that calls one is replaced by calls of operators, which are then optimised, prepared and planned with the
//! code around them. XNNPACK's payloads are; `pteron-xnnpack` translates them.
//!
//! A backend that somebody registered under the name comes first: its delegates stay.

mod constants;
mod intermediates;
mod options;
mod origins;
mod overlap;
mod splice;
#[cfg(test)]
mod tests;
mod views;

pub(crate) use options::check_options;
pub use origins::DelegatePart;
pub(crate) use origins::delegate_place;
pub(crate) use splice::{ExpandInput, Expanded, Translate, expand};
