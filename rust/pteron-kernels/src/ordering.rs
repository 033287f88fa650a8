//! The order of a line's elements: sort, the first k, a single rank. NaN is larger than every number, both
//! zeros are equal, equal elements keep their order.
//!
//! Elements become unsigned keys. Keys of 32 bits (narrow dtypes, or 64-bit ones whose values on this line lie
//! that close together) share a word with their position: words are ordered by radix or by selection.

use crate::compute::{BLOCK, Compute};
use crate::elements::Reader;
use crate::grid_kernel::take_scratch;
use crate::strided::loops::Walk;
use pteron_core::{DType, Error, Result};

/// A compute type whose order is that of unsigned integers.
pub(crate) trait Key: Compute {
    /// The place in that order; NaN comes last.
    fn key(self) -> u64;
    /// The same in 32 bits, for elements of the dtypes for which [`is_narrow`] holds.
    fn narrow_key(self) -> u32;
}

impl Key for f32 {
    #[inline(always)]
    fn key(self) -> u64 {
        self.narrow_key().into()
    }
    #[inline(always)]
    fn narrow_key(self) -> u32 {
        // Both zeros are equal.
        let bits = (self + 0.0).to_bits();
        let key = bits ^ (((bits as i32) >> 31) as u32 | 1 << 31);
        if self.is_nan() { u32::MAX } else { key }
    }
}

impl Key for f64 {
    #[inline(always)]
    fn key(self) -> u64 {
        let bits = (self + 0.0).to_bits();
        let key = bits ^ (((bits as i64) >> 63) as u64 | 1 << 63);
        if self.is_nan() { u64::MAX } else { key }
    }
    #[inline(always)]
    fn narrow_key(self) -> u32 {
        (self as f32).narrow_key()
    }
}

impl Key for i64 {
    #[inline(always)]
    fn key(self) -> u64 {
        self as u64 ^ 1 << 63
    }
    #[inline(always)]
    fn narrow_key(self) -> u32 {
        self as u32 ^ 1 << 31
    }
}

/// Do the keys of this dtype's elements fit 32 bits?
pub(crate) fn is_narrow(dtype: DType) -> bool {
    dtype.size() <= 4 && dtype != DType::UInt32
}

/// Where a line lies.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub walk: &'a Walk,
    pub base: isize,
    pub is_narrow: bool,
    /// Largest first?
    pub descending: bool,
}

/// Bytes of scratch that ordering lines of `length` elements needs.
pub(crate) fn scratch_bytes(length: usize) -> Result<usize> {
    length
        .max(1)
        .checked_mul(2 * size_of::<u64>())
        .ok_or_else(|| Error::limit("a dimension is too long to sort").got(length.to_string()))
}

/// Keys with their positions.
pub(crate) enum Entries<'a> {
    /// Key and position in one word; the second half is room to sort.
    Packed(&'a mut [u64], &'a mut [u64]),
    /// Key, then position.
    Wide(&'a mut [[u64; 2]]),
}

/// Words of `scratch` for lines of `length`.
fn words(scratch: &mut [u8], length: usize) -> Result<&mut [u64]> {
    take_scratch(&mut &mut *scratch, 2 * length)
}

#[inline(always)]
fn pack(key: u32, position: usize) -> u64 {
    u64::from(key) << 32 | position as u64
}

/// Packs the line with one way to make keys.
#[inline(always)]
fn fill<C: Key>(x: &Reader<'_, C>, line: Line<'_>, packed: &mut [u64], key: impl Fn(C) -> u32) -> Result<()> {
    let mut buffer = [C::ZERO; BLOCK];
    let flip = if line.descending { u32::MAX } else { 0 };
    x.blocks(line.walk, line.base, &mut buffer, |at, block| {
        for (i, (slot, v)) in packed[at..at + block.len()].iter_mut().zip(block).enumerate() {
            *slot = pack(key(*v) ^ flip, at + i);
        }
        Ok(())
    })
}

/// The smallest and the largest key of a line.
fn key_range<C: Key>(x: &Reader<'_, C>, line: Line<'_>) -> Result<(u64, u64)> {
    let (mut low, mut high, mut buffer) = (u64::MAX, 0, [C::ZERO; BLOCK]);
    x.blocks(line.walk, line.base, &mut buffer, |_, block| {
        for v in block {
            (low, high) = (low.min(v.key()), high.max(v.key()));
        }
        Ok(())
    })?;
    Ok((low, high))
}

