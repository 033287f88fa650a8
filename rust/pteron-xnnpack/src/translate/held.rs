//! A value of the payload as the expansion holds it: a tensor, and the order in which XNNPACK sees its dimensions.

use pteron_core::{DType, DimOrder, Dims, Error, Result};

/// A tensor of the expansion. XNNPACK's dimension `i` is the tensor's dimension `order[i]`: a transpose of XNNPACK only
/// changes the order, so that between a transpose to NHWC and the one back tensors stay what they were in the model, NCHW.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Index into the values of the expansion.
    pub tensor: usize,
    /// Element type.
    pub dtype: DType,
    /// Extents of the tensor; upper bounds where they may change.
    pub extents: Dims,
    /// See above; as long as `extents`.
    pub order: DimOrder,
    /// May extents change?
    pub is_dynamic: bool,
}

impl Held {
    /// Extents as XNNPACK sees them.
    pub(super) fn dims(&self) -> Result<Dims> {
        let mut out = Dims::EMPTY;
        for axis in self.order.as_slice() {
            out.push(self.extents.get(usize::from(*axis)).copied().unwrap_or_default())?;
        }
        Ok(out)
    }

    /// The tensor's dimension that XNNPACK calls `axis`.
    pub(super) fn axis(&self, axis: usize) -> Result<usize> {
        self.order.as_slice().get(axis).map(|d| usize::from(*d)).ok_or_else(|| {
            Error::program("the operand has too few dimensions")
                .expected(format!("more than {axis}"))
                .got(format!("{} dimensions", self.order.rank()))
        })
    }

    /// Number of dimensions.
    pub(super) fn rank(&self) -> usize {
        self.extents.len()
    }

    /// An error unless the operand has `rank` dimensions.
    pub(super) fn require_rank(&self, rank: usize) -> Result<()> {
        if self.rank() == rank {
            return Ok(());
        }
        Err(Error::program("an operand of the node has a wrong number of dimensions")
            .expected(rank.to_string())
            .got(format!("extents {}", self.dims()?)))
    }

    /// Is the tensor's memory, row by row, what XNNPACK's would be? (Dimensions of one element have no order.)
    pub(super) fn is_in_memory_order(&self) -> bool {
        let moving = self.order.as_slice().iter().filter(|d| self.extents.get(usize::from(**d)) != Some(&1));
        moving.is_sorted()
    }
}

/// Rows, columns and channels last.
pub(super) fn channels_last() -> Result<DimOrder> {
    DimOrder::new(&[0, 2, 3, 1])
}
