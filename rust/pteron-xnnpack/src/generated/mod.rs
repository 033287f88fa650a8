//! Code that `cargo xtask gen` makes from `schema/xnnpack_payload.fbs` with flatc. Not edited by hand; no type of it leaves
//! this crate.

#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all, clippy::pedantic, clippy::restriction)]
#[rustfmt::skip]
mod xnnpack_payload_generated;

pub(crate) use xnnpack_payload_generated::xnnpack_payload as wire;
