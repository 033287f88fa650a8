//! One session of a method and what happens in it: memory, slots, inputs and outputs, delegates, the step loop, state.
//! It trusts what `load` has checked.
//!
//! Unsafe islands: `delegate_call`, `input_copy`, `input_value`, `memory`, `output_collect`, `output_value`, `slots` and
//! `step_loop`.

pub(crate) mod annotate;
pub(crate) mod bound_outputs;
pub(crate) mod budget;
pub(crate) mod cancel;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod delegate_call;
pub(crate) mod input_check;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod input_copy;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod input_value;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod memory;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod output_collect;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod output_value;
pub(crate) mod session_state;
pub(crate) mod shared_state;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod slots;
pub(crate) mod state_file;
pub(crate) mod stated_outputs;
#[allow(unsafe_code, reason = "slots of a session point to its arenas, to inputs and to outputs")]
pub(crate) mod step_loop;
pub(crate) mod step_times;
pub(crate) mod tracer;
pub(crate) mod watch;
