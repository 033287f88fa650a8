//! Panels packed by several threads while a program is loaded.

use std::sync::Mutex;

/// Bytes below which another thread takes longer to start than to pack.
const PART_BYTES: usize = 512 << 10;

/// Calls `work` with every panel of `panel` elements of `packed` and its number, on up to `threads` threads.
/// A thread that cannot be had is done without.
pub(crate) fn in_parts<T: Send>(
    threads: usize,
    packed: &mut [T],
    panel: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let bytes = size_of_val(&*packed);
    share(threads, bytes, packed.chunks_exact_mut(panel).enumerate(), &|(p, panel)| work(p, panel));
}

/// As [`in_parts`] for items that are no neighbours in memory: `bytes` is what is written in all.
pub(crate) fn share<I>(
    threads: usize,
    bytes: usize,
    items: impl Iterator<Item = I> + Send,
    work: &(dyn Fn(I) + Sync),
) {
    let parts = threads.min(bytes / PART_BYTES).max(1);
    if parts == 1 {
        items.for_each(work);
        return;
    }
    let left = Mutex::new(items);
    let take = || left.lock().ok().and_then(|mut left| left.next());
    let pack = || {
        while let Some(item) = take() {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..parts {
            let thread = std::thread::Builder::new().name("pteron-load".into());
            if thread.spawn_scoped(scope, pack).is_err() {
                break;
            }
        }
        pack();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_is_packed_once_whatever_the_threads() {
        for (threads, panels) in [(1, 5), (2, 5), (3, 64), (8, 64), (1000, 40), (0, 3)] {
            let panel = 16 << 10;
            let mut packed = vec![0.0; panels * panel];
            in_parts(threads, &mut packed, panel, &|p, panel| {
                panel.iter_mut().for_each(|v| *v += 1.0 + p as f32);
            });
            let is_right = |(p, panel): (usize, &[f32])| panel.iter().all(|v| *v == 1.0 + p as f32);
            assert!(packed.chunks_exact(panel).enumerate().all(is_right), "{threads} threads");
        }
    }
}
