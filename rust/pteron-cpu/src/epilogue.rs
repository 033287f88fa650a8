//! What a matrix product or convolution does with its result before it leaves the registers or the
//! cache: fused from the calls that follow it.

use pteron_kernels::elementwise::chain::Chain;
use std::fmt;
use std::sync::Arc;

/// What comes behind the operator's own bias, in this order: residual, clamp, post.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Epilogue {
    /// Position among the plan's arguments of an f32 tensor of the output's shape that is added. It is
    /// read at the place that is written, and may be the very bytes of the output.
    pub residual: Option<usize>,
    /// Clamp to `[min, max]` after bias and residual; NaN stays NaN. ReLU is `(0.0, f32::INFINITY)`.
    pub clamp: Option<(f32, f32)>,
    /// A chain of one input, run on each finished block while it is hot.
    pub post: Option<Arc<Chain>>,
}

impl Epilogue {
    /// Nothing beyond the operator itself.
    pub const NONE: Epilogue = Epilogue { residual: None, clamp: None, post: None };

    /// ReLU.
    pub const RELU: Epilogue = Epilogue::clamped(0.0, f32::INFINITY);

    /// A clamp alone.
    pub const fn clamped(min: f32, max: f32) -> Epilogue {
        Epilogue { residual: None, clamp: Some((min, max)), post: None }
    }

    /// Nothing to do?
    pub fn is_none(&self) -> bool {
        self.residual.is_none() && self.clamp.is_none() && self.post.is_none()
    }

    /// Nothing but a clamp, if that?
    pub fn is_clamp_at_most(&self) -> bool {
        self.residual.is_none() && self.post.is_none()
    }
}

impl fmt::Display for Epilogue {
    /// ` + residual + clamp(0, inf) + gelu_erf`, empty when there is nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.residual.is_some() {
            f.write_str(" + residual")?;
        }
        if let Some((min, max)) = self.clamp {
            write!(f, " + clamp({min}, {max})")?;
        }
        if let Some(post) = &self.post {
            write!(f, " + {post}")?;
        }
        Ok(())
    }
}
