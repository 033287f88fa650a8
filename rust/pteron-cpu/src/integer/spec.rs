//! What an integer product or convolution computes: independent of shapes.

use super::sum::Summand;
use std::fmt;

/// A product or convolution in integers: what was dequantise, operator, (clamp,) quantise.
///
/// Its arguments: the input; the weight (int8 constant as the operator has it: a linear layer's [N, K], or [K, N] where
/// [`IntegerOperation::Linear`] says so; a convolution's [O, I / groups, spatial dimensions], dense in any order of its
/// dimensions), symmetric: its zero points are 0; the scales of the weight (f32 constant, one per output channel or
/// one for all); where [`IntegerSpec::has_bias`], the bias (f32 constant, one per output channel); where there is a
/// [`IntegerSpec::sum`], the summand, which lies like the output; the output.
///
/// The sum of the products of an output element is exact. It is multiplied with input scale · weight scale, the bias is
/// added, the result clamped and, if the output is quantised, multiplied with 1 / output scale, rounded to the nearest
/// integer (ties to even), moved by the zero point and limited. [`crate::integer`] says in which order that happens in
/// f32.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerSpec {
    /// The operator.
    pub operation: IntegerOperation,
    /// How real numbers of the input become integers.
    pub input: IntegerInput,
    /// Is there an f32 constant with one element per output channel?
    pub has_bias: bool,
    /// In real numbers, before quantising.
    pub clamp: Option<(f32, f32)>,
    /// What is written, or added to something.
    pub output: IntegerOutput,
    /// What is added to the output, so that the sum is written.
    pub sum: Option<Summand>,
}

impl IntegerSpec {
    /// Is it a convolution?
    pub fn is_convolution(&self) -> bool {
        matches!(self.operation, IntegerOperation::Convolution { .. })
    }

    /// Position of the summand among the arguments.
    pub fn summand(&self) -> Option<usize> {
        self.sum.map(|_| 3 + usize::from(self.has_bias))
    }

    /// Position of the output among the arguments.
    pub fn out(&self) -> usize {
        3 + usize::from(self.has_bias) + usize::from(self.sum.is_some())
    }

    /// Groups of a convolution's channels.
    pub fn groups(&self) -> Option<usize> {
        match self.operation {
            IntegerOperation::Convolution { groups, .. } => usize::try_from(groups).ok(),
            IntegerOperation::Linear { .. } => None,
        }
    }
}

/// The operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntegerOperation {
    /// Rows of the input's last dimension times a weight matrix.
    Linear {
        /// Is the weight [K, N] and not [N, K]?
        is_weight_transposed: bool,
    },
    /// A convolution in one or two dimensions, not transposed. The lists have one entry per spatial dimension, or one for
    /// all.
    Convolution {
        /// Steps between windows.
        stride: Vec<i64>,
        /// Margins, which stand for the real number zero; or all those before the image, then all those behind it.
        padding: Vec<i64>,
        /// Steps inside a window.
        dilation: Vec<i64>,
        /// Groups of channels.
        groups: i64,
    },
}

/// How real numbers of the input become integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IntegerInput {
    /// They are integers: an int8 or uint8 tensor that stands for `(q - zero_point) * scale`.
    PerTensor {
        /// Positive and finite.
        scale: f32,
        /// In the range of the element type.
        zero_point: i32,
    },
    /// An f32 tensor; every row of the last dimension has a scale and a zero point that are chosen from its numbers, or from
    /// those of all rows.
    Rows {
        /// How they are chosen, and how numbers become integers.
        scheme: RowScheme,
    },
}

/// How the scale and the zero point of a row are chosen at run time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowScheme {
    /// As `quantized_decomposed::choose_qparams_per_token_asymmetric` and `quantize_per_token` have it: int8 from -128 to
    /// 127, scale f64, zero point added before rounding.
    PerToken,
    /// As torchao's `choose_qparams_affine` (asymmetric, blocks of a row) and `quantize_affine` have it: int8 from -128 to 127, scale
    /// f32, zero point added behind rounding.
    PerRow {
        /// The scale is at least this.
        least_scale: f32,
    },
    /// As [`RowScheme::PerRow`], of a symmetric type: zero points are zero, the scale is the largest magnitude over 127.5.
    Symmetric {
        /// The scale is at least this.
        least_scale: f32,
    },
    /// One of each for all rows, as `quantized_decomposed::choose_qparams.tensor` and `quantize_per_tensor.tensor` have it:
    /// int8 from -128 to 127, zero point added behind rounding. Without rows there is no range: an error.
    PerTensor {
        /// The scale is at least this.
        least_scale: f32,
    },
}

