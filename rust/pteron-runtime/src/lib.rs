//! Loads `.pte` programs and runs them.
//!
//! [`Runtime`] owns kernels, backends and threads; [`Program`] is a loaded file, immutable and shared;
//! [`Method`] is a session of one of its methods. Load resolves and checks everything, the step loop
//! trusts what load has checked.
//!
//! Unsafe code lives in the islands `storage`, `input_value`, `output_value`, `output_collect`, `strided_copy`,
//! `session`, `memory`, `delegate_call` and `step_loop`, and nowhere else: the compiler refuses it.

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

mod annotate;
mod backend_registry;
mod bound_outputs;
mod budget;
mod builds;
mod call_check;
mod cancel;
mod code_builder;
mod constants;
mod deadline;
mod debug_info;
#[allow(unsafe_code)]
mod delegate_call;
mod delegate_data;
pub mod demo;
mod execute_options;
mod extent_expression;
mod external_file;
mod external_tensors;
mod fork_lock;
mod input_check;
mod input_rule;
#[allow(unsafe_code)]
mod input_value;
mod interface;
mod io_spec;
pub mod ir;
pub mod json;
mod kernel_check;
mod kernel_registry;
mod limits;
mod lower;
#[allow(unsafe_code)]
mod memory;
mod memory_map;
mod method;
mod method_code;
mod method_instance;
mod method_options;
mod optimize;
#[allow(unsafe_code)]
mod output_collect;
#[allow(unsafe_code)]
mod output_value;
mod packed_index;
mod packed_weights;
mod planned_outputs;
mod prepare;
mod program;
mod program_data;
mod runtime;
#[allow(unsafe_code)]
mod session;
mod session_layout;
mod session_state;
mod shared_state;
mod small_constants;
mod state_analysis;
mod state_file;
mod step;
#[allow(unsafe_code)]
mod step_loop;
#[allow(unsafe_code)]
mod storage;
#[allow(unsafe_code)]
mod strided_copy;
mod tracer;
mod watch;

pub use cancel::CancelHandle;
pub use execute_options::ExecuteOptions;
pub use external_file::DataSource;
pub use input_value::{InputValue, TensorInput};
pub use io_spec::{Extent, IoKind, IoSpec, TensorIo};
pub use kernel_check::{CallToCheck, check_call};
pub use limits::Limits;
pub use memory::{Export, Memory};
pub use method::Method;
pub use method_options::MethodOptions;
pub use optimize::rule_names;
pub use output_value::{LentBytes, LentTensor, OutputBuffer, OutputValue, Outputs};
pub use packed_weights::PackedWeights;
pub use program::{Program, ProgramSource};
pub use pteron_core::{OwnedTensor, StableBytes};
pub use pteron_cpu::plan::RuleSwitches;
pub use runtime::{Runtime, RuntimeOptions};
pub use tracer::{Allocation, StepInfo, Tracer};

/// The README's Rust snippets compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadMe;

/// The backend of the guide runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/backend-guide.md")]
struct BackendGuide;
