//! Loads `.pte` programs and runs them.
//!
//! [`Runtime`] owns kernels, backends and threads; [`Program`] is a loaded file, immutable and shared;
//! [`Method`] is a session of one of its methods. Load resolves and checks everything, the step loop
//! trusts what load has checked.
//!
//! Unsafe code lives in `storage`, `input_value`, `output_value`, `copy_in`, `session` and `step_loop`.

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

mod backend_registry;
mod cancel;
mod deadline;
pub mod demo;
mod execute_options;
mod input_value;
mod io_spec;
pub mod ir;
mod kernel_registry;
mod limits;
mod method;
mod method_options;
pub mod optimize;
mod output_value;
mod program;
mod runtime;
mod storage;
mod tracer;

pub use cancel::CancelHandle;
pub use execute_options::ExecuteOptions;
pub use input_value::{InputValue, TensorInput};
pub use io_spec::{Extent, IoKind, IoSpec, TensorIo};
pub use limits::Limits;
pub use method::Method;
pub use method_options::MethodOptions;
pub use output_value::{OutputBuffer, OutputValue, Outputs, OwnedTensor};
pub use program::{Program, ProgramSource};
pub use pteron_cpu::plan::RuleSwitches;
pub use runtime::{Runtime, RuntimeOptions};
pub use storage::StableBytes;
pub use tracer::{StepInfo, Tracer};
