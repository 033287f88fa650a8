//! The store of packed weights, one per program: two methods, ten sessions, a hundred call sites
//! share one packed copy of a weight. Copies that the program brings along are used as they lie.

use crate::{
    AlignedBuffer, ConstantKey, ConstantView, DType, Dims, Error, PackedBytes, Result, StableBytes,
    TensorSpec,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

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

/// The origin of constants that were computed from others at load, see [`PackStore::derive`].
pub const DERIVED_ORIGIN: u32 = u32::MAX;

/// What a computed constant is made of.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Recipe {
    name: String,
    sources: Vec<PackKey>,
    dtype: DType,
    shape: Dims,
}

/// Packed copies by key.
#[derive(Default)]
pub struct PackStore {
    is_trial: bool,
    stored: Option<StoredPacks>,
    used: Mutex<Used>,
    derived: Mutex<HashMap<Recipe, (ConstantKey, Weak<AlignedBuffer>)>>,
}

/// Packed copies that lie in the program's own bytes.
struct StoredPacks {
    owner: Arc<dyn StableBytes>,
    ranges: HashMap<PackKey, Range<usize>>,
}

#[derive(Default)]
struct Used {
    packs: HashMap<PackKey, Arc<PackedBytes>>,
    /// Keys of those that were made here, in the order in which they were asked for.
    made: Vec<PackKey>,
}

/// How many packed weights are in use, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackTotals {
    /// Made at load: number and bytes.
    pub made: (usize, usize),
    /// Found in the program: number and bytes.
    pub stored: (usize, usize),
}

