//! A session of a method with the outputs of its last call.

use crate::failure::Outcome;
use crate::loaded_program::LoadedProgram;
use crate::results::Results;
use pteron_core::Error;
use pteron_runtime::{CancelHandle, Method};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// A session.
pub(crate) struct Session {
    pub method: Method,
    pub cancel: CancelHandle,
    results: Mutex<Option<Results>>,
    // Where the handle of the program is freed before this one.
    _program: Arc<LoadedProgram>,
}

impl Session {
    pub(crate) fn new(method: Method, program: Arc<LoadedProgram>) -> Session {
        let cancel = method.cancel_handle();
        Session { method, cancel, results: Mutex::new(None), _program: program }
    }

    /// The session for this call alone, with the outputs of the last call.
    ///
    /// Errors: `MethodBusy` while another call is inside; `Internal` after a panic.
    pub(crate) fn enter(&self) -> Outcome<MutexGuard<'_, Option<Results>>> {
        match self.results.try_lock() {
            Ok(results) => Ok(results),
            Err(TryLockError::WouldBlock) => Err(Error::method_busy("the method is in use already")
                .method(self.method.name())
                .expected("one call at a time")
                .hint("load a method for each thread: they share code and weights")
                .into()),
            Err(TryLockError::Poisoned(_)) => {
                Err(Error::internal("an earlier call of the method panicked, so it refuses further use")
                    .method(self.method.name())
                    .hint("load the method again, and report the first error with the program")
                    .into())
            }
        }
    }
}
