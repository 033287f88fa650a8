//! Large pages for packed weights that are too small to fill one.
//!
//! A network of many small weights fills its packs page fault by page fault: 3,000 of them are most of the time that
//! MobileNetV2 takes to load. So while a method is loaded, its small packs lie side by side in one region of large pages.
//! A region belongs to one load, so that nothing of another program keeps its memory: it lives as long as one of its
//! packs, which is as long as the program.

use crate::large_pages::{LARGE_PAGE, Mapping};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

/// The most bytes asked of the system at once. Only what is filled becomes resident, a large page at a time, so that
/// a region costs half a large page on average.
const REGION: usize = 64 * LARGE_PAGE;

/// Below this many bytes of weights, the half of a large page that stays empty on average is worth more than the
/// faults.
const WORTH_A_REGION: usize = 4 * LARGE_PAGE;

struct Region {
    /// Length of a mapping.
    len: usize,
    mapping: Option<Arc<Mapping>>,
    used: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Region>> = const { RefCell::new(None) };
}

/// Puts back what was there, whether the load ends well or not.
struct Restore(Option<Region>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(self.0.take()));
    }
}

/// Runs `load`, in which this thread's small buffers of [`crate::AlignedBuffer::zeroed_to_keep`] lie side by side.
/// `bytes`: of the weights, about.
pub fn side_by_side<T>(bytes: usize, load: impl FnOnce() -> T) -> T {
    if bytes < WORTH_A_REGION || !Mapping::is_worth_it(bytes) {
        return load();
    }
    // Not more addresses than may be needed: there may be a limit on them.
    let len = bytes.min(REGION);
    let region = Region { len, mapping: None, used: 0 };
    let _restore = Restore(CURRENT.with(|current| current.replace(Some(region))));
    load()
}

/// The next `len` zero bytes of this thread's region, `alignment` bytes apart; `None` without a region or memory.
pub(crate) fn take(len: usize, alignment: usize) -> Option<(NonNull<u8>, Arc<Mapping>)> {
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        let region = current.as_mut()?;
        let room = len.checked_next_multiple_of(alignment).filter(|room| *room <= region.len)?;
        let mapping = match &region.mapping {
            Some(mapping) if region.used.checked_add(room)? <= region.len => mapping.clone(),
            _ => {
                region.used = 0;
                region.mapping.insert(Arc::new(Mapping::new(region.len)?)).clone()
            }
        };
        // Within the mapping: `used + room` is at most its length.
        let start = NonNull::new(mapping.start().as_ptr().wrapping_add(region.used))?;
        region.used += room;
        Some((start, mapping))
    })
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    fn address(buffer: &AlignedBuffer) -> usize {
        buffer.as_ptr() as usize
    }

    #[test]
    fn small_packs_lie_side_by_side_and_outlive_the_load() {
        let mut packs = side_by_side(WORTH_A_REGION, || {
            [100, 64, 1 << 20, 0, 1].map(|len| AlignedBuffer::zeroed_to_keep(len).unwrap())
        });
        let first = address(&packs[0]);
        assert!(first.is_multiple_of(LARGE_PAGE));
        assert_eq!(address(&packs[1]), first + 128);
        assert_eq!(address(&packs[2]), first + 192);
        assert_eq!(address(&packs[4]), first + 192 + (1 << 20));
        for (i, pack) in packs.iter_mut().enumerate() {
            assert!(pack.as_slice().iter().all(|byte| *byte == 0));
            pack.as_mut_slice().fill(i as u8 + 1);
        }
        for (i, pack) in packs.iter().enumerate() {
            assert!(pack.as_slice().iter().all(|byte| *byte == i as u8 + 1));
        }
    }

    #[test]
    fn a_full_region_is_followed_by_another() {
        let packs = side_by_side(WORTH_A_REGION, || {
            (0..20).map(|_| AlignedBuffer::zeroed_to_keep((1 << 20) + 1).unwrap()).collect::<Vec<_>>()
        });
        let mut ranges: Vec<_> =
            packs.iter().map(|pack| (address(pack), address(pack) + pack.len())).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    #[test]
    fn nothing_is_shared_outside_of_a_load_or_for_few_weights() {
        assert!(take(64, 64).is_none());
        assert!(side_by_side(WORTH_A_REGION - 1, || take(64, 64).is_none()));
        side_by_side(WORTH_A_REGION, || {
            let outer = take(64, 64).map(|(start, _)| start.as_ptr() as usize);
            let inner =
                side_by_side(WORTH_A_REGION, || take(64, 64).map(|(start, _)| start.as_ptr() as usize));
            assert!(outer.is_some() && inner.is_some() && outer != inner);
            assert_eq!(take(64, 64).map(|(start, _)| start.as_ptr() as usize), outer.map(|start| start + 64));
            assert!(take(REGION + 1, 64).is_none() && take(usize::MAX, 64).is_none());
        });
        let unwound =
            std::panic::catch_unwind(|| side_by_side(WORTH_A_REGION, || panic!("a load that fails")));
        assert!(unwound.is_err() && take(64, 64).is_none());
    }
}
