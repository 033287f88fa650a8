//! exp of numbers that are at most 0, as integers: the same bits on every machine.

/// The weight of the most likely token is 2^BITS; less likely ones have less, down to 0 below 2^-BITS of it.
pub(super) const BITS: i64 = 40;
pub(super) const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// exp2 on [-0.5, 0.5], the highest power first: ln(2)^n / n!, an error below 2^-42.
#[allow(clippy::excessive_precision, reason = "the same digits as in Python")]
const SERIES: [f64; 11] = [
    7.054911620801123e-09,
    1.01780860092397e-07,
    1.321548679014431e-06,
    1.5252733804059841e-05,
    0.0001540353039338161,
    0.0013333558146428443,
    0.009618129107628477,
    0.05550410866482158,
    0.24022650695910072,
    std::f64::consts::LN_2,
    1.0,
];
/// Added to a number far below it, the sum is the number rounded to an integer, ties to even, in the low bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// exp(exponent) in units of 2^-BITS.
#[inline(always)]
pub(super) fn weight(exponent: f64) -> u64 {
    // Farther down everything is 0; this keeps shifts within a word.
    let scaled = exponent * LOG2_E;
    let scaled = if scaled > -(BITS as f64 + 2.0) { scaled } else { -(BITS as f64 + 2.0) };
    let shifted = scaled + ROUNDING;
    let whole = shifted - ROUNDING;
    let part = scaled - whole;
    let value = SERIES.iter().fold(0.0, |value, factor| value * part + factor);
    // 2^(whole + BITS): exact, and its product too.
    let power = f64::from_bits((low_bits(shifted).wrapping_add(1023 + BITS) as u64) << 52);
    low_bits(value * power + ROUNDING) as u64
}

/// The integer that `ROUNDING` was added to.
#[inline(always)]
fn low_bits(shifted: f64) -> i64 {
    (shifted.to_bits() as i64).wrapping_sub(ROUNDING.to_bits() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_exp_within_their_last_bits() {
        for step in 0..400_000 {
            let exponent = -f64::from(step) / 10_000.0;
            let exact = exponent.exp() * (1u64 << BITS) as f64;
            let found = weight(exponent) as f64;
            assert!((found - exact).abs() <= 0.5 + exact * 1e-12, "{exponent}: {found} and {exact}");
        }
        assert_eq!(weight(0.0), 1 << BITS);
        assert_eq!([weight(-29.0), weight(-1e300), weight(f64::NEG_INFINITY)], [0; 3]);
    }

    #[test]
    fn weights_are_those_of_the_generator_in_python() {
        // pteron.llm.sampling.integer_weights of the same numbers.
        let found = [-0.1, -0.5, -1.0, -3.25, -7.5, -20.0, -27.6].map(weight);
        assert_eq!(found, [994879262377, 666887512957, 404487723188, 42632692369, 608122696, 2266, 1]);
    }
}
