//! From logits to a token: penalties, filters, and a draw that is the same on every machine.
//!
//! Floats are used where IEEE 754 fixes every bit: single additions, multiplications and divisions of float64, no sums.
//! Weights of tokens become integers, and sums of integers do not depend on their order. Rules and their order are those
//! of transformers: penalties, temperature, top-k, top-p, min-p.

mod blocks;
mod candidates;
mod log_probabilities;
mod logit;
pub(crate) mod parameters;
mod philox;
mod ranked_weights;
pub(crate) mod sampler;
mod token_counts;
mod vector_loops;
mod weights;

pub(crate) use log_probabilities::log_probability;
