//! Resampling of images.

pub mod bilinear;
pub mod coordinates;
#[cfg(test)]
mod tests;
