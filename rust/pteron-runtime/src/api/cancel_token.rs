//! What stops calls whose session their caller does not have: those of [`crate::Program::run`].

use crate::CancelHandle;
use crate::api::fork_lock::ForkLock;
use pteron_core::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// Cancels every call that was given it, from any thread: those that run, and those that begin later.
#[derive(Clone)]
pub struct CancelToken {
    state: Arc<ForkLock<State>>,
}

#[derive(Default)]
struct State {
    is_cancelled: bool,
    running: Vec<CancelHandle>,
}

impl CancelToken {
    /// A token that has not been cancelled.
    pub fn new() -> Self {
        CancelToken { state: Arc::new(ForkLock::new(State::default())) }
    }

    /// Stops the calls that run with this token, and all that will, with [`pteron_core::ErrorKind::Cancelled`].
    ///
    /// Errors: `Input` in a child that was forked while another thread used the token.
    pub fn cancel(&self) -> Result<()> {
        let mut state = self.state.lock_within(Duration::ZERO).ok_or_else(left_behind)?;
        state.is_cancelled = true;
        state.running.iter().for_each(CancelHandle::cancel);
        Ok(())
    }

    /// Has it been cancelled?
    ///
    /// Errors: as [`CancelToken::cancel`].
    pub fn is_cancelled(&self) -> Result<bool> {
        Ok(self.state.lock_within(Duration::ZERO).ok_or_else(left_behind)?.is_cancelled)
    }

    /// Lets the token stop `run` until the result is dropped.
    pub(crate) fn listen(&self, run: &CancelHandle) -> Result<Listening<'_>> {
        let mut state = self.state.lock_within(Duration::ZERO).ok_or_else(left_behind)?;
        state.running.push(run.clone());
        if state.is_cancelled {
            run.cancel();
        }
        Ok(Listening { token: self, run: run.clone() })
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CancelToken")
    }
}

/// A run that a token can stop.
pub(crate) struct Listening<'a> {
    token: &'a CancelToken,
    run: CancelHandle,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        // In a child that was forked during the run the lock may be held for ever; nobody else runs there.
        if let Some(mut state) = self.token.state.lock_within(Duration::ZERO)
            && let Some(at) = state.running.iter().position(|other| other.is_same(&self.run))
        {
            state.running.swap_remove(at);
        }
    }
}

#[cold]
fn left_behind() -> Error {
    Error::input("the cancel token was in use when this process was forked")
        .argument("cancel")
        .expected("a token that was made in this process")
        .hint("make a new token in the child")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stops_runs_now_and_later_and_lets_go_of_those_that_ended() {
        let token = CancelToken::new();
        let (ended, running, later) = (CancelHandle::new(), CancelHandle::new(), CancelHandle::new());
        let _calls = [&ended, &running, &later].map(CancelHandle::begin_call);
        drop(token.listen(&ended).unwrap());
        let _listening = token.listen(&running).unwrap();
        assert!(!token.is_cancelled().unwrap() && running.is_running());
        token.clone().cancel().unwrap();
        let _later = token.listen(&later).unwrap();
        assert!(token.is_cancelled().unwrap());
        assert_eq!([&ended, &running, &later].map(CancelHandle::is_running), [true, false, false]);
    }
}
