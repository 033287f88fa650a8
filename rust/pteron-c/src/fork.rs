//! Asks the system to be told of forks. Unsafe island (`pthread_atfork`).

use std::sync::atomic::{AtomicBool, Ordering};

/// Has `before` called on the forking thread before each fork, and `after` behind it in the parent and in the child.
/// The first call counts.
pub(crate) fn watch(before: extern "C" fn(), after: extern "C" fn()) {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: both functions stay until the process ends (the library is not unloaded), and do not unwind. Only memory for
    // the entry can be missing: forks then go on as without it.
    #[cfg(unix)]
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    #[cfg(not(unix))]
    let _ = (before, after);
}
