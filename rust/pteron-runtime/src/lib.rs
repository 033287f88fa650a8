//! Loads `.pte` programs and runs them.
//!
//! [`Runtime`] owns kernels, backends and threads; [`Program`] is a loaded file, immutable and shared;
//! [`Method`] is a session of one of its methods. Load resolves and checks everything, the step loop
//! trusts what load has checked.
//!
//! The folders follow the life of a program: `load` (bytes to checked, prepared code) with `optimize`, `session` (memory
//! and the step loop), `api` (what callers hold). `ir` is the language between load and optimize.
//!
//! Unsafe code lives in the islands that `load` and `session` name, and nowhere else: the compiler refuses it.

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

mod api;
mod fit;
pub mod ir;
mod load;
mod optimize;
mod session;
mod step_effects;

pub use api::call_tree::{Leaves, Objects, StoredKey};
pub use api::calling_convention::CallingConvention;
pub use api::cancel_token::CancelToken;
pub use api::execute_options::ExecuteOptions;
pub use api::kernel_check::{CallToCheck, check_call};
pub use api::method::Method;
pub use api::method_options::MethodOptions;
pub use api::program::Program;
pub use load::expand::DelegatePart;
pub use load::external_file::DataSource;
pub use load::io_spec::{Extent, IoKind, IoSpec, TensorIo};
pub use load::json;
pub use load::limits::Limits;
pub use load::packed_weights::PackedWeights;
pub use load::runtime::{Runtime, RuntimeOptions};
pub use load::source::ProgramSource;
pub use optimize::rule_names;
pub use pteron_core::{OwnedTensor, StableBytes};
pub use pteron_cpu::plan::RuleSwitches;
pub use pteron_cpu::pool::{available_processors, threads_of_environment};
pub use session::cancel::{CallInProgress, CancelHandle};
pub use session::input_value::{InputValue, TensorInput};
pub use session::memory::{Export, Memory};
pub use session::output_value::{LentBytes, LentTensor, OutputBuffer, OutputValue, Outputs};
pub use session::step_times::{HelperTime, PartId, PartTime, StepTime, StepTimes};
pub use session::tracer::{Allocation, StepInfo, Tracer};

/// The README's Rust snippets compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadMe;

/// The kernel of the page on custom operators runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/custom-operators.md")]
struct CustomOperators;

/// The backend of the guide runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/backend-guide.md")]
struct BackendGuide;
