//! What the repository checks about its own sources.

pub mod module_graph;
