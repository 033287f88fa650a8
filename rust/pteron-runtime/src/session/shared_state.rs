//! Mutable buffers that several methods have in common.
//!
//! A file shares buffers by giving each the same place in a memory of its own in every method
//! (ExecuTorch's `share_mutable_buffers` uses memory id 2). Methods that are loaded together then get
//! one such memory. It is recognised by what it holds: named buffers only, those of one name at one
//! place, those of different names apart.

use crate::load::method_code::MethodCode;
use crate::step_effects::{ByteRegion, Space};
use pteron_core::error::printable;
use pteron_core::{AlignedBuffer, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The memories that the sessions of a group share, and whose turn it is.
pub(crate) struct SharedState {
    arenas: HashMap<usize, Arc<AlignedBuffer>>,
    /// Held while one of the sessions runs or its state is read or written.
    pub(crate) turn: Arc<Mutex<()>>,
}

impl SharedState {
    /// The memories that `codes` share. An error where they share none.
    pub(crate) fn new(codes: &[Arc<MethodCode>]) -> Result<SharedState> {
        let mut arenas = HashMap::new();
        let most = codes.iter().map(|c| c.ir.arenas.len()).max().unwrap_or(0);
        // Memory 1 is where every method has its other tensors.
        for arena in 1..most {
            let sizes = codes.iter().filter_map(|c| c.ir.arenas.get(arena));
            let size = sizes.copied().max().unwrap_or(0);
            if is_shared(codes, arena)? {
                arenas.insert(arena, Arc::new(AlignedBuffer::zeroed(size)?));
            }
        }
        if arenas.is_empty() {
            let names = codes.iter().map(|c| printable(&c.ir.name)).collect::<Vec<_>>().join(", ");
            return Err(Error::input("these methods share no mutable buffers")
                .argument("methods")
                .expected("methods whose program gives them one memory for their named buffers")
                .got(names)
                .hint(
                    "load each by itself with load_method, or export with \
                     MemoryPlanningPass(share_mutable_buffers=True)",
                ));
        }
        Ok(SharedState { arenas, turn: Arc::new(Mutex::new(())) })
    }

    /// The memory that stands for arena `index`, if it is shared.
    pub(crate) fn arena(&self, index: usize) -> Option<&Arc<AlignedBuffer>> {
        self.arenas.get(&index)
    }
}

/// Does `arena` hold named buffers only, and one of them in two methods?
fn is_shared(codes: &[Arc<MethodCode>], arena: usize) -> Result<bool> {
    let index = u32::try_from(arena).map_err(|_| Error::internal("too many memories"))?;
    let planned = |ir, id| ByteRegion::planned(ir, id).filter(|region| region.space == Space::Arena(index));
    let mut places: HashMap<&str, ByteRegion> = HashMap::new();
    let mut is_common = false;
    for code in codes {
        let state = code.layout.state.iter();
        let named: Vec<(&str, ByteRegion)> =
            state.filter_map(|(name, id)| Some((name.as_str(), planned(&code.ir, *id)?))).collect();
        let mut regions = code.ir.tensors().filter_map(|(id, _)| planned(&code.ir, id));
        if regions.any(|region| !named.iter().any(|(_, buffer)| buffer.covers(&region))) {
            return Ok(false);
        }
        for (name, region) in named {
            match places.insert(name, region) {
                Some(known) if known != region => return Ok(false),
                Some(_) => is_common = true,
                None => {}
            }
        }
    }
    let mut sorted: Vec<ByteRegion> =
        places.into_values().filter(|region| region.start < region.end).collect();
    sorted.sort_unstable();
    let is_apart = sorted.windows(2).all(|pair| matches!(pair, [a, b] if !a.overlaps(b)));
    Ok(is_common && is_apart)
}
