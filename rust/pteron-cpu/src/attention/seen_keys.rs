//! Which keys of a block a mask lets anybody see: a cache is masked behind its filled part, and what nobody sees is not
//! read. Unsafe island.
#![allow(unsafe_code, reason = "rows of masks are addressed by stride")]

use super::scores::BlockMask;
use pteron_kernels::elementwise::operand::Source;
use pteron_kernels::vector_math::simd::MAX_LANES;
use pteron_kernels::vector_math::{Simd, SimdTask};

/// The number of first keys of a block behind which every row adds -inf, at least `at_least`.
pub(super) struct SeenKeys {
    pub mask: BlockMask,
    pub rows: usize,
    pub keys: usize,
    pub at_least: usize,
}

impl SimdTask for SeenKeys {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let mut seen = self.at_least.min(self.keys);
        for row in 0..self.rows {
            // SAFETY: `mask` points to the entries of `rows` rows and `keys` keys, as the kernel promises of a block; a stride
            // of zero from key to key says that a row has one entry.
            seen = unsafe {
                match self.mask {
                    BlockMask::None => self.keys,
                    BlockMask::Kept(mask, by_row, 0) if *mask.add(row * by_row) == 0 => seen,
                    BlockMask::Kept(_, _, 0) => self.keys,
                    BlockMask::Added(mask, by_row, by_key) => {
                        last_added(s, (mask.add(row * by_row), by_key), seen, self.keys)
                    }
                    BlockMask::AddedBrain(mask, by_row, by_key) => {
                        last_added(s, (mask.add(row * by_row), by_key), seen, self.keys)
                    }
                    BlockMask::AddedBinary(mask, by_row, by_key) => {
                        last_added(s, (mask.add(row * by_row), by_key), seen, self.keys)
                    }
                    BlockMask::Kept(mask, by_row, _) => {
                        let mask = mask.add(row * by_row);
                        let is_seen = |at: usize| s.any(s.load_bools(mask.add(at), S::LANES));
                        last(seen, self.keys, S::LANES, is_seen, |at| *mask.add(at) != 0)
                    }
                }
            };
            if seen == self.keys {
                break;
            }
        }
        seen
    }
}

/// Keys that [`SeenGroups`] counts as one: those of the widest vector.
pub(super) const GROUP: usize = MAX_LANES;

/// The groups of a block of at most 512 keys in which the first row of a mask shows any: a bit for each. Entries of the mask lie side
/// by side.
pub(super) struct SeenGroups {
    pub mask: BlockMask,
    pub keys: usize,
}

impl SimdTask for SeenGroups {
    type Output = u32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u32 {
        // SAFETY: the mask has entries of `keys` keys.
        unsafe {
            match self.mask {
                BlockMask::None => u32::MAX,
                BlockMask::Added(mask, ..) => groups_added(s, mask, self.keys),
                BlockMask::AddedBrain(mask, ..) => groups_added(s, mask, self.keys),
                BlockMask::AddedBinary(mask, ..) => groups_added(s, mask, self.keys),
                BlockMask::Kept(mask, ..) => {
                    groups(self.keys, S::LANES, |at, n| s.any(s.load_bools(mask.add(at), n)))
                }
            }
        }
    }
}

/// [`groups`] of a mask that is added.
///
/// # Safety
/// The mask has `keys` entries.
#[inline(always)]
unsafe fn groups_added<S: Simd, M: Source>(s: S, mask: *const M, keys: usize) -> u32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    groups(keys, S::LANES, |at, n| {
        // SAFETY: `groups` asks for entries below `keys`; of others, -inf stands in their place.
        unsafe {
            if n == S::LANES {
                return s.any(s.not(s.eq(M::load(s, mask.add(at)), lowest)));
            }
            (at..at + n).any(|at| (*mask.add(at)).number() != f32::NEG_INFINITY)
        }
    })
}

/// A bit for each group of `keys` in which `is_seen` holds for a vector that begins at a key and has so many.
#[inline(always)]
fn groups(keys: usize, lanes: usize, is_seen: impl Fn(usize, usize) -> bool) -> u32 {
    let mut found = 0;
    for at in (0..keys).step_by(lanes) {
        if is_seen(at, lanes.min(keys - at)) {
            found |= 1u32.checked_shl((at / GROUP) as u32).unwrap_or(0);
        }
    }
    found
}

/// [`last`] for a row of a mask that is added, `by_key` from key to key (0 or 1).
///
/// # Safety
/// The row has `to` keys, or one where `by_key` is 0.
#[inline(always)]
unsafe fn last_added<S: Simd, M: Source>(
    s: S,
    (mask, by_key): (*const M, usize),
    from: usize,
    to: usize,
) -> usize {
    // SAFETY: `last` asks for keys below `to` alone, whole vectors of them where it asks for vectors.
    let one = |at: usize| unsafe { (*mask.add(at)).number() != f32::NEG_INFINITY };
    if by_key == 0 {
        return if one(0) { to } else { from };
    }
    let lowest = s.splat(f32::NEG_INFINITY);
    // SAFETY: `last` asks for vectors that end at or below `to`, which the row has.
    let is_seen = |at: usize| unsafe { s.any(s.not(s.eq(M::load(s, mask.add(at)), lowest))) };
    last(from, to, S::LANES, is_seen, one)
}

/// Behind the last of `from..to` that is seen, or `from`: looks at `lanes` at a time from the end, then at each one.
#[inline(always)]
fn last(
    from: usize,
    mut to: usize,
    lanes: usize,
    are_seen: impl Fn(usize) -> bool,
    is_seen: impl Fn(usize) -> bool,
) -> usize {
    while to >= from + lanes && !are_seen(to - lanes) {
        to -= lanes;
    }
    while to > from && !is_seen(to - 1) {
        to -= 1;
    }
    to
}
