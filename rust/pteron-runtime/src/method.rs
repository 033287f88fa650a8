//! A session of a method.

use crate::{CancelHandle, ExecuteOptions, InputValue, IoSpec, Outputs, OwnedTensor, Program};
use pteron_core::Result;
use std::sync::Arc;

/// A session: arena, state, scratch, bound kernels, initialised delegates. `Send + Sync`; a second
/// call while one runs gets `MethodBusy`.
pub struct Method {}

impl Method {
    /// Name of the method.
    pub fn name(&self) -> &str {
        todo!()
    }
    /// The program it belongs to.
    pub fn program(&self) -> &Arc<Program> {
        todo!()
    }
    /// What it takes.
    pub fn inputs(&self) -> &[IoSpec] {
        todo!()
    }
    /// What it gives.
    pub fn outputs(&self) -> &[IoSpec] {
        todo!()
    }
    /// Runs once.
    pub fn execute(&self, _inputs: &[InputValue<'_>], _options: ExecuteOptions<'_>) -> Result<Outputs> {
        todo!()
    }
    /// Stops a run from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        todo!()
    }
    /// Names of the mutable buffers, in order.
    pub fn state_names(&self) -> Vec<&str> {
        todo!()
    }
    /// Copies of all mutable buffers, by name.
    pub fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        todo!()
    }
    /// Sets mutable buffers by name; all names and shapes are checked before any is written.
    pub fn set_state(&self, _state: &[(&str, InputValue<'_>)]) -> Result<()> {
        todo!()
    }
    /// Puts all mutable buffers back to their initial contents.
    pub fn reset_state(&self) -> Result<()> {
        todo!()
    }
}
