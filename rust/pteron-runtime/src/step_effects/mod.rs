//! Which bytes a step reads and writes, and how they alias: the one answer that the optimiser, the code builder
//! and the checks of memory and state share.
//!
//! [`Operation`] says what an instruction or step does with its arguments, [`ByteRegion`] where a tensor's bytes are,
//! [`places`] where moves and views may point a tensor, [`MemoryMap`] which overlaps a kernel has to allow, and
//! [`Uses`] when values are named.

mod memory_map;
mod operation;
pub(crate) mod places;
mod region;
mod uses;

pub(crate) use memory_map::{ArgumentRole, MemoryMap, overlap_error, pair_rule};
pub(crate) use operation::{Accesses, Operation, tensor_roles, written_scalars};
pub(crate) use region::{ByteRegion, Space};
pub(crate) use uses::Uses;
