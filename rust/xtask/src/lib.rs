//! What the repository checks about its own sources.
#![deny(unsafe_code)]

pub mod module_graph;
