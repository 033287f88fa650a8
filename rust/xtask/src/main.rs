//! Code generation of the repository, and its check mode.
fn main() {}
