//! The instructions that a run may execute, counted through delegates: a program inside a delegate spends from the
//! budget of the run around it, on its thread.

use std::cell::Cell;

thread_local! {
    /// What the delegate call that this thread is in may still spend; the largest number outside of such calls.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The budget of one run.
pub(crate) struct Budget {
    /// Instructions at the start.
    pub full: u64,
}

impl Budget {
    /// At most `most`, and what the run around has left.
    pub(crate) fn begin(most: u64) -> Budget {
        Budget { full: most.min(LEFT.get()) }
    }

    /// The run is over, with `left` of its budget.
    pub(crate) fn end(self, left: u64) {
        let around = LEFT.get();
        if around != u64::MAX {
            LEFT.set(around.saturating_sub(self.full.saturating_sub(left)));
        }
    }
}

/// Calls a delegate while `left` instructions are left: what comes of it, and what is left after it.
pub(crate) fn lend<T>(left: u64, call: impl FnOnce() -> T) -> (T, u64) {
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _restore = Restore(LEFT.replace(left));
    let out = call();
    (out, LEFT.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_inside_is_missing_outside() {
        let (seen, left) = lend(100, || {
            let inner = Budget::begin(u64::MAX);
            let full = inner.full;
            inner.end(30);
            (full, Budget::begin(1000).full, Budget::begin(5).full)
        });
        assert_eq!((seen, left), ((100, 30, 5), 30));
        assert_eq!(Budget::begin(u64::MAX).full, u64::MAX);
        let nested = lend(50, || lend(20, || Budget::begin(30).end(15)).1);
        assert_eq!(nested, (15, 50));
    }
}
