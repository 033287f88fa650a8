//! Whether methods of a program are being built, and in which process.
//!
//! A thread that builds a method holds locks. If another thread forks meanwhile, the child has those locks
//! held by nobody: it would wait for ever. It asks here first.

use pteron_core::Error;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Whether methods of a program are being built, and in which process.
#[derive(Default)]
pub(crate) struct Builds {
    running: AtomicUsize,
    // Of the last build that began.
    process: AtomicU32,
}

/// A build in progress.
pub(crate) struct Building<'a>(&'a Builds);

impl Builds {
    /// A build begins; it ends with the result.
    pub(crate) fn begin(&self) -> Building<'_> {
        self.process.store(std::process::id(), Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Release);
        Building(self)
    }

    /// Was a build in progress when this process was forked off the one in which it ran?
    pub(crate) fn is_cut_off(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0 && self.process.load(Ordering::Relaxed) != std::process::id()
    }

    /// Is a thread of this process building?
    pub(crate) fn are_running_here(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0 && self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// What such a program can still say.
    #[cold]
    pub(crate) fn error() -> Error {
        Error::method_busy("a thread of the parent process was building a method of this program at the fork")
            .expected("methods that are loaded before the fork")
            .hint("load the program again in the child, or load its methods before forking")
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_of_another_process_is_cut_off() {
        let builds = Builds::default();
        assert!(!builds.is_cut_off());
        let (one, two) = (builds.begin(), builds.begin());
        assert!(!builds.is_cut_off());
        drop(one);
        builds.process.store(u32::MAX, Ordering::Relaxed);
        assert!(builds.is_cut_off());
        drop(two);
        assert!(!builds.is_cut_off());
    }
}
