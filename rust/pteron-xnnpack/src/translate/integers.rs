//! Sums, differences and products of int8 values: computed in integers, as XNNPACK defines them.
//!
//! Everything else of int8 is computed from the numbers that the elements mean, which gives XNNPACK's results.

use super::translator::Translator;
use crate::datatype::Datatype;
use crate::payload::{Binary, Quantisation};
use pteron_core::{DType, Result};

/// Ratios of an operand's scale to the result's that a sum in fixed point takes. XNNPACK refuses others.
const RATIOS: std::ops::Range<f32> = 0.000_976_562_5..256.0;

/// A call of an operator in integers: scale and zero point of both operands and the result.
pub(super) struct IntegerCall {
    operator: &'static str,
    schemes: [(f32, i32); 3],
}

impl Translator<'_> {
    /// The call that a function of two values is, where all three are int8.
    pub(super) fn integer_call(
        &self,
        function: Binary,
        [a, b]: [usize; 2],
        output: usize,
    ) -> Result<Option<IntegerCall>> {
        let (operator, sign) = match function {
            Binary::Add => ("pteron::fixed_point_add.out", 1.0),
            Binary::Subtract => ("pteron::fixed_point_add.out", -1.0),
            Binary::Multiply => ("pteron::integer_mul.out", 1.0),
            _ => return Ok(None),
        };
        let scheme = |value: usize| -> Result<Option<(f32, i32)>> {
            let value = self.value(value)?;
            Ok(match value.quantisation {
                Quantisation::Tensor { scale, zero_point } if value.datatype == Datatype::Qint8 => {
                    Some((scale, zero_point))
                }
                _ => None,
            })
        };
        let (Some(a), Some(b), Some(out)) = (scheme(a)?, scheme(b)?, scheme(output)?) else {
            return Ok(None);
        };
        let is_far = |scale: f32| !RATIOS.contains(&(scale / out.0));
        if function != Binary::Multiply && (is_far(a.0) || is_far(b.0)) {
            return Ok(None);
        }
        Ok(Some(IntegerCall { operator, schemes: [a, (b.0 * sign, b.1), out] }))
    }

    /// Makes `output` what the call gives, cut to the node's bounds.
    pub(super) fn in_integers(
        &mut self,
        call: &IntegerCall,
        [a, b]: [usize; 2],
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        let (a, b) = (self.raw(a)?, self.raw(b)?);
        let (a, b) = self.in_one_order(a, b)?;
        let [of_a, of_b, of_out] = call.schemes;
        let [a_scale, a_zero] = self.numbers(of_a);
        let [b_scale, b_zero] = self.numbers(of_b);
        let [scale, zero] = self.numbers(of_out);
        let [low, high] = [limits.0, limits.1].map(|limit| self.sheet.int(element(limit, of_out)));
        let plain = [b_scale, b_zero, scale, zero, low, high];
        let held = self.two_with(call.operator, (&a, &[a_scale, a_zero]), (&b, &plain), DType::Int8)?;
        self.finish_raw(output, held);
        Ok(())
    }

    fn numbers(&mut self, (scale, zero_point): (f32, i32)) -> [usize; 2] {
        [self.sheet.double(f64::from(scale)), self.sheet.int(i64::from(zero_point))]
    }
}

/// The element of int8 that is nearest to `limit`.
fn element(limit: f32, (scale, zero_point): (f32, i32)) -> i64 {
    let moved = f64::from(limit / scale) + f64::from(zero_point);
    #[allow(clippy::cast_possible_truncation, reason = "cut to the range of int8 first")]
    let element = moved.clamp(-128.0, 127.0).round_ties_even() as i64;
    element
}