impl<'a> Entries<'a> {
    /// The entries of a line, in its order of positions.
    pub(crate) fn load<C: Key>(x: &Reader<'_, C>, line: Line<'_>, scratch: &'a mut [u8]) -> Result<Self> {
        let length = line.walk.numel();
        let words = words(scratch, length)?;
        let has_short_positions = u32::try_from(length).is_ok();
        if line.is_narrow && has_short_positions {
            let (packed, spare) = words.split_at_mut(length);
            fill(x, line, packed, C::narrow_key)?;
            return Ok(Entries::Packed(packed, spare));
        }
        let (low, high) = key_range(x, line)?;
        if has_short_positions && high.saturating_sub(low) <= u64::from(u32::MAX) {
            let (packed, spare) = words.split_at_mut(length);
            fill(x, line, packed, |v| v.key().wrapping_sub(low) as u32)?;
            return Ok(Entries::Packed(packed, spare));
        }
        let entries: &mut [[u64; 2]] = bytemuck::cast_slice_mut(words);
        let mut buffer = [C::ZERO; BLOCK];
        let flip = if line.descending { u64::MAX } else { 0 };
        x.blocks(line.walk, line.base, &mut buffer, |at, block| {
            for (i, (slot, v)) in entries[at..at + block.len()].iter_mut().zip(block).enumerate() {
                *slot = [v.key() ^ flip, (at + i) as u64];
            }
            Ok(())
        })?;
        Ok(Entries::Wide(entries))
    }

    /// The first `count` entries of the line's order, in that order.
    pub(crate) fn first<C: Key>(
        x: &Reader<'_, C>,
        line: Line<'_>,
        count: usize,
        scratch: &'a mut [u8],
    ) -> Result<Self> {
        let length = line.walk.numel();
        let room = 2 * count.max(32);
        if !line.is_narrow || u32::try_from(length).is_err() || count == 0 || 4 * room > length {
            let mut entries = Entries::load(x, line, scratch)?;
            entries.sort_first(count);
            return Ok(entries);
        }
        let (found, spare) = words(scratch, length)?.split_at_mut(length);
        let found = &mut found[..room];
        let (mut len, mut limit, mut buffer) = (0, u32::MAX, [C::ZERO; BLOCK]);
        let mut keys = [0u32; BLOCK];
        let flip = if line.descending { u32::MAX } else { 0 };
        x.blocks(line.walk, line.base, &mut buffer, |at, block| {
            for (key, v) in keys.iter_mut().zip(block) {
                *key = v.narrow_key() ^ flip;
            }
            for (part, keys) in keys[..block.len()].chunks(16).enumerate() {
                // Entries that are as good come later, so they are no better. Until enough are found, all count.
                if len >= count && !keys.iter().fold(false, |any, k| any | (*k < limit)) {
                    continue;
                }
                for (i, key) in keys.iter().enumerate() {
                    if len >= count && *key >= limit {
                        continue;
                    }
                    found[len] = pack(*key, at + part * 16 + i);
                    len += 1;
                    if len == room {
                        found.select_nth_unstable(count - 1);
                        len = count;
                        limit = (found[count - 1] >> 32) as u32;
                    } else if len == count {
                        limit = found[..len].iter().fold(0, |most, e| most.max((e >> 32) as u32));
                    }
                }
            }
            Ok(())
        })?;
        let (found, _) = found.split_at_mut(len);
        found.sort_unstable();
        Ok(Entries::Packed(&mut found[..count], spare))
    }

    /// Orders all entries.
    pub(crate) fn sort(&mut self) {
        match self {
            Entries::Packed(packed, spare) => sort_packed(packed, spare),
            Entries::Wide(entries) => entries.sort_unstable(),
        }
    }

    /// Orders the first `count` entries, and puts no better one behind them.
    fn sort_first(&mut self, count: usize) {
        fn first<T: Ord>(entries: &mut [T], count: usize) {
            if count > 0 && count < entries.len() {
                entries.select_nth_unstable(count - 1);
            }
            entries[..count].sort_unstable();
        }
        if count == self.len() {
            return self.sort();
        }
        match self {
            Entries::Packed(packed, _) => first(packed, count),
            Entries::Wide(entries) => first(entries, count),
        }
    }

    /// Number of entries.
    fn len(&self) -> usize {
        match self {
            Entries::Packed(packed, _) => packed.len(),
            Entries::Wide(entries) => entries.len(),
        }
    }

    /// The position of the entry whose rank is `rank`, which must be below their number.
    pub(crate) fn at_rank(&mut self, rank: usize) -> usize {
        match self {
            Entries::Packed(packed, _) => *packed.select_nth_unstable(rank).1 as u32 as usize,
            Entries::Wide(entries) => entries.select_nth_unstable(rank).1[1] as usize,
        }
    }

    /// The position of entry `i`.
    pub(crate) fn position(&self, i: usize) -> usize {
        match self {
            Entries::Packed(packed, _) => packed[i] as u32 as usize,
            Entries::Wide(entries) => entries[i][1] as usize,
        }
    }

    /// The key of entry `i`.
    pub(crate) fn key(&self, i: usize) -> u64 {
        match self {
            Entries::Packed(packed, _) => packed[i] >> 32,
            Entries::Wide(entries) => entries[i][0],
        }
    }
}

