//! Kernels that move elements without computing: strided copies, joining, padding, table rows.

pub mod cat;
pub mod embedding;
pub mod pad;
pub mod strided_copy;
#[cfg(test)]
mod tests;
pub mod triangle;
pub mod views;
