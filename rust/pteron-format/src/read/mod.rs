//! Bytes to a checked program. [`program()`] is the only entry; everything after it is infallible.
//!
//! Order of checks: container and header, FlatBuffers structure of a private copy of the program table,
//! segments, constants and named data, then each method: arenas, values, delegates, instructions.
//! Walkers here do not recurse and allocate in proportion to what the structure check let through.

mod container;
mod delegates;
mod instructions;
mod method;
mod place;
mod program;
mod segments;
mod stored_data;
mod table;
mod tensors;
mod values;

pub(crate) use program::program;