impl RowScheme {
    /// What is said of a product of such rows.
    pub fn phrase(self) -> &'static str {
        match self {
            RowScheme::PerToken => " of rows",
            RowScheme::PerRow { .. } => " of rounded rows",
            RowScheme::Symmetric { .. } => " of symmetric rows",
            RowScheme::PerTensor { .. } => " of rows with one scale",
        }
    }
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IntegerOutput {
    /// An int8 or uint8 tensor that stands for `(q - zero_point) * scale`.
    Quantised {
        /// Positive and finite.
        scale: f32,
        /// In the range of the element type.
        zero_point: i32,
        /// The least integer that is written.
        low: i32,
        /// The largest.
        high: i32,
    },
    /// An f32 tensor.
    Float,
}

impl fmt::Display for IntegerSpec {
    /// `integer convolution + clamp(0, 6)`, `integer linear of rows to f32`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.operation {
            IntegerOperation::Linear { .. } => "integer linear",
            IntegerOperation::Convolution { .. } => "integer convolution",
        })?;
        if let IntegerInput::Rows { scheme } = self.input {
            f.write_str(scheme.phrase())?;
        }
        if self.output == IntegerOutput::Float {
            f.write_str(" to f32")?;
        }
        if let Some((low, high)) = self.clamp {
            write!(f, " + clamp({low}, {high})")?;
        }
        if self.sum.is_some() {
            f.write_str(" + residual")?;
        }
        if let Some(Summand::Quantised(sum)) = self.sum
            && let Some((low, high)) = sum.clamp
        {
            write!(f, " + clamp({low}, {high})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sum::IntegerSum;
    use super::*;

    #[test]
    fn listings_say_what_is_computed() {
        let mut spec = IntegerSpec {
            operation: IntegerOperation::Linear { is_weight_transposed: false },
            input: IntegerInput::Rows { scheme: RowScheme::PerToken },
            has_bias: true,
            clamp: None,
            output: IntegerOutput::Float,
            sum: None,
        };
        assert_eq!(spec.to_string(), "integer linear of rows to f32");
        spec.input = IntegerInput::Rows { scheme: RowScheme::PerRow { least_scale: 1e-6 } };
        assert_eq!(spec.to_string(), "integer linear of rounded rows to f32");
        spec.input = IntegerInput::Rows { scheme: RowScheme::PerTensor { least_scale: 1e-6 } };
        assert_eq!(spec.to_string(), "integer linear of rows with one scale to f32");
        spec.operation =
            IntegerOperation::Convolution { stride: vec![1], padding: vec![0], dilation: vec![1], groups: 1 };
        spec.input = IntegerInput::PerTensor { scale: 0.5, zero_point: 3 };
        spec.output = IntegerOutput::Quantised { scale: 1.0, zero_point: 0, low: -128, high: 127 };
        spec.clamp = Some((0.0, f32::INFINITY));
        assert_eq!(spec.to_string(), "integer convolution + clamp(0, inf)");
        let sum = IntegerSum {
            own_scale: 1.0,
            scale: 1.0,
            zero_point: 0,
            clamp: Some((0.0, 6.0)),
            inverse: 1.0,
            sum_zero_point: 0,
            low: -128,
            high: 127,
        };
        spec.sum = Some(Summand::Quantised(sum));
        assert_eq!(spec.to_string(), "integer convolution + clamp(0, inf) + residual + clamp(0, 6)");
        assert_eq!((spec.summand(), spec.out()), (Some(4), 5));
        spec.sum = Some(Summand::Floats);
        assert_eq!(spec.to_string(), "integer convolution + clamp(0, inf) + residual");
    }
}
