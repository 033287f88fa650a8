//! From the bytes of a file to a [`method_code::MethodCode`]: sources and data files, the checked program, interface and
//! limits, lowering, checks of calls, kernels chosen and prepared, the layout of sessions. Nothing in here runs a program.
//!
//! Unsafe island: `storage`.

pub(crate) mod available_memory;
pub(crate) mod backend_registry;
pub(crate) mod build_progress;
pub(crate) mod call_check;
pub(crate) mod code_builder;
pub(crate) mod computed_uses;
pub(crate) mod constants;
pub(crate) mod custom_operators;
pub(crate) mod debug_info;
pub(crate) mod delegate_data;
pub(crate) mod device_check;
pub(crate) mod expand;
pub(crate) mod extent_expression;
pub(crate) mod external_file;
pub(crate) mod external_tensors;
pub(crate) mod input_rule;
pub(crate) mod interface;
pub(crate) mod io_spec;
pub mod json;
pub(crate) mod kernel_registry;
pub(crate) mod limits;
pub(crate) mod lower;
pub(crate) mod method_code;
pub(crate) mod packed_index;
pub(crate) mod packed_weights;
pub(crate) mod planned_outputs;
pub(crate) mod prepare;
pub(crate) mod program_data;
pub(crate) mod runtime;
pub(crate) mod session_layout;
pub(crate) mod small_constants;
pub(crate) mod source;
pub(crate) mod state_analysis;
pub(crate) mod step;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod storage;
