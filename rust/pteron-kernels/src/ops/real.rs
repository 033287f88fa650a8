//! The floats that operators on images compute in: float32, which float16 is widened to, and float64.

use crate::ordering::Key;
use bytemuck::Pod;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A float with its arithmetic.
pub(crate) trait Real:
    Key + Pod + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + AddAssign
{
    /// The largest number that is not above `limit`, NaN for NaN: a number is above one if it is above the other.
    fn at_most(limit: f64) -> Self;
}

impl Real for f32 {
    fn at_most(limit: f64) -> f32 {
        let nearest = limit as f32;
        if f64::from(nearest) > limit { nearest.next_down() } else { nearest }
    }
}

impl Real for f64 {
    fn at_most(limit: f64) -> f64 {
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::Real;

    #[test]
    fn limits_are_rounded_down() {
        for limit in [0.7, 0.1, 0.5, -0.3, 1e300, -1e300, f64::INFINITY, 0.0] {
            let below = f32::at_most(limit);
            assert!(
                f64::from(below) <= limit && f64::from(below.next_up()) > limit || limit == f64::INFINITY
            );
        }
        assert!(f32::at_most(f64::NAN).is_nan());
    }
}
