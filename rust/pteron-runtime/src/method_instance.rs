//! A session behind its lock: what [`crate::Method`] and the session pool of a program hold.

use crate::cancel::CancelHandle;
use crate::deadline::Deadline;
use crate::delegate_call::{check_calls, init_delegates, panic_text};
use crate::input_check::check_inputs;
use crate::memory_map::ArgumentRole;
use crate::method_code::MethodCode;
use crate::output_collect::{check_buffers, collect, copy_of};
use crate::session::Session;
use crate::shared_state::SharedState;
use crate::step_loop::{Observers, Run};
use crate::{ExecuteOptions, InputValue, Limits, MethodOptions, Outputs, OwnedTensor};
use pteron_core::error::printable;
use pteron_core::{Error, ErrorKind, RandomStream, Result};
use pteron_cpu::Executor;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// See the module.
pub(crate) struct MethodInstance {
    code: Arc<MethodCode>,
    guarded: Mutex<Guarded>,
    cancel: CancelHandle,
    max_threads: usize,
    limits: Limits,
    open_calls: HashMap<usize, Box<[ArgumentRole]>>,
    is_stateful: bool,
    // Sessions that share memory take turns.
    turn: Option<Arc<Mutex<()>>>,
}

/// The session of a method, and the turn of its group, held.
struct Held<'a> {
    guarded: MutexGuard<'a, Guarded>,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Deref for Held<'_> {
    type Target = Guarded;
    fn deref(&self) -> &Guarded {
        &self.guarded
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Guarded {
        &mut self.guarded
    }
}

struct Guarded {
    session: Session,
    // A panic while running leaves state that nobody knows.
    is_poisoned: bool,
    // A delegate kept a view of this session's memory, which is therefore never used again.
    is_abandoned: bool,
}

impl MethodInstance {
    /// Memory, bound kernels, initialised delegates. `limits` are the program's.
    /// `shared`: what it has in common with other sessions.
    pub(crate) fn new(
        code: Arc<MethodCode>,
        options: &MethodOptions,
        limits: Limits,
        shared: Option<&SharedState>,
    ) -> Result<Self> {
        if options.num_threads == Some(0) {
            let hint = "leave it out to use all threads of the runtime's pool";
            return Err(no_threads().method(code.ir.name.as_str()).hint(hint));
        }
        let limits = options.limits.or(limits);
        let pool = code.runtime.pool();
        let max_threads = options.num_threads.unwrap_or(pool.threads()).clamp(1, pool.threads().max(1));
        let mut session = Session::new(&code, max_threads, &limits, shared)?;
        if let Some(seed) = options.seed {
            session.random = RandomStream::new(seed);
        }
        session.delegates = init_delegates(&code, &options.backend_options)?;
        let open_calls = check_calls(&code, &session.delegates)?;
        let outputs: Vec<usize> = session.delegates.iter().map(|d| d.num_outputs).collect();
        let is_stateful = crate::state_analysis::is_stateful(&code.ir, &code.steps, &outputs);
        Ok(MethodInstance {
            guarded: Mutex::new(Guarded { session, is_poisoned: false, is_abandoned: false }),
            cancel: CancelHandle::new(),
            max_threads,
            limits,
            open_calls,
            is_stateful,
            turn: shared.map(|s| s.turn.clone()),
            code,
        })
    }

    pub(crate) fn code(&self) -> &Arc<MethodCode> {
        &self.code
    }

    /// Does one call leave something for the next?
    pub(crate) fn is_stateful(&self) -> bool {
        self.is_stateful
    }

    pub(crate) fn cancel_handle(&self) -> &CancelHandle {
        &self.cancel
    }

    fn lock(&self) -> Result<Held<'_>> {
        let turn = match self.turn.as_ref().map(|t| t.try_lock()) {
            None => None,
            Some(Ok(turn)) => Some(turn),
            Some(Err(TryLockError::WouldBlock)) => {
                return Err(Error::new(
                    ErrorKind::MethodBusy,
                    "a method that shares its buffers with this one is running",
                )
                .method(self.code.ir.name.as_str())
                .hint("methods that were loaded together run one at a time"));
            }
            Some(Err(TryLockError::Poisoned(_))) => {
                return Err(poisoned().method(self.code.ir.name.as_str()));
            }
        };
        Ok(Held { guarded: self.lock_session()?, _turn: turn })
    }

    fn lock_session(&self) -> Result<MutexGuard<'_, Guarded>> {
        match self.guarded.try_lock() {
            Ok(guard) if guard.is_poisoned => {
                Err(poisoned().method(self.code.ir.name.as_str()).hint("load the method again"))
            }
            Ok(guard) if guard.is_abandoned => Err(Error::delegate(
                "in an earlier call a delegate kept a view of the session's memory, so the session cannot be used \
                 any more",
            )
            .method(self.code.ir.name.as_str())
            .hint("load the method again; a delegate must copy what it keeps")),
            Ok(guard) => Ok(guard),
            Err(TryLockError::WouldBlock) => {
                Err(Error::new(ErrorKind::MethodBusy, "the method is running already")
                    .method(self.code.ir.name.as_str())
                    .hint("use one Method per thread, or program.run(), which keeps a pool of sessions"))
            }
            Err(TryLockError::Poisoned(_)) => Err(poisoned().method(self.code.ir.name.as_str())),
        }
    }

    /// Runs once.
    pub(crate) fn execute(&self, inputs: &[InputValue<'_>], options: ExecuteOptions<'_>) -> Result<Outputs> {
        let mut guard = self.lock()?;
        let Guarded { session, is_poisoned, is_abandoned } = &mut *guard;
        match catch_unwind(AssertUnwindSafe(|| self.run(session, inputs, options))) {
            Ok(Err(error)) if error.detail().is_memory_kept => {
                *is_abandoned = true;
                // Constants can be arguments of delegates as well.
                std::mem::forget(self.code.clone());
                Err(error)
            }
            Ok(result) => result,
            Err(panic) => {
                *is_poisoned = true;
                Err(Error::internal("the runtime panicked; this is a bug in pteron")
                    .method(self.code.ir.name.as_str())
                    .got(panic_text(&*panic))
                    .hint("load the method again, and please report this with the program"))
            }
        }
    }

    fn run(
        &self,
        session: &mut Session,
        inputs: &[InputValue<'_>],
        options: ExecuteOptions<'_>,
    ) -> Result<Outputs> {
        let code = &*self.code;
        self.cancel.reset();
        if options.num_threads == Some(0) {
            let hint = "leave it out to use all threads that the method was loaded with";
            return Err(no_threads().method(code.ir.name.as_str()).hint(hint));
        }
        check_inputs(code, inputs)?;
        check_buffers(code, options.outputs)?;
        session.end_loans(code)?;
        session.begin(code, inputs, options.outputs)?;
        let watch = options.deadline.map(|when| (Deadline::set(when, &self.cancel), when));
        let budget = match (options.budget, self.limits.instructions) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(u64::MAX),
        };
        let mut run = Run {
            code,
            cancel: &self.cancel,
            executor: Executor {
                pool: code.runtime.pool(),
                max_threads: options.num_threads.unwrap_or(self.max_threads).min(self.max_threads),
                stop: self.cancel.word(),
            },
            budget,
            full_budget: budget,
            observers: Observers {
                tracer: options.tracer,
                poll: options.poll,
                deadline: watch.as_ref().and_then(|(w, when)| w.is_none().then_some(*when)),
            },
            open_calls: &self.open_calls,
        };
        let result = run.execute(session);
        let outputs = match result {
            Ok(()) => collect(code, session, options.outputs, options.lend_outputs),
            Err(e) => Err(e),
        };
        match &outputs {
            Err(error) if error.detail().is_memory_kept => session.abandon_memory(),
            _ => session.drop_fresh(),
        }
        outputs
    }

    /// Copies of all mutable buffers, by name.
    pub(crate) fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        let guard = self.lock()?;
        let copy = |(name, id): &(String, _)| Ok((name.clone(), copy_of(guard.session.slot(*id)?)?));
        self.code.layout.state.iter().map(copy).collect()
    }

    /// Sets mutable buffers by name. Everything is checked before anything is written.
    pub(crate) fn set_state(&self, state: &[(&str, InputValue<'_>)]) -> Result<()> {
        let mut guard = self.lock()?;
        let mut checked = Vec::new();
        for (name, value) in state {
            let at = |e: Error| e.method(self.code.ir.name.as_str()).argument(*name);
            let names =
                || self.code.layout.state.iter().map(|(n, _)| printable(n)).collect::<Vec<_>>().join(", ");
            let Some((_, id)) = self.code.layout.state.iter().find(|(n, _)| n == name) else {
                return Err(at(Error::input("the method has no mutable buffer of this name")
                    .expected(match names() {
                        known if known.is_empty() => {
                            "no names: the method has no mutable buffers".to_string()
                        }
                        known => format!("one of: {known}"),
                    })
                    .got(printable(name))
                    .hint("get_state() of the method gives all buffers by name")));
            };
            let InputValue::Tensor(tensor) = value else {
                return Err(at(Error::input_type("a mutable buffer is set to something that is no tensor")
                    .expected("a tensor")
                    .got(value.kind_name())
                    .hint("get_state() of the method shows what fits")));
            };
            let slot = guard.session.slot(*id)?;
            let is_same = tensor.dtype == slot.meta().dtype() && *tensor.shape == **slot.bound();
            if !is_same {
                return Err(at(Error::input("a mutable buffer is set to another dtype or shape")
                    .expected(format!("{}{}", slot.meta().dtype(), slot.bound()))
                    .got(format!("{}{:?}", tensor.dtype, tensor.shape))
                    .hint("get_state() of the method shows what fits")));
            }
            checked.push((*id, tensor));
        }
        guard.session.end_loans(&self.code)?;
        checked.into_iter().try_for_each(|(id, tensor)| guard.session.set_tensor(id, tensor))
    }

    /// Starts the stream of a seed.
    pub(crate) fn seed(&self, seed: u64) -> Result<()> {
        self.lock()?.session.random = RandomStream::new(seed);
        Ok(())
    }

    /// Puts mutable buffers back to their initial contents.
    pub(crate) fn reset_state(&self) -> Result<()> {
        let mut guard = self.lock()?;
        guard.session.end_loans(&self.code)?;
        guard.session.reset_state(&self.code)
    }
}

#[cold]
fn no_threads() -> Error {
    Error::input("a method cannot run on no threads").argument("num_threads").expected("at least 1").got("0")
}

#[cold]
fn poisoned() -> Error {
    Error::internal("an earlier call of this session panicked, so its state is unknown")
}