impl PackStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that makes no packs: every copy is empty. For asking whether a kernel takes a call; what is
    /// prepared with it must never run.
    pub fn trial() -> Self {
        PackStore { is_trial: true, ..PackStore::default() }
    }

    /// A store that finds packed copies in the bytes of `owner`. The caller has checked that every range
    /// lies within them and has the size that its key's format asks for.
    pub fn with_stored(owner: Arc<dyn StableBytes>, ranges: HashMap<PackKey, Range<usize>>) -> Self {
        PackStore { stored: Some(StoredPacks { owner, ranges }), ..PackStore::default() }
    }

    /// Does the program bring a packed copy for `key`? A trial has every one.
    pub fn is_stored(&self, key: &PackKey) -> bool {
        self.is_trial || self.stored.as_ref().is_some_and(|stored| stored.ranges.contains_key(key))
    }

    /// The packed copy for `key`: in use already, else from the program, else made by `pack`.
    pub fn get_or_pack(
        &self,
        key: PackKey,
        pack: impl FnOnce() -> Result<AlignedBuffer>,
    ) -> Result<Arc<PackedBytes>> {
        if self.is_trial {
            return Ok(Arc::new(AlignedBuffer::zeroed(0)?.into()));
        }
        let mut used = self.used.lock().map_err(|_| Error::internal("pack store is poisoned"))?;
        if let Some(found) = used.packs.get(&key) {
            return Ok(found.clone());
        }
        let stored = self.stored.as_ref().and_then(|s| s.ranges.get(&key).map(|range| (&s.owner, range)));
        let packed = match stored {
            Some((owner, range)) => PackedBytes::stored(owner.clone(), range.clone())?,
            None => {
                let made = pack()?.into();
                used.made.push(key.clone());
                made
            }
        };
        let packed = Arc::new(packed);
        used.packs.insert(key, packed.clone());
        Ok(packed)
    }

    /// A constant that `make` computes from `sources` (dense, row-major; nothing where it cannot). The same
    /// recipe over the same sources has the same key for as long as the store lives, so packed copies of the
    /// result are shared; its own bytes live only as long as somebody holds them, and are made again when
    /// somebody else asks later.
    ///
    /// Errors: those of `make`; a result of the wrong size.
    pub fn derive(
        &self,
        recipe: &str,
        sources: &[ConstantView<'_>],
        spec: &TensorSpec,
        make: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<(ConstantKey, Arc<AlignedBuffer>)>> {
        let recipe = Recipe {
            name: recipe.to_string(),
            sources: sources.iter().map(|view| PackKey::new(view, "source")).collect(),
            dtype: spec.dtype,
            shape: spec.shape,
        };
        let mut derived = self.derived.lock().map_err(|_| Error::internal("pack store is poisoned"))?;
        if let Some((key, data)) = derived.get(&recipe)
            && let Some(data) = data.upgrade()
        {
            return Ok(Some((*key, data)));
        }
        let Some(made) = make(sources)? else { return Ok(None) };
        let nbytes = spec.nbytes()?;
        if made.len() != nbytes {
            return Err(Error::internal("a computed constant has the wrong size")
                .expected(format!("{nbytes} bytes"))
                .got(format!("{} bytes", made.len())));
        }
        let made = Arc::new(made);
        let next = derived.len() as u64;
        let entry = derived.entry(recipe).or_insert_with(|| {
            let key = ConstantKey { origin: DERIVED_ORIGIN, offset: next, nbytes: nbytes as u64 };
            (key, Weak::new())
        });
        entry.1 = Arc::downgrade(&made);
        Ok(Some((entry.0, made)))
    }

    /// Numbers and bytes of the copies in use.
    pub fn totals(&self) -> PackTotals {
        let Ok(used) = self.used.lock() else { return PackTotals::default() };
        let bytes = |keys: &mut dyn Iterator<Item = &PackKey>| {
            keys.filter_map(|k| used.packs.get(k)).fold((0, 0), |(n, b), p| (n + 1, b + p.len()))
        };
        let made = bytes(&mut used.made.iter());
        let all = bytes(&mut used.packs.keys());
        PackTotals { made, stored: (all.0 - made.0, all.1 - made.1) }
    }

    /// The copies that were made here, in the order in which they were first asked for.
    pub fn made(&self) -> Vec<(PackKey, Arc<PackedBytes>)> {
        let Ok(used) = self.used.lock() else { return vec![] };
        used.made.iter().filter_map(|k| Some((k.clone(), used.packs.get(k)?.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: usize) -> PackKey {
        PackKey {
            constant: ConstantKey { origin: 0, offset: 0, nbytes: 64 },
            dtype: DType::UInt8,
            offset,
            shape: Dims::new(&[64]).unwrap(),
            strides: Dims::new(&[1]).unwrap(),
            format: "f",
        }
    }

    #[test]
    fn a_trial_packs_nothing() {
        let packs = PackStore::trial();
        assert!(packs.get_or_pack(key(0), || Err(Error::internal("packed"))).unwrap().is_empty());
        assert_eq!((packs.totals(), packs.made().len()), (PackTotals::default(), 0));
    }

    #[test]
    fn computed_constants_keep_their_key_and_are_made_again_when_nobody_holds_them() {
        let packs = PackStore::new();
        let data = [1u8; 8];
        let view = ConstantView {
            key: ConstantKey { origin: 0, offset: 0, nbytes: 8 },
            data: &data,
            dtype: DType::UInt8,
            offset: 0,
            shape: Dims::new(&[8]).unwrap(),
            strides: Dims::new(&[1]).unwrap(),
        };
        let spec = TensorSpec::contiguous(DType::UInt8, &[8]).unwrap();
        let count = std::cell::Cell::new(0);
        let mut make = |sources: &[ConstantView<'_>]| {
            count.set(count.get() + 1);
            AlignedBuffer::copy_of(sources[0].data).map(Some)
        };
        let (key, held) = packs.derive("a", &[view], &spec, &mut make).unwrap().unwrap();
        assert_eq!(packs.derive("a", &[view], &spec, &mut make).unwrap().unwrap().0, key);
        drop(held);
        assert_eq!(packs.derive("a", &[view], &spec, &mut make).unwrap().unwrap().0, key);
        assert_ne!(packs.derive("b", &[view], &spec, &mut make).unwrap().unwrap().0, key);
        assert_eq!(count.get(), 3);
        let short = TensorSpec::contiguous(DType::UInt8, &[9]).unwrap();
        assert!(packs.derive("a", &[view], &short, &mut make).is_err());
        assert!(packs.derive("c", &[view], &spec, &mut |_| Ok(None)).unwrap().is_none());
    }

    #[test]
    fn stored_copies_are_used_and_the_others_made() {
        let owner = Arc::new(AlignedBuffer::copy_of(&[7; 128]).unwrap());
        let packs = PackStore::with_stored(owner.clone(), HashMap::from([(key(0), 64..128)]));
        assert!(
            packs.is_stored(&key(0)) && !packs.is_stored(&key(1)) && PackStore::trial().is_stored(&key(1))
        );
        let stored = packs.get_or_pack(key(0), || Err(Error::internal("is stored"))).unwrap();
        assert_eq!(stored.as_ptr(), owner.as_ptr().wrapping_add(64).cast_const());
        assert!(packs.get_or_pack(key(1), || Err(Error::internal("cannot be made"))).is_err());
        packs.get_or_pack(key(1), || AlignedBuffer::zeroed(32)).unwrap();
        packs.get_or_pack(key(1), || Err(Error::internal("is there"))).unwrap();
        assert_eq!(packs.totals(), PackTotals { made: (1, 32), stored: (1, 64) });
        assert_eq!(packs.made().into_iter().map(|(k, p)| (k, p.len())).collect::<Vec<_>>(), [(key(1), 32)]);
    }
}
