//! Deduplication of blobs by content, without looking at more bytes than it takes to be certain.

use std::collections::HashMap;

/// The distinct blobs of a list, in order of first appearance, and where each entry of the list went.
pub(super) struct Distinct<'a> {
    /// Each content once.
    pub blobs: Vec<&'a [u8]>,
    /// Position in `blobs` for every entry of the list.
    pub index: Vec<usize>,
}

/// Places of a blob that its sample takes eight bytes from.
const SAMPLES: usize = 16;

impl<'a> Distinct<'a> {
    /// Sorts out duplicates. Weights of gigabytes rarely agree in length and sample, and those that do are
    /// hashed and, when the hashes agree, compared byte by byte.
    pub fn of(list: impl Iterator<Item = &'a [u8]>) -> Self {
        let list: Vec<&'a [u8]> = list.collect();
        let samples: Vec<(usize, u64)> = list.iter().map(|blob| (blob.len(), sample(blob))).collect();
        let mut twins: HashMap<(usize, u64), usize> = HashMap::new();
        for key in &samples {
            let count = twins.entry(*key).or_insert(0usize);
            *count = count.saturating_add(1);
        }
        let mut seen: HashMap<(usize, u64, u64), Vec<usize>> = HashMap::new();
        let mut out = Distinct { blobs: Vec::new(), index: Vec::new() };
        for (blob, key) in list.iter().zip(&samples) {
            let is_alone = twins.get(key).is_none_or(|n| *n < 2);
            let at = if is_alone { None } else { out.find(blob, *key, &mut seen) };
            let at = at.unwrap_or_else(|| {
                out.blobs.push(blob);
                out.blobs.len().saturating_sub(1)
            });
            out.index.push(at);
        }
        out
    }

    /// The blob with these bytes among those that were hashed; else notes that it comes next.
    fn find(
        &self,
        blob: &[u8],
        (len, sample): (usize, u64),
        seen: &mut HashMap<(usize, u64, u64), Vec<usize>>,
    ) -> Option<usize> {
        let candidates = seen.entry((len, sample, hash(blob))).or_default();
        let found = candidates.iter().copied().find(|at| self.blobs.get(*at).is_some_and(|b| *b == blob));
        if found.is_none() {
            candidates.push(self.blobs.len());
        }
        found
    }
}

/// Odd, with bits all over: spreads whatever it is multiplied with.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64, word: u64) -> u64 {
    (state.rotate_left(29) ^ word).wrapping_mul(SPREAD)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Some bytes of a blob, from everywhere, as one number.
fn sample(blob: &[u8]) -> u64 {
    let step = blob.len().checked_div(SAMPLES).unwrap_or(0).max(8);
    let starts = (0..SAMPLES).map(|i| i.saturating_mul(step));
    let head = starts.map_while(|at| blob.get(at..)).filter(|rest| !rest.is_empty());
    let end = blob.get(blob.len().saturating_sub(8)..).unwrap_or_default();
    let all = head.chain(std::iter::once(end));
    all.fold(0, |state, rest| mix(state, word(rest.get(..8).unwrap_or(rest))))
}

/// All bytes of a blob as one number: four lanes, so that the multiplications overlap.
fn hash(blob: &[u8]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    let (blocks, rest) = blob.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let tail = rest.chunks(8).fold(blob.len() as u64, |state, part| mix(state, word(part)));
    lanes.into_iter().fold(tail, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(list: &[&[u8]]) -> Vec<usize> {
        Distinct::of(list.iter().copied()).index
    }

    #[test]
    fn equal_blobs_are_one_in_order_of_appearance() {
        assert_eq!(index(&[b"b", b"a", b"b", b"", b"a", b""]), [0, 1, 0, 2, 1, 2]);
        let long = vec![7u8; 1000];
        assert_eq!(index(&[&long, &long[..999], &long.clone()]), [0, 1, 0]);
    }

    #[test]
    fn one_byte_anywhere_makes_a_blob_another() {
        let zeros = vec![0u8; 517];
        for at in 0..zeros.len() {
            let mut other = zeros.clone();
            other[at] = 1;
            assert_eq!(index(&[&zeros, &other, &zeros, &other]), [0, 1, 0, 1], "byte {at}");
        }
    }

    #[test]
    fn equal_hashes_are_not_taken_for_equal_bytes() {
        let blobs = Distinct { blobs: vec![b"one".as_slice()], index: vec![] };
        let key = (3, sample(b"two"));
        let mut seen = HashMap::from([((3, key.1, hash(b"two")), vec![0])]);
        assert_eq!(blobs.find(b"two", key, &mut seen), None);
        assert_eq!(seen.values().next().unwrap(), &[0, 1]);
    }
}
