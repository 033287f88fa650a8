//! A session behind its lock: what [`crate::Method`] and the session pool of a program hold.

use crate::api::deadline::Deadline;
use crate::load::method_code::MethodCode;
use crate::session::budget::Budget;
use crate::session::cancel::CancelHandle;
use crate::session::delegate_call::{check_calls, init_delegates};
use crate::session::output_collect::collect;
use crate::session::session_state;
use crate::session::shared_state::SharedState;
use crate::session::slots::Session;
use crate::session::state_file::{self, StateFile};
use crate::session::step_loop::{Observers, Run};
use crate::session::watch::Watch;
use crate::step_effects::ArgumentRole;
use crate::{
    Allocation, ExecuteOptions, InputValue, Limits, MethodOptions, OutputValue, Outputs, OwnedTensor, Tracer,
};
use pteron_core::error::panic_text;
use pteron_core::memory_reserve::within_memory_limit;
use pteron_core::{Error, RandomStream, Result};
use pteron_cpu::Executor;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Instant;

/// A session behind its lock, with the options and limits that it was made with.
pub(crate) struct MethodInstance {
    code: Arc<MethodCode>,
    guarded: Mutex<Guarded>,
    cancel: CancelHandle,
    max_threads: usize,
    limits: Limits,
    open_calls: HashMap<usize, Box<[ArgumentRole]>>,
    is_stateful: bool,
    // As `Runtime::replaced_backends` had it before delegates were initialised.
    replaced_backends: u64,
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
        let limits = options.limits.or(limits).inside();
        code.check_limits(&limits).map_err(|e| e.method(code.ir.name.as_str()))?;
        let _nested = limits.enter().map_err(|e| e.method(code.ir.name.as_str()))?;
        let pool = code.runtime.pool();
        let max_threads = options.num_threads.unwrap_or(pool.threads()).clamp(1, pool.threads().max(1));
        let mut session = Session::new(&code, max_threads, &limits, shared)?;
        if let Some(seed) = options.seed {
            session.random = RandomStream::new(seed);
        }
        let replaced_backends = code.runtime.replaced_backends();
        session.delegates = init_delegates(&code, &options.backend_options, max_threads)?;
        let open_calls = check_calls(&code, &session.delegates)?;
        let outputs = session.delegates.outputs();
        let is_stateful = crate::load::state_analysis::is_stateful(&code.ir, &code.steps, &outputs)
            || session_state::is_in_delegates(&code, &mut session.delegates)
                .map_err(|e| e.method(code.ir.name.as_str()))?;
        Ok(MethodInstance {
            guarded: Mutex::new(Guarded { session, is_poisoned: false, is_abandoned: false }),
            cancel: CancelHandle::new(),
            max_threads,
            limits,
            open_calls,
            is_stateful,
            replaced_backends,
            turn: shared.map(|s| s.turn.clone()),
            code,
        })
    }

    pub(crate) fn code(&self) -> &Arc<MethodCode> {
        &self.code
    }

    /// Could a delegate of it belong to a backend that another one has replaced?
    pub(crate) fn is_outdated(&self) -> bool {
        self.replaced_backends != self.code.runtime.replaced_backends()
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
                return Err(Error::method_busy("a method that shares its buffers with this one is running")
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
                "in an earlier call a delegate or a kernel kept a view of the session's memory, so the session cannot be \
                 used any more",
            )
            .method(self.code.ir.name.as_str())
            .hint("load the method again; what a call keeps must be a copy")),
            Ok(guard) => Ok(guard),
            Err(TryLockError::WouldBlock) => {
                Err(Error::method_busy("the method is running already")
                    .method(self.code.ir.name.as_str())
                    .hint("use one Method per thread, or program.run(), which keeps a pool of sessions"))
            }
            Err(TryLockError::Poisoned(_)) => Err(poisoned().method(self.code.ir.name.as_str())),
        }
    }

    /// Runs once; `outputs` are those of this call, none after an error.
    pub(crate) fn execute(
        &self,
        inputs: &[InputValue<'_>],
        options: ExecuteOptions<'_>,
        outputs: &mut Outputs,
    ) -> Result<()> {
        outputs.clear();
        let mut guard = self.lock()?;
        // Others find the method in use from here on, so from here on they can cancel the call.
        let _call = self.cancel.begin_call();
        let message = "the runtime panicked; this is a bug in pteron";
        let result =
            self.contained(&mut guard, message, |session| self.run(session, inputs, options, outputs));
        if result.is_err() {
            outputs.clear();
        }
        if result.as_ref().is_err_and(|error| error.detail().is_memory_kept) {
            guard.is_abandoned = true;
            // Constants can be arguments of delegates as well.
            std::mem::forget(self.code.clone());
        }
        result
    }

    /// Works with the session. After a panic, which becomes an error, nobody uses the session again; memory that cannot
    /// be had becomes an error too.
    fn contained<T>(
        &self,
        guarded: &mut Guarded,
        message: &'static str,
        work: impl FnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let Guarded { session, is_poisoned, .. } = guarded;
        catch_unwind(AssertUnwindSafe(|| within_memory_limit(|| work(session)))).unwrap_or_else(|panic| {
            *is_poisoned = true;
            Err(Error::internal(message)
                .method(self.code.ir.name.as_str())
                .got(panic_text(&*panic))
                .hint("load the method again, and please report this with the program"))
        })
    }

    fn run(
        &self,
        session: &mut Session,
        inputs: &[InputValue<'_>],
        options: ExecuteOptions<'_>,
        outputs: &mut Outputs,
    ) -> Result<()> {
        let code = &*self.code;
        let _listening = options.cancel.map(|token| token.listen(&self.cancel)).transpose()?;
        if options.num_threads == Some(0) {
            let hint = "leave it out to use all threads that the method was loaded with";
            return Err(no_threads().method(code.ir.name.as_str()).hint(hint));
        }
        session.begin(code, inputs, options.outputs, options.lend_outputs)?;
        let watch = self.deadline(&options).map(|when| (Deadline::set(when, &self.cancel), when));
        let budget = Budget::begin(self.budget(&options));
        let deadline = watch.as_ref().and_then(|(w, when)| w.is_none().then_some(*when));
        let (poll, mut tracer) = shortened(options.poll, options.tracer);
        let callers_watch = Watch::new(poll, deadline, &self.cancel);
        let between_chunks = || callers_watch.as_ref().map_or(Ok(()), Watch::between_chunks);
        if let Some(tracer) = &mut tracer {
            session.input_allocations(&mut |allocation| tracer.allocation(allocation));
        }
        let max_threads = options.num_threads.unwrap_or(self.max_threads).min(self.max_threads);
        let workers = tracer.as_mut().and_then(|tracer| tracer.worker_times(max_threads));
        let mut run = Run {
            code,
            cancel: &self.cancel,
            executor: Executor {
                pool: code.runtime.pool(),
                max_threads,
                stop: self.cancel.word(),
                watch: callers_watch.is_some().then_some(&between_chunks),
                workers: workers.as_deref(),
            },
            budget: budget.full,
            full_budget: budget.full,
            observers: Observers { tracer, watch: callers_watch.as_ref() },
            open_calls: &self.open_calls,
        };
        let result = run.execute(session);
        budget.end(run.budget);
        let result =
            result.and_then(|()| collect(code, session, options.outputs, options.lend_outputs, outputs));
        if let (Some(tracer), Ok(())) = (&mut run.observers.tracer, &result) {
            report_outputs(outputs, &mut **tracer);
        }
        match &result {
            Err(error) if error.detail().is_memory_kept => session.abandon_memory(),
            _ => session.drop_fresh(),
        }
        result
    }

    /// When a call that begins now has to end.
    fn deadline(&self, options: &ExecuteOptions<'_>) -> Option<Instant> {
        let own = self.limits.time.and_then(|time| Instant::now().checked_add(time));
        match (options.deadline, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Most instructions of a call.
    fn budget(&self, options: &ExecuteOptions<'_>) -> u64 {
        match (options.budget, self.limits.instructions) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(u64::MAX),
        }
    }

    /// Copies of all mutable buffers, by name: the method's own, then those of its delegates.
    pub(crate) fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        self.with_state(false, |session, code| session_state::get(code, session))
    }

    /// Sets mutable buffers by name. Everything is checked before anything is written.
    pub(crate) fn set_state(&self, state: &[(&str, InputValue<'_>)]) -> Result<()> {
        self.with_state(true, |session, code| session_state::set(code, session, state))
    }

    /// Starts the stream of a seed.
    pub(crate) fn seed(&self, seed: u64) -> Result<()> {
        self.lock()?.session.random = RandomStream::new(seed);
        Ok(())
    }

    /// Puts mutable buffers back to their initial contents.
    pub(crate) fn reset_state(&self) -> Result<()> {
        self.with_state(true, |session, code| session_state::reset(code, session))
    }

    /// Writes all mutable buffers to a file.
    pub(crate) fn save_state(&self, path: &Path) -> Result<()> {
        state_file::write(path, &self.get_state()?).map_err(|e| e.method(self.code.ir.name.as_str()))
    }

    /// Sets all mutable buffers from a file, which must have these and no others.
    pub(crate) fn load_state(&self, path: &Path) -> Result<()> {
        let place = |e: Error| e.method(self.code.ir.name.as_str());
        let file = StateFile::read(path).map_err(place)?;
        self.with_state(true, |session, code| {
            let known = session_state::get(code, session)?;
            let missing = known.iter().find(|(name, _)| !file.names().any(|n| n == name));
            if let Some((name, _)) = missing {
                return Err(Error::external_data("the state file lacks a buffer of the method")
                    .argument(name.as_str())
                    .expected(format!("{} buffers", known.len()))
                    .got(format!("{}", file.names().count()))
                    .hint("pass a file that save_state of this method wrote"));
            }
            drop(known);
            file.with_state(|state| session_state::set(code, session, state))
        })
    }

    /// Reads or changes state, with panics of delegates caught.
    fn with_state<T>(
        &self,
        is_changed: bool,
        work: impl FnOnce(&mut Session, &MethodCode) -> Result<T>,
    ) -> Result<T> {
        let mut guard = self.lock()?;
        if is_changed {
            guard.session.end_loans(&self.code)?;
        }
        let message = "a panic while state was read or written";
        self.contained(&mut guard, message, |session| work(session, &self.code))
            .map_err(|e| e.method(self.code.ir.name.as_str()))
    }
}

type Poll<'a> = Option<&'a mut (dyn FnMut() -> Result<()> + 'a)>;
type Traced<'a> = Option<&'a mut (dyn Tracer + 'a)>;

/// Both with a shorter life, which the compiler gives what is behind `&mut` only at such a coercion.
#[allow(
    clippy::needless_match,
    reason = "shortens the lifetime behind `&mut`, which only such a coercion does"
)]
fn shortened<'a>(
    poll: Option<&'a mut (dyn FnMut() -> Result<()> + '_)>,
    tracer: Option<&'a mut (dyn Tracer + '_)>,
) -> (Poll<'a>, Traced<'a>) {
    let poll: Poll<'a> = match poll {
        Some(poll) => Some(poll),
        None => None,
    };
    let tracer: Traced<'a> = match tracer {
        Some(tracer) => Some(tracer),
        None => None,
    };
    (poll, tracer)
}

/// Tells a tracer what outputs have been allocated.
fn report_outputs(outputs: &Outputs, tracer: &mut dyn Tracer) {
    for (output, value) in outputs.iter().enumerate() {
        if let OutputValue::Tensor(tensor) = value {
            tracer.allocation(Allocation::Output { output, nbytes: tensor.data.len() });
        }
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
