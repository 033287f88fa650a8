//! Bytes to checked files. [`crate::ProgramFile::parse`], [`crate::DataFile::parse`] and
//! [`crate::BundleFile::parse`], which are here, are the only entries; everything after them is infallible.
//!
//! Order of checks: container and header, FlatBuffers structure of a private copy of the program table,
//! segments, constants and named data, then each method: arenas, values, delegates, instructions.
//! Walkers here do not recurse and allocate in proportion to what the structure check let through.

mod bundle;
mod container;
mod data_file;
mod delegates;
mod foreign;
mod instructions;
mod method;
mod place;
mod program;
mod segments;
mod stored_data;
pub(crate) mod table;
mod tensor_layout;
mod tensors;
mod values;

pub(crate) use data_file::data_file;
