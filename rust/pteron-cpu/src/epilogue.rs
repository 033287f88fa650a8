//! What a tile does with its result before it leaves the registers.

/// Inlined into the tile: bias is an argument of the operator, the clamp comes from fusion.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Epilogue {
    /// Clamp to `[min, max]` after bias; NaN stays NaN. ReLU is `(0.0, f32::INFINITY)`.
    pub clamp: Option<(f32, f32)>,
}

impl Epilogue {
    /// Nothing beyond the operator itself.
    pub const NONE: Epilogue = Epilogue { clamp: None };

    /// ReLU.
    pub const RELU: Epilogue = Epilogue { clamp: Some((0.0, f32::INFINITY)) };

    /// Nothing to do?
    pub fn is_none(&self) -> bool {
        *self == Epilogue::NONE
    }
}
