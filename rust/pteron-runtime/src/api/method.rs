//! A session of a method, as callers see it, and how a program makes one.

use crate::api::method_instance::MethodInstance;
use crate::load::method_code::MethodCode;
use crate::session::shared_state::SharedState;
use crate::{CancelHandle, ExecuteOptions, InputValue, IoSpec, MethodOptions, Outputs, OwnedTensor, Program};
use pteron_core::error::printable;
use pteron_core::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// A session: arena, state, scratch, bound kernels, initialised delegates. `Send + Sync`; a call while
/// another one runs gets `MethodBusy`, it never waits.
pub struct Method {
    program: Arc<Program>,
    instance: MethodInstance,
}

impl Program {
    /// A new session of a method: memory, state, initialised delegates.
    pub fn load_method(self: &Arc<Self>, name: &str, options: MethodOptions) -> Result<Method> {
        let instance = self.instance_of(self.code(name)?, &options, None)?;
        Ok(Method { program: self.clone(), instance })
    }

    /// New sessions of several methods that have one copy of the mutable buffers which the program shares
    /// between them; no other session sees it. They run one at a time: a call meanwhile gets `MethodBusy`.
    /// An error where the methods share no buffers.
    pub fn load_methods(self: &Arc<Self>, names: &[&str], options: &MethodOptions) -> Result<Vec<Method>> {
        for (i, name) in names.iter().enumerate() {
            if names.iter().take(i).any(|n| n == name) {
                return Err(Error::input("a method is named twice")
                    .argument("methods")
                    .expected("each method once")
                    .got(printable(name))
                    .hint("sessions of one method that share state would be one session"));
            }
        }
        let codes = names.iter().map(|name| self.code(name)).collect::<Result<Vec<_>>>()?;
        let shared = SharedState::new(&codes)?;
        let load = |code: Arc<MethodCode>| {
            let instance = self.instance_of(code, options, Some(&shared))?;
            Ok(Method { program: self.clone(), instance })
        };
        codes.into_iter().map(load).collect()
    }
}

impl Method {
    /// Name of the method.
    pub fn name(&self) -> &str {
        &self.instance.code().ir.name
    }

    /// The program it belongs to.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What it takes, in flat order.
    pub fn inputs(&self) -> &[IoSpec] {
        &self.instance.code().inputs
    }

    /// What it gives, in flat order.
    pub fn outputs(&self) -> &[IoSpec] {
        &self.instance.code().outputs
    }

    /// Does one call leave something in mutable buffers that the next call sees?
    pub fn is_stateful(&self) -> bool {
        self.instance.is_stateful()
    }

    /// Runs once. Inputs are checked before anything is touched, so after a refused call the next one
    /// finds everything as it was. (A bound output whose shape is legal, but not the one that this call's inputs
    /// give it, is refused when the output is there: state has advanced then.)
    pub fn execute(&self, inputs: &[InputValue<'_>], options: ExecuteOptions<'_>) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        self.execute_into(inputs, options, &mut outputs)?;
        Ok(outputs)
    }

    /// As [`Method::execute`], into a list of the caller's, which is emptied first: outputs are large values, and
    /// a list that is kept spares moving them from place to place. It is empty after an error.
    pub fn execute_into(
        &self,
        inputs: &[InputValue<'_>],
        options: ExecuteOptions<'_>,
        outputs: &mut Outputs,
    ) -> Result<()> {
        self.instance.execute(inputs, options, outputs)
    }

    /// Stops a run from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.instance.cancel_handle().clone()
    }

    /// Names of the mutable buffers of the method itself, in order.
    pub fn state_names(&self) -> Vec<&str> {
        self.instance.code().layout.state.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Copies of all mutable buffers, by name: the method's own, then those of its delegates. An error where a
    /// delegate owns buffers and does not give them.
    pub fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        self.instance.get_state()
    }

    /// Sets mutable buffers by name; all names, dtypes and shapes are checked before any is written.
    pub fn set_state(&self, state: &[(&str, InputValue<'_>)]) -> Result<()> {
        self.instance.set_state(state)
    }

    /// Writes all mutable buffers to a file, a data file (`.ptd`) with a tensor per buffer. The file is complete
    /// or not there.
    pub fn save_state(&self, path: &Path) -> Result<()> {
        self.instance.save_state(path)
    }

    /// Sets all mutable buffers from a file of [`Method::save_state`]. A file that lacks one, or has one of
    /// another name, dtype or shape, is an error that changes nothing.
    pub fn load_state(&self, path: &Path) -> Result<()> {
        self.instance.load_state(path)
    }

    /// Starts the random stream of a seed: the calls that follow draw what they would in a session that
    /// was loaded with it. State in mutable buffers stays.
    pub fn seed(&self, seed: u64) -> Result<()> {
        self.instance.seed(seed)
    }

    /// Puts all mutable buffers back to their initial contents. The random stream goes on.
    pub fn reset_state(&self) -> Result<()> {
        self.instance.reset_state()
    }
}
