//! Values of a method as a file declares them, checked.

use pteron_core::{Device, TensorSpec, Value};
use std::ops::Range;

/// One entry of a method's value table. Every index in it is in range and points at the right kind.
pub type ValueDef = Value<TensorDef>;

/// A tensor of the value table. `C` says where stored bytes are: in a file's definition in that file or a data
/// file, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDef<C = StoredBytes> {
    /// dtype, (largest) shape, memory order, dynamism; its byte count is known not to overflow.
    pub spec: TensorSpec,
    /// Where its bytes are.
    pub placement: Placement<C>,
    /// The device that its user takes its memory to be on. Where the memory is that the file plans,
    /// [`crate::MethodDef::arena_device`] says; constants are in the file.
    pub device: Device,
    /// Name of the parameter or buffer in the model, if the file has it.
    pub name: Option<String>,
}

/// Where the bytes of a tensor are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement<C = StoredBytes> {
    /// A constant.
    Constant(C),
    /// Planned memory; `offset` is aligned for the dtype and the tensor fits the arena.
    Planned {
        /// Index into [`crate::MethodDef::arenas`].
        arena: u32,
        /// First byte.
        offset: usize,
        /// First contents of a mutable buffer. Those in the file need not be aligned.
        initial: Option<C>,
    },
    /// Memory that the caller or the runtime supplies.
    Unplanned,
}

/// Bytes that a file stores for a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredBytes {
    /// This byte range of the file, as long as the tensor; a constant's is aligned for its dtype. Equal ranges are
    /// the same bytes.
    InFile(Range<usize>),
    /// A tensor of a data file, by name.
    External(String),
}

impl<C> TensorDef<C> {
    /// Is it a mutable buffer of the model: planned memory that has a name or first contents? Calls find in it
    /// what the calls before them left.
    pub fn is_state(&self) -> bool {
        matches!(&self.placement, Placement::Planned { initial, .. } if initial.is_some() || self.name.is_some())
    }

    /// Is it memory of the plan that holds nothing between calls?
    pub fn is_temporary(&self) -> bool {
        matches!(self.placement, Placement::Planned { .. }) && !self.is_state()
    }

    /// The bytes of stored contents, if the tensor has any: a constant's, or the first of a mutable buffer.
    pub fn stored(&self) -> Option<&C> {
        match &self.placement {
            Placement::Constant(stored) | Placement::Planned { initial: Some(stored), .. } => Some(stored),
            Placement::Planned { initial: None, .. } | Placement::Unplanned => None,
        }
    }

    /// The same tensor with what `stored` makes of the place of stored bytes.
    ///
    /// # Errors
    /// Those of `stored`.
    pub fn try_map<D, E>(&self, mut stored: impl FnMut(&C) -> Result<D, E>) -> Result<TensorDef<D>, E> {
        let placement = match &self.placement {
            Placement::Constant(c) => Placement::Constant(stored(c)?),
            Placement::Planned { arena, offset, initial } => Placement::Planned {
                arena: *arena,
                offset: *offset,
                initial: initial.as_ref().map(stored).transpose()?,
            },
            Placement::Unplanned => Placement::Unplanned,
        };
        Ok(TensorDef { spec: self.spec.clone(), placement, device: self.device, name: self.name.clone() })
    }
}
