//! What the results of one program under two settings have in common, for every test that compares them: seeds of random
//! programs, mutated files, fuzz targets.

/// Rules whose results round in another order; all others give the very same bytes (`docs/why/load-time-rewrites.md`).
pub const ROUNDED: [&str; 13] = [
    "fold_layout",
    "fold_batch_norm",
    "fold_affine",
    "fold_padding",
    "channels_last",
    "convolve_before_resize",
    "fold_products",
    SPREADS_NAN,
    "fuse_attention",
    "fuse_weight_only",
    "fold_weights",
    "fuse_integer",
    "multiply_quantised_rows",
];

/// The rule that spreads NaN and infinity to neighbouring pixels, which random programs are full of: its kernel's own
/// tests compare it with the direct sum.
pub const SPREADS_NAN: &str = "winograd";

/// How far sums in another order may lie apart, in relation to the largest number of their tensor.
pub const ROUNDING: f64 = 1e-5;

/// The same numbers, signs of zeros included, but for which NaN it is.
pub fn are_same<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> bool {
    let is_same = |(a, b): (f64, f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    a.len() == b.len() && pairs(a, b).all(is_same)
}

/// As near as sums in another order are: `tolerance` times the largest finite number that was expected, or 1.
pub fn are_close<T: Copy + Into<f64>>(expected: &[T], got: &[T], tolerance: f64) -> bool {
    expected.len() == got.len() && first_far(expected, got, tolerance).is_none()
}

/// The first element that [`are_close`] takes exception to.
pub fn first_far<T: Copy + Into<f64>>(expected: &[T], got: &[T], tolerance: f64) -> Option<usize> {
    let finite = expected.iter().map(|v| (*v).into()).filter(|v| v.is_finite());
    let largest = finite.fold(1.0f64, |largest, v| largest.max(v.abs()));
    let is_far =
        |(e, g): (f64, f64)| !(e == g || (e.is_nan() && g.is_nan()) || (e - g).abs() <= tolerance * largest);
    pairs(expected, got).position(is_far)
}

fn pairs<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> impl Iterator<Item = (f64, f64)> {
    a.iter().zip(b).map(|(a, b)| ((*a).into(), (*b).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_and_the_close() {
        assert!(are_same(&[1.0f32, f32::NAN], &[1.0, -f32::NAN]));
        assert!(!are_same(&[0.0f32], &[-0.0]) && are_close(&[0.0f32], &[-0.0], 0.0));
        assert!(!are_same(&[1.0f32], &[1.0, 1.0]) && !are_close(&[1.0f32], &[1.0, 1.0], 1.0));
        assert!(are_close(&[1000.0f64, 0.0], &[1000.0, 0.5], 1e-3));
        assert_eq!(first_far(&[1000.0f64, 0.0], &[1000.0, 1.5], 1e-3), Some(1));
        // What is not finite says nothing about the size of the others, and has to be the same.
        assert_eq!(first_far(&[f32::INFINITY, 0.0], &[f32::INFINITY, 1.0], 0.5), Some(1));
        assert_eq!(first_far(&[f32::INFINITY], &[f32::MAX], 0.5), Some(0));
        assert_eq!(first_far(&[1.0f32], &[f32::NAN], 0.5), Some(0));
    }
}
