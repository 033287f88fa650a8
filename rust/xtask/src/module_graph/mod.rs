//! Which module of a crate uses which other one, and which of them form circles.
//!
//! A module is a file (inline modules belong to their file). An edge goes from a file to the file that *defines* a name
//! it uses, through every re-export in between: `use crate::Program` of `pub use api::program::Program` is an edge to
//! `api/program.rs`. A re-export, a `mod` declaration and a module that a path only passes through make no edge. Methods
//! that are called through a value are not seen, nor is code under `cfg(test)`.

mod components;
mod graph;
mod resolve;
mod source_tree;
mod uses;

pub use components::{Component, components};
pub use graph::{Edge, ModuleGraph};
