//! pteron in C and C++ programs: the run half behind the functions of `include/pteron.h`, as a shared and a static
//! library.
//!
//! Handles are numbers of a table (`handles`), never addresses: what a caller gives is looked up, so that null, a handle of
//! another kind and one that was freed are errors. Every function runs inside `guard::call`, which contains panics and
//! keeps the text of an error for its thread (`last_error`). What comes in through pointers is read by `reading`, once, and
//! checked; everything behind it is safe code over `pteron-runtime`.
//!
//! Unsafe code lives in the islands that export functions (`library`, `last_error`, `runtime`, `program`, `metadata`,
//! `method`, `state`) and in `reading`, `arguments` and `source`; the compiler refuses it elsewhere.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod abi;
#[allow(unsafe_code, reason = "tensors in the caller's memory")]
mod arguments;
pub mod codes;
mod failure;
#[allow(unsafe_code, reason = "asks the system to be told of forks")]
mod fork;
mod guard;
mod handles;
#[allow(unsafe_code, reason = "exported functions")]
pub mod last_error;
#[allow(unsafe_code, reason = "exported functions")]
pub mod library;
mod limits;
mod loaded_program;
#[allow(unsafe_code, reason = "exported functions")]
pub mod metadata;
#[allow(unsafe_code, reason = "exported functions")]
pub mod method;
#[allow(unsafe_code, reason = "exported functions")]
pub mod program;
#[allow(unsafe_code, reason = "what the caller's pointers point to")]
mod reading;
mod results;
#[allow(unsafe_code, reason = "exported functions")]
pub mod runtime;
mod session;
#[allow(unsafe_code, reason = "bytes that the caller lends")]
mod source;
mod specs;
#[allow(unsafe_code, reason = "exported functions")]
pub mod state;
mod text;
mod wording;

/// Small lists that load makes end in an error, not the process, when memory runs out.
#[global_allocator]
static ALLOCATOR: pteron_core::memory_reserve::ReservingAllocator =
    pteron_core::memory_reserve::ReservingAllocator(std::alloc::System);
