//! Caches that wait for the next prompt, so that one with the same beginning is not computed again.

use crate::model::cache::Cache;
use crate::model::folder::ModelFolder;
use pteron_core::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) struct CachePool {
    folder: Arc<ModelFolder>,
    threads: Option<usize>,
    chunk: usize,
    most_idle: usize,
    // The one that has waited longest comes first.
    idle: Mutex<Vec<Cache>>,
}

impl CachePool {
    pub(crate) fn new(
        folder: &Arc<ModelFolder>,
        threads: Option<usize>,
        chunk: usize,
        most_idle: usize,
    ) -> CachePool {
        CachePool { folder: folder.clone(), threads, chunk, most_idle, idle: Mutex::default() }
    }

    /// The waiting cache that has most of these tokens; a new one where none waits.
    pub(crate) fn take(&self, tokens: &[u32]) -> Result<Cache> {
        let mut idle = self.waiting();
        let best = (0..).zip(idle.iter()).map(|(at, cache)| (cache.common_prefix(tokens), at)).max();
        // A cache without a common beginning is worth keeping while there is room for one more.
        if let Some((common, at)) = best
            && (common > 0 || idle.len() >= self.most_idle)
        {
            return Ok(idle.remove(at));
        }
        drop(idle);
        Cache::new(&self.folder, self.threads, self.chunk)
    }

    /// Puts a cache back; the one that has waited longest goes where there are too many.
    pub(crate) fn give(&self, cache: Cache) {
        let mut idle = self.waiting();
        idle.push(cache);
        let surplus = idle.len().saturating_sub(self.most_idle);
        idle.drain(..surplus);
    }

    /// Nothing panics under the lock, and a list is whole at any time.
    fn waiting(&self) -> MutexGuard<'_, Vec<Cache>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
