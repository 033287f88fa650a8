//! Lengths, their factors and their roots of unity, for transforms in float32.

/// Largest factor of a length that is transformed in float32.
pub const MOST_RADIX: usize = 31;

/// Passes of the longest transform: one for each factor.
const MOST_PASSES: usize = 32;

/// The factors of a length in the order of their passes: fours first, then two, then odd ones.
#[derive(Debug, Clone, Copy)]
pub struct Factors {
    radices: [u8; MOST_PASSES],
    count: usize,
}

impl Factors {
    /// `None` for a length of nothing, with a factor above [`MOST_RADIX`], or above 2^32.
    pub fn of(n: usize) -> Option<Factors> {
        if n == 0 || n > u32::MAX as usize {
            return None;
        }
        let mut factors = Factors { radices: [0; MOST_PASSES], count: 0 };
        let mut rest = n;
        while rest > 1 {
            let radix = if rest.is_multiple_of(4) {
                4
            } else {
                (2..=MOST_RADIX).find(|r| rest.is_multiple_of(*r))?
            };
            *factors.radices.get_mut(factors.count)? = radix as u8;
            factors.count += 1;
            rest /= radix;
        }
        Some(factors)
    }

    /// The radix of every pass.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.radices.iter().take(self.count).map(|r| usize::from(*r))
    }
}

/// `exp(-2 pi i k / n)` for all `k` below `n`: cosines into `re`, sines into `im`, rounded from float64. Few of them are
/// computed, the others mirrored.
pub fn fill_roots(re: &mut [f32], im: &mut [f32]) {
    let n = re.len().min(im.len());
    let (re, im) = (&mut re[..n], &mut im[..n]);
    // Up to an eighth, a quarter or half of the circle, as far as the mirrors lie on roots.
    let computed = if n.is_multiple_of(8) {
        n / 8
    } else if n.is_multiple_of(4) {
        n / 4
    } else {
        n / 2
    };
    for k in 0..=computed.min(n.saturating_sub(1)) {
        let (sin, cos) = (std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
        (re[k], im[k]) = (cos as f32, -sin as f32);
    }
    if n.is_multiple_of(8) {
        // Cosine and sine change places at an eighth.
        for k in n / 8 + 1..=n / 4 {
            (re[k], im[k]) = (-im[n / 4 - k], -re[n / 4 - k]);
        }
    }
    if n.is_multiple_of(4) {
        (re[n / 4], im[n / 4]) = (0.0, -1.0);
        for k in n / 4 + 1..=n / 2 {
            (re[k], im[k]) = (-re[n / 2 - k], im[n / 2 - k]);
        }
    }
    if n.is_multiple_of(2) && n > 0 {
        (re[n / 2], im[n / 2]) = (-1.0, 0.0);
    }
    for k in n / 2 + 1..n {
        (re[k], im[k]) = (re[n - k], -im[n - k]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_those_of_the_definition() {
        for n in (1..=200).chain([400, 1000, 1024]) {
            let (mut re, mut im) = (vec![f32::NAN; n], vec![f32::NAN; n]);
            fill_roots(&mut re, &mut im);
            for k in 0..n {
                let (sin, cos) = (std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
                let error = (f64::from(re[k]) - cos).hypot(f64::from(im[k]) + sin);
                assert!(error < 6e-8, "{n} {k}: {} {}, expected {cos} {}", re[k], im[k], -sin);
            }
        }
    }

    #[test]
    fn factors_multiply_to_the_length() {
        for n in 1..2000usize {
            match Factors::of(n) {
                Some(f) => assert_eq!(f.iter().product::<usize>(), n),
                None => {
                    assert!(
                        (2..=n).any(|p| n.is_multiple_of(p) && p > MOST_RADIX && (2..p).all(|d| p % d != 0))
                    )
                }
            }
        }
        assert!(Factors::of(0).is_none() && Factors::of(37).is_none());
    }
}
