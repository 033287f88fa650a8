//! A file that is laid out but not written yet: its first bytes, and where the large pieces go.

use pteron_core::memory_reserve::refusable;
use pteron_core::{Error, ErrorKind, Result};
use std::io::{self, Write};

/// Zeros between two pieces are written in chunks of this many bytes.
const ZEROS: [u8; 4096] = [0; 4096];

/// A finished layout. The pieces are borrowed, so a file of any size takes no memory but its table's.
#[derive(Debug, Clone)]
pub struct FileLayout<'a> {
    /// The first bytes of the file: header, table, and the zeros up to the first piece.
    pub head: Vec<u8>,
    /// Pieces behind the head with their offset in the file: increasing, without overlap, not empty.
    /// Whatever lies between them is zero.
    pub pieces: Vec<(u64, &'a [u8])>,
    /// Length of the file in bytes.
    pub len: u64,
}

impl FileLayout<'_> {
    /// The whole file in memory.
    ///
    /// # Errors
    /// `ErrorKind::LimitExceeded` when the memory cannot be had.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let no_memory = || {
            Error::new(ErrorKind::LimitExceeded, "memory for the file could not be allocated")
                .got(format!("{} bytes", self.len))
                .hint("write it to a file instead, which needs no copy of the weights")
        };
        let mut out = Vec::new();
        let len = usize::try_from(self.len).map_err(|_| no_memory())?;
        refusable(|| out.try_reserve_exact(len)).map_err(|_| no_memory())?;
        // A vector takes every byte it has room for.
        self.write_to(&mut out).map_err(|_| no_memory())?;
        Ok(out)
    }

    /// Writes the file to `sink`, from first byte to last, one piece after the other.
    ///
    /// # Errors
    /// What `sink` says.
    pub fn write_to(&self, sink: &mut impl Write) -> io::Result<()> {
        sink.write_all(&self.head)?;
        let mut at = self.head.len() as u64;
        for (offset, piece) in &self.pieces {
            write_zeros(sink, offset.saturating_sub(at))?;
            sink.write_all(piece)?;
            at = offset.saturating_add(piece.len() as u64);
        }
        write_zeros(sink, self.len.saturating_sub(at))
    }
}

fn write_zeros(sink: &mut impl Write, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let chunk = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
        sink.write_all(ZEROS.get(..chunk).unwrap_or_default())?;
        count = count.saturating_sub(chunk as u64);
    }
    Ok(())
}
