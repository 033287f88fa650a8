//! The numbers of dense matrices.

use crate::ops::tile_product::TileProduct;
use pteron_core::Element;

/// float32 and float64.
pub(crate) trait Dense: TileProduct + Element + Default {
    /// Distance from zero.
    fn size(self) -> Self;
    /// Square root.
    fn root(self) -> Self;
}

macro_rules! dense {
    ($($t:ty),*) => { $(
        impl Dense for $t {
            #[inline(always)]
            fn size(self) -> $t { self.abs() }
            #[inline(always)]
            fn root(self) -> $t { self.sqrt() }
        }
    )* };
}
dense!(f32, f64);