/// Below it, comparing is quicker.
const RADIX_FROM: usize = 256;

/// Orders words by their upper halves, equal ones as they stand.
fn sort_packed(packed: &mut [u64], spare: &mut [u64]) {
    if packed.len() < RADIX_FROM {
        packed.sort_unstable();
        return;
    }
    let mut counts = [[0u32; 256]; 4];
    for word in packed.iter() {
        for (digit, counts) in counts.iter_mut().enumerate() {
            counts[(word >> (32 + 8 * digit)) as usize & 255] += 1;
        }
    }
    let (mut from, mut to, mut is_spare) = (packed, spare, false);
    for (digit, counts) in counts.iter_mut().enumerate() {
        if counts.iter().any(|n| *n as usize == from.len()) {
            continue;
        }
        let mut sum = 0;
        for n in counts.iter_mut() {
            (*n, sum) = (sum, sum + *n);
        }
        for word in from.iter() {
            let next = &mut counts[(word >> (32 + 8 * digit)) as usize & 255];
            to[*next as usize] = *word;
            *next += 1;
        }
        std::mem::swap(&mut from, &mut to);
        is_spare = !is_spare;
    }
    if is_spare {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{Element, TensorMeta, TensorView};

    #[test]
    fn keys_order_like_numbers() {
        let sorted = [f64::NEG_INFINITY, -2.5, -1e-30, 0.0, 1e-30, 7.0, f64::INFINITY, f64::NAN];
        assert!(sorted.windows(2).all(|w| w[0].key() < w[1].key()));
        assert!(sorted.windows(2).all(|w| (w[0] as f32).key() < (w[1] as f32).key()));
        assert_eq!((-0.0f64).key(), 0.0f64.key());
        assert_eq!((-0.0f32).key(), 0.0f32.key());
        assert_eq!((-f32::NAN).key(), f32::NAN.key());
        assert!(i64::MIN.key() < (-1i64).key() && (-1i64).key() < 0i64.key());
        assert!((-1i64).narrow_key() < 0i64.narrow_key());
    }

    fn positions<C: Key, T: Element>(data: &[T], descending: bool, count: Option<usize>) -> Vec<usize> {
        let meta = TensorMeta::contiguous(T::DTYPE, &[data.len()]).unwrap();
        // SAFETY: `data` outlives the view.
        #[allow(unsafe_code, reason = "elements of tensors by address: the module says which and why")]
        let view = unsafe { TensorView::from_raw(data.as_ptr().cast(), &meta) };
        let x = Reader::<C>::new(view).unwrap();
        let walk = Walk::row_major(&[data.len()], &[1]);
        let line = Line { walk: &walk, base: 0, is_narrow: is_narrow(T::DTYPE), descending };
        let mut scratch = vec![0u64; 2 * data.len()];
        let scratch = bytemuck::cast_slice_mut(&mut scratch);
        let entries = match count {
            Some(k) => Entries::first(&x, line, k, scratch).unwrap(),
            None => {
                let mut entries = Entries::load(&x, line, scratch).unwrap();
                entries.sort();
                entries
            }
        };
        (0..count.unwrap_or(data.len())).map(|i| entries.position(i)).collect()
    }

    /// Lines of every kind of entry and way to order, against a stable sort of keys.
    fn check<C: Key, T: Element>(make: impl Fn(u64) -> T, key: impl Fn(&T) -> u64) {
        let mut state = 1u64;
        for n in [1usize, 2, 17, 255, 256, 257, 3000] {
            let data: Vec<T> = (0..n)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    make(state >> 33)
                })
                .collect();
            for descending in [false, true] {
                let mut expected: Vec<usize> = (0..n).collect();
                expected.sort_by_key(|i| if descending { !key(&data[*i]) } else { key(&data[*i]) });
                assert_eq!(positions::<C, T>(&data, descending, None), expected, "{n}");
                for k in [0, 1, 5, 33, n / 2, n] {
                    let k = k.min(n);
                    assert_eq!(positions::<C, T>(&data, descending, Some(k)), expected[..k], "{k} of {n}");
                }
            }
        }
    }

    #[test]
    fn every_way_to_order_keeps_equals_in_place() {
        check::<f32, f32>(
            |r| [f32::NAN, -0.0, 0.0, r as f32 - 1e9, -(r as f32)][r as usize % 5],
            |v| v.key(),
        );
        check::<i64, i8>(|r| r as i8, |v| i64::from(*v).key());
        check::<i64, i64>(|r| r as i64 % 1000, |v| v.key());
        check::<i64, i64>(|r| (r as i64 - (1 << 30)) << 30, |v| v.key());
        check::<f64, f64>(|r| if r % 9 == 0 { f64::NAN } else { r as f64 - 1e9 }, |v| v.key());
    }
}
