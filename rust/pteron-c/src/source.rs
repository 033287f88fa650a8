//! Files: a path, bytes that are copied, or bytes that the caller lends. Unsafe island (lent bytes).

use crate::abi::PteronSource;
use crate::failure::{Outcome, misuse};
use crate::reading;
use pteron_core::{Error, Result};
use pteron_runtime::{ProgramSource, StableBytes};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Bytes of the caller, until `release`.
struct Lent {
    data: *const u8,
    size: usize,
    release: unsafe extern "C" fn(host: *mut c_void),
    host: AtomicPtr<c_void>,
}

// SAFETY: the header has callers leave lent bytes as they are until `release`, which may be called from any thread.
unsafe impl Send for Lent {}
// SAFETY: nothing of it changes while it is shared; the bytes behind it do not either, by the same header.
unsafe impl Sync for Lent {}

// SAFETY: the header has callers leave lent bytes where and what they are until `release`, which only the drop calls.
unsafe impl StableBytes for Lent {
    fn bytes(&self) -> &[u8] {
        // SAFETY: checked by `CheckedSource::read`: not null, and not more than memory can hold.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the caller's function and data, called once: this is the only place, and a value is dropped once.
        unsafe { (self.release)(self.host.load(Ordering::Relaxed)) };
    }
}

/// A source whose fields are in order. Nothing of it is taken over yet.
pub(crate) struct CheckedSource<'a> {
    path: Option<std::path::PathBuf>,
    bytes: &'a [u8],
    fields: PteronSource,
}

impl<'a> CheckedSource<'a> {
    /// The source at `pointer`.
    ///
    /// # Safety
    /// `pointer` is null or points to a struct of the header whose path and data are as the header says, for `'a`.
    pub(crate) unsafe fn read(pointer: *const PteronSource, name: &str) -> Outcome<CheckedSource<'a>> {
        // SAFETY: the contract of this function: null, or a struct of the header.
        let fields = unsafe { reading::versioned(pointer, name)? };
        let path = match fields.path.is_null() {
            true => None,
            // SAFETY: not null: a string, by the contract of this function.
            false => Some(unsafe { reading::path(fields.path, name)? }),
        };
        if path.is_some() && !fields.data.is_null() {
            return Err(misuse(name, "the source has a path and data").hint("set one of them"));
        }
        if path.is_none() && fields.data.is_null() {
            return Err(misuse(name, "the source has neither path nor data").hint("set one of them"));
        }
        if path.is_some() && fields.release.is_some() {
            return Err(misuse(name, "release is set for a path").hint("release is for data alone"));
        }
        // SAFETY: null, or `size` bytes that can be read, by the contract of this function.
        let bytes = unsafe { reading::slice(fields.data.cast::<u8>(), fields.size, name)? };
        Ok(CheckedSource { path, bytes, fields })
    }

    /// The name for messages.
    pub(crate) fn name(&self, otherwise: &str) -> String {
        self.path.as_ref().map_or_else(|| otherwise.to_string(), |p| p.to_string_lossy().into_owned())
    }

    /// Takes it over: copies the bytes, or borrows them until `release`.
    pub(crate) fn take(self) -> Result<ProgramSource> {
        if let Some(path) = self.path {
            return Ok(ProgramSource::File { path, is_mapped: self.fields.is_read == 0 });
        }
        let bytes: Arc<dyn StableBytes> = match self.fields.release {
            Some(release) => Arc::new(Lent {
                data: self.bytes.as_ptr(),
                size: self.bytes.len(),
                release,
                host: AtomicPtr::new(self.fields.host),
            }),
            None => {
                let mut copy = Vec::new();
                copy.try_reserve_exact(self.bytes.len()).map_err(|_| {
                    Error::limit("there is no memory for a copy of the program")
                        .got(format!("{} bytes", self.bytes.len()))
                        .hint("set release, which lends the bytes without a copy")
                })?;
                copy.extend_from_slice(self.bytes);
                Arc::new(copy)
            }
        };
        Ok(ProgramSource::Bytes(bytes))
    }
}
