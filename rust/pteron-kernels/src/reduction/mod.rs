//! What reductions have in common: the iteration of the plain kernels, and the fast kernels over neighbouring dimensions,
//! which the rows of sums and those of extremes both name.

#[allow(unsafe_code, reason = "a SIMD task")]
pub mod float;
#[allow(unsafe_code, reason = "vector stores")]
mod float_steps;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod fold;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod log_sum_exp;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod moments;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod other_dtypes;
#[cfg(test)]
mod other_dtypes_tests;
pub mod plain;
#[cfg(test)]
mod plain_tests;
pub mod shape;
#[allow(unsafe_code, reason = "a SIMD task")]
pub mod spread;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wide_tests;
