//! Pooling kernels: max, average, adaptive average, over planes or channels-last images.

pub mod avg_pool;
pub mod max_pool;
#[cfg(test)]
mod tests;
pub mod window;
