//! Random numbers in integers: Philox 4x32-10, keyed by a seed, counted by the place of a token.
//!
//! A number depends on the seed and the place alone, so that neither the machine nor the number of threads nor the tokens
//! that were tried and thrown away change a text. Constants: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3
//! (SC 2011).

const FACTORS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words, the lowest first.
fn words(key: u64, counter: u128) -> [u32; 4] {
    let mut keys = [key as u32, (key >> 32) as u32];
    let [mut c0, mut c1, mut c2, mut c3] = [0, 32, 64, 96].map(|shift| (counter >> shift) as u32);
    for _ in 0..10 {
        let products = [u64::from(FACTORS[0]) * u64::from(c0), u64::from(FACTORS[1]) * u64::from(c2)];
        (c0, c1) = ((products[1] >> 32) as u32 ^ c1 ^ keys[0], products[1] as u32);
        (c2, c3) = ((products[0] >> 32) as u32 ^ c3 ^ keys[1], products[0] as u32);
        keys = [keys[0].wrapping_add(STEPS[0]), keys[1].wrapping_add(STEPS[1])];
    }
    [c0, c1, c2, c3]
}

/// A number from 0 up to `below`, for a place of a stream. Its bias is below 2^-64.
pub(super) fn draw(seed: u64, place: u64, below: u64) -> u64 {
    let [low, high] = {
        let [w0, w1, w2, w3] = words(seed, u128::from(place)).map(u128::from);
        [w0 | w1 << 32, w2 | w3 << 32]
    };
    let below = u128::from(below);
    ((high * below + ((low * below) >> 64)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_known_answers_of_the_published_generator() {
        assert_eq!(words(0, 0), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
        assert_eq!(words(u64::MAX, u128::MAX), [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]);
    }

    #[test]
    fn draws_are_spread_over_the_range() {
        let mut counts = [0; 10];
        (0..10_000).for_each(|place| counts[draw(7, place, 10) as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(draw(3, 4, 1), 0);
    }
}
