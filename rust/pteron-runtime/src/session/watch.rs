//! What the calling thread looks at while a run goes on: signals and, where no thread watches it, the deadline.

use crate::session::cancel::CancelHandle;
use pteron_core::Result;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How often `poll` is called.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Steps between two looks at the clock, where so many took less than `QUICK`. A look costs as much as
/// a small kernel, which loops over small kernels would notice.
const MOST_UNTIMED_STEPS: u32 = 15;
/// See `MOST_UNTIMED_STEPS`.
const QUICK: Duration = Duration::from_micros(100);

/// Looks at signals and the deadline between steps. It stays on the calling thread.
pub(crate) struct Watch<'a> {
    poll: Option<RefCell<&'a mut dyn FnMut() -> Result<()>>>,
    // Checked here only when no thread could be had to watch it.
    deadline: Option<Instant>,
    cancel: &'a CancelHandle,
    last_look: Cell<Instant>,
    next_poll: Cell<Instant>,
    untimed_steps: Cell<u32>,
}

impl<'a> Watch<'a> {
    /// A watch, where there is something to look at.
    pub(crate) fn new(
        poll: Option<&'a mut dyn FnMut() -> Result<()>>,
        deadline: Option<Instant>,
        cancel: &'a CancelHandle,
    ) -> Option<Watch<'a>> {
        if poll.is_none() && deadline.is_none() {
            return None;
        }
        let now = Instant::now();
        Some(Watch {
            poll: poll.map(RefCell::new),
            deadline,
            cancel,
            last_look: Cell::new(now),
            // Callers have just looked for signals themselves: a short run is not to pay for it again.
            next_poll: Cell::new(now.checked_add(POLL_INTERVAL).unwrap_or(now)),
            // The clock was just read: not again before the first step, unless it would be too late by then.
            untimed_steps: Cell::new(u32::from(deadline.is_none())),
        })
    }

    /// A look before a step, where the steps before it took long enough.
    #[inline(always)]
    pub(crate) fn before_step(&self) -> Result<()> {
        match self.untimed_steps.get().checked_sub(1) {
            Some(left) => {
                self.untimed_steps.set(left);
                Ok(())
            }
            None => {
                let now = Instant::now();
                let is_quick = now.saturating_duration_since(self.last_look.get()) < QUICK;
                self.untimed_steps.set(if is_quick { MOST_UNTIMED_STEPS } else { 0 });
                self.last_look.set(now);
                self.look(now)
            }
        }
    }

    /// A look between two chunks of a kernel.
    pub(crate) fn between_chunks(&self) -> Result<()> {
        self.look(Instant::now())
    }

    #[inline(always)]
    fn look(&self, now: Instant) -> Result<()> {
        if self.deadline.is_some_and(|d| now >= d) {
            self.cancel.expire();
            return Err(self.cancel.error());
        }
        if now >= self.next_poll.get() { self.poll(now) } else { Ok(()) }
    }

    #[cold]
    fn poll(&self, now: Instant) -> Result<()> {
        self.next_poll.set(now.checked_add(POLL_INTERVAL).unwrap_or(now));
        // Held already: what `poll` runs came back to this run, which polls already.
        match self.poll.as_ref().map(RefCell::try_borrow_mut) {
            Some(Ok(mut poll)) => poll(),
            _ => Ok(()),
        }
    }
}
