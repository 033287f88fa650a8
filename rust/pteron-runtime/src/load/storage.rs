//! The bytes of a program: mapped, owned, or borrowed from somebody who keeps them. Unsafe island.

use pteron_core::{AlignedBuffer, Error, ErrorKind, Result, StableBytes};
use pteron_format::BundleFile;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The program inside a bundled program.
pub(crate) struct BundledProgram(pub Arc<BundleFile>);

// SAFETY: the copy that a bundle was checked in is private to it and never changed.
unsafe impl StableBytes for BundledProgram {
    fn bytes(&self) -> &[u8] {
        self.0.bytes.as_slice().get(self.0.program.clone()).unwrap_or_default()
    }
}

/// Alignment that constants rely on: the format aligns them to 16 bytes from the start of the file.
const BASE_ALIGNMENT: usize = 16;

/// The bytes of one file. Everything derived from a program holds an `Arc` of it.
pub(crate) struct Storage {
    owner: Owner,
}

enum Owner {
    Mapped(memmap2::Mmap),
    Stable(Arc<dyn StableBytes>),
}

impl Storage {
    /// Opens a program file: mapped (private, read-only) or read into aligned memory. An empty file cannot
    /// be mapped and is read.
    pub(crate) fn open(path: &Path, is_mapped: bool) -> Result<Storage> {
        Self::open_as(path, is_mapped, "program", ".pte", ErrorKind::Program)
    }

    /// As [`Storage::open`] for a file that messages call `what`, whose name ends in `suffix`; a file that
    /// cannot be read is an error of `kind`.
    pub(crate) fn open_as(
        path: &Path,
        is_mapped: bool,
        what: &str,
        suffix: &str,
        kind: ErrorKind,
    ) -> Result<Storage> {
        let failed = |e: std::io::Error| {
            let name = pteron_core::error::printable(&path.to_string_lossy());
            match e.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::not_found(format!("the {what} file does not exist")).got(name)
                }
                std::io::ErrorKind::OutOfMemory => Error::limit(format!(
                    "the {what} file does not fit into the process's memory"
                ))
                .got(format!("{name}: {e}"))
                .hint(
                    "raise the limit of the process's address space (ulimit -v, RLIMIT_AS), or free memory",
                ),
                _ => Error::new(kind, format!("the {what} file cannot be read"))
                    .got(format!("{name}: {e}"))
                    .hint("check the permissions of the file, and that its storage can be reached"),
            }
        };
        let mut file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(Error::new(kind, format!("the {what} is not a regular file"))
                .expected(format!("a {suffix} file"))
                .got(format!(
                    "{}{}",
                    if meta.is_dir() { "the directory " } else { "" },
                    pteron_core::error::printable(&path.to_string_lossy())
                ))
                .hint(format!("pass the path of the {suffix} file itself; what comes from a pipe or device can be passed as bytes")));
        }
        let len = usize::try_from(meta.len())
            .map_err(|_| Error::limit("the file is larger than the address space"))?;
        if is_mapped && len > 0 {
            // SAFETY: the mapping is private and read-only. What is parsed is copied before it is
            // verified; only weights and blobs are read from the mapping, and no check depends on their
            // contents. A file that somebody truncates meanwhile is outside the promise (`is_mapped:
            // false` is there for such storage).
            let map = unsafe { memmap2::MmapOptions::new().len(len).map_copy_read_only(&file) };
            return Ok(Storage { owner: Owner::Mapped(map.map_err(failed)?) });
        }
        let mut buffer = AlignedBuffer::zeroed(len)?;
        file.read_exact(buffer.as_mut_slice()).map_err(failed)?;
        Ok(Storage { owner: Owner::Stable(Arc::new(buffer)) })
    }

    /// Bytes that somebody else keeps; copied when they are not 16-byte aligned.
    pub(crate) fn borrow(bytes: Arc<dyn StableBytes>) -> Result<Storage> {
        let is_aligned = (bytes.bytes().as_ptr() as usize).is_multiple_of(BASE_ALIGNMENT);
        let owner = if is_aligned { bytes } else { Arc::new(AlignedBuffer::copy_of(bytes.bytes())?) };
        Ok(Storage { owner: Owner::Stable(owner) })
    }

    /// Is it a mapped file?
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Mapped(_))
    }

    /// Gives the pages of a mapped part back to the system; they are read from the file again if somebody
    /// needs them after all. Does nothing for bytes that are not mapped.
    pub(crate) fn release(&self, offset: u64, nbytes: u64) {
        let Owner::Mapped(map) = &self.owner else { return };
        let Ok(range) = pteron_core::sizes::checked_range(offset, nbytes, map.len()) else { return };
        #[cfg(unix)]
        // SAFETY: the mapping is private, read-only and backed by the file, so a page that is dropped comes
        // back with the same contents (a file that changes meanwhile is outside the promise, as in `open`).
        // That the advice is not taken changes nothing but the memory in use.
        let _ = unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
        #[cfg(not(unix))]
        let _ = range;
    }

    /// A part; an error when it lies outside.
    pub(crate) fn range(&self, offset: u64, nbytes: u64) -> Result<&[u8]> {
        let range = pteron_core::sizes::checked_range(offset, nbytes, self.bytes().len())?;
        self.bytes().get(range).ok_or_else(|| Error::internal("a checked range is outside its storage"))
    }
}

// SAFETY: the owner is never exchanged, and neither a mapping nor stable bytes move or are written by this
// process. (A mapped file that another process changes is outside the promise, as in `open`; no check depends
// on the contents of what is read from a mapping.)
unsafe impl StableBytes for Storage {
    fn bytes(&self) -> &[u8] {
        match &self.owner {
            Owner::Mapped(map) => map,
            Owner::Stable(bytes) => bytes.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misaligned_bytes_are_copied() {
        let block: Arc<Vec<u8>> = Arc::new(vec![7; 64]);
        let start = block.as_ptr() as usize;
        struct Tail(Arc<Vec<u8>>);
        // SAFETY: the bytes are those of a `Vec` that nothing changes while it is shared.
        unsafe impl StableBytes for Tail {
            fn bytes(&self) -> &[u8] {
                &self.0[1..]
            }
        }
        let s = Storage::borrow(Arc::new(Tail(block.clone()))).unwrap();
        assert_ne!(s.bytes().as_ptr() as usize, start + 1);
        assert_eq!(s.bytes(), &[7; 63]);
        assert!(s.range(60, 4).is_err());
        assert_eq!(s.range(60, 3).unwrap(), &[7; 3]);
    }

    #[test]
    fn released_pages_come_back_with_the_bytes_of_the_file() {
        let path = std::env::temp_dir().join(format!("pteron-release-{}", std::process::id()));
        let bytes: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let s = Storage::open(&path, true).unwrap();
        assert_eq!(s.bytes(), bytes);
        s.release(0, 40_000);
        s.release(5_000, 20_000);
        s.release(39_999, 2);
        s.release(u64::MAX, u64::MAX);
        assert_eq!(s.bytes(), bytes);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_says_so() {
        let e = Storage::open(Path::new("no/such/file.pte"), true).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        assert!(e.to_string().contains("no/such/file.pte"), "{e}");
        let e = Storage::open(Path::new("."), true).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Program);
    }
}
