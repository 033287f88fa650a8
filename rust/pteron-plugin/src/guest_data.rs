//! The plugin's side of named data: the host's bytes where they lie. Unsafe island.

use crate::abi::{OK, PteronBytes, PteronInit};
use pteron_core::NamedData;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

type Lookup = unsafe extern "C" fn(*mut c_void, PteronBytes, *mut PteronBytes) -> i32;

/// Named data of the host. What safe code keeps may outlive the delegate.
pub(crate) enum HostData {
    /// Kept until this is dropped: bytes are those of the file.
    Kept(Kept),
    /// Of a host of the first version, whose bytes end with the delegate: copied at the first look.
    Copied(Copied),
}

/// What `keep_data` gave.
pub(crate) struct Kept {
    host: *mut c_void,
    lookup: Lookup,
    release: unsafe extern "C" fn(*mut c_void),
}

/// Copies, by key.
#[derive(Default)]
pub(crate) struct Copied {
    // Taken out when the delegate ends.
    host: Mutex<Option<(*mut c_void, Lookup)>>,
    // Never shrinks, and boxes stay in place.
    copies: Mutex<HashMap<String, Box<[u8]>>>,
}

// SAFETY: the interface allows `named_data` and `release_data` from any thread.
unsafe impl Send for HostData {}
// SAFETY: the interface allows `named_data` from any thread, several at once; `Copied` asks under a lock.
unsafe impl Sync for HostData {}

impl HostData {
    /// What the host lets a new delegate look at.
    ///
    /// # Safety
    /// `init` must be as the header says, of an `init` in progress.
    pub(crate) unsafe fn of(init: &PteronInit) -> HostData {
        match (init.named_data, init.keep_data, init.release_data) {
            (Some(lookup), Some(keep), Some(release)) => {
                // SAFETY: the caller promises the host of an `init` in progress, which `keep_data` takes.
                let host = unsafe { keep(init.host) };
                HostData::Kept(Kept { host, lookup, release })
            }
            (lookup, ..) => {
                let host = Mutex::new(lookup.map(|lookup| (init.host, lookup)));
                HostData::Copied(Copied { host, copies: Mutex::default() })
            }
        }
    }

    /// The delegate ends: what was not kept is no longer looked at.
    pub(crate) fn end(&self) {
        if let HostData::Copied(copied) = self
            && let Ok(mut host) = copied.host.lock()
        {
            *host = None;
        }
    }
}

impl NamedData for HostData {
    fn get(&self, key: &str) -> Option<&[u8]> {
        match self {
            HostData::Kept(kept) => kept.get(key),
            HostData::Copied(copied) => copied.get(key),
        }
    }
}

impl Kept {
    fn get(&self, key: &str) -> Option<&[u8]> {
        // SAFETY: `keep_data` promises a host that answers, and bytes that stay, until it is released, which only
        // dropping `self` does.
        unsafe { asked(self.host, self.lookup, key) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: given by `keep_data`, released here alone.
        unsafe { (self.release)(self.host) };
    }
}

impl Copied {
    fn get(&self, key: &str) -> Option<&[u8]> {
        let mut copies = self.copies.lock().ok()?;
        if !copies.contains_key(key) {
            let host = self.host.lock().ok()?;
            let (host, lookup) = (*host)?;
            // SAFETY: the host's own function and data while the delegate lives, which the lock keeps from ending.
            copies.insert(key.to_string(), unsafe { asked(host, lookup, key) }?.into());
        }
        let copy: *const [u8] = &**copies.get(key)?;
        // SAFETY: boxes stay in place, and in the map, as long as `self`.
        Some(unsafe { &*copy })
    }
}

/// # Safety
/// `b` must be valid as the header says while the result is used.
pub(crate) unsafe fn bytes<'a>(b: &PteronBytes) -> &'a [u8] {
    if b.data.is_null() || b.len == 0 {
        return &[];
    }
    // SAFETY: not null; the caller promises `len` bytes at `data` for as long as the result is used.
    unsafe { std::slice::from_raw_parts(b.data, b.len) }
}

/// The bytes that the host has under `key`.
///
/// # Safety
/// `host` must be one that `lookup` answers for, as long as the result is used.
unsafe fn asked<'a>(host: *mut c_void, lookup: Lookup, key: &str) -> Option<&'a [u8]> {
    let mut found = PteronBytes { data: std::ptr::null(), len: 0 };
    let wanted = PteronBytes { data: key.as_ptr(), len: key.len() };
    // SAFETY: the caller promises a host that answers; key and result live through the call.
    let status = unsafe { lookup(host, wanted, &mut found) };
    // SAFETY: the header promises that the bytes stay as long as the host answers, which the caller promises.
    (status == OK).then(|| unsafe { bytes(&found) })
}
