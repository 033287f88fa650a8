//! Code that `cargo xtask gen` makes from `schema/program.fbs` with flatc. Not edited by hand; no type
//! of it leaves this crate.

#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all, clippy::pedantic, clippy::restriction)]
#[rustfmt::skip]
mod program_generated;

pub(crate) use program_generated::executorch_flatbuffer as wire;
