//! Small constants of mapped files, in memory of their own.
//!
//! Who reads a byte of a mapped file gets the pages around it too (64 KiB on Linux), so a bias of a few hundred bytes
//! would keep as much of the packed weights beside it in memory as a kernel that reads them. A copy takes its own size.

use crate::ir::{ConstantRef, MethodIr, Placement};
use crate::load::program_data::ProgramData;
use pteron_core::{AlignedBuffer, ConstantKey, Error, Result, ValueId};
use std::collections::HashMap;

/// Bytes of a constant that is copied, at most.
const MOST_BYTES: usize = 16 << 10;
/// Bytes of all copies, at most: the constants of a damaged file may lie on top of each other.
const MOST_IN_ALL: usize = 4 << 20;
/// What kernels read begins at a line of the cache.
const ALIGNMENT: usize = 64;

/// Copies of small constants of mapped files.
pub(crate) struct SmallConstants {
    memory: AlignedBuffer,
    places: HashMap<ConstantKey, usize>,
}

impl SmallConstants {
    /// Copies the small constants among the values of a method that `is_used` names.
    ///
    /// Errors: no memory.
    pub(crate) fn copy(
        ir: &MethodIr,
        data: Option<&ProgramData>,
        is_used: impl Fn(ValueId) -> bool,
    ) -> Result<SmallConstants> {
        let mut places = HashMap::new();
        let mut found: Vec<(&[u8], usize)> = vec![];
        let mut end = 0usize;
        for (id, tensor) in ir.tensors() {
            let Placement::Constant(ConstantRef::Stored(key)) = &tensor.placement else { continue };
            let Some(data) = data.filter(|data| data.is_mapped(key)) else { continue };
            let Some(bytes) = data.constant(key).filter(|b| b.len() <= MOST_BYTES) else { continue };
            if !is_used(id) || places.contains_key(key) {
                continue;
            }
            let next = end.saturating_add(bytes.len().next_multiple_of(ALIGNMENT));
            if next > MOST_IN_ALL {
                break;
            }
            places.insert(*key, end);
            found.push((bytes, end));
            end = next;
        }
        let mut memory = AlignedBuffer::zeroed(end)?;
        for (bytes, at) in found {
            let room = memory.as_mut_slice().get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
            room.ok_or_else(|| Error::internal("copied constants have no room"))?.copy_from_slice(bytes);
        }
        Ok(SmallConstants { memory, places })
    }

    /// The copy of a constant, if it has one.
    pub(crate) fn get(&self, key: &ConstantKey) -> Option<&[u8]> {
        let at = *self.places.get(key)?;
        self.memory.as_slice().get(at..)?.get(..usize::try_from(key.nbytes).ok()?)
    }
}
