//! The store of packed weights, one per program: two methods, ten sessions, a hundred call sites
//! share one packed copy of a weight.

use crate::{AlignedBuffer, ConstantKey, DType, Dims, Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// What a packed copy was made of and how. Never the call site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PackKey {
    /// The bytes.
    pub constant: ConstantKey,
    /// The view of them: dtype, first element, extents, strides.
    pub dtype: DType,
    /// First element.
    pub offset: usize,
    /// Logical extents.
    pub shape: Dims,
    /// Strides in elements.
    pub strides: Dims,
    /// Packed format, such as `f32_nr32_v1`.
    pub format: &'static str,
}

impl PackKey {
    /// The key of `view` in `format`.
    pub fn new(view: &crate::ConstantView<'_>, format: &'static str) -> Self {
        PackKey {
            constant: view.key,
            dtype: view.dtype,
            offset: view.offset,
            shape: view.shape,
            strides: view.strides,
            format,
        }
    }
}

/// Packed copies by key.
#[derive(Debug, Default)]
pub struct PackStore {
    packs: Mutex<HashMap<PackKey, Arc<AlignedBuffer>>>,
}

impl PackStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The packed copy for `key`, made by `pack` the first time.
    pub fn get_or_pack(
        &self,
        key: PackKey,
        pack: impl FnOnce() -> Result<AlignedBuffer>,
    ) -> Result<Arc<AlignedBuffer>> {
        let mut packs = self.packs.lock().map_err(|_| Error::internal("pack store is poisoned"))?;
        if let Some(found) = packs.get(&key) {
            return Ok(found.clone());
        }
        let made = Arc::new(pack()?);
        packs.insert(key, made.clone());
        Ok(made)
    }

    /// Number of packed copies and their bytes.
    pub fn stats(&self) -> (usize, usize) {
        match self.packs.lock() {
            Ok(packs) => (packs.len(), packs.values().map(|p| p.len()).sum()),
            Err(_) => (0, 0),
        }
    }
}
