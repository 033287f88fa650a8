//! The memory that a table is built in. Unsafe island (an allocator of FlatBuffers).
//!
//! FlatBuffers' own memory ends the process when it cannot grow, and tables can hold gigabytes (blobs that
//! are stored inside, programs inside bundles). This one unwinds to [`built`], which gives an error.
#![allow(unsafe_code, reason = "an allocator of FlatBuffers")]

use flatbuffers::{Allocator, FlatBufferBuilder};
use pteron_core::memory_reserve::filled;
use pteron_core::{Error, Result};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What tables are built with.
pub(super) type Builder<'b> = FlatBufferBuilder<'b, TableMemory>;

const FIRST_BYTES: usize = 1024;

/// The bytes of an unfinished table, at the end of the list.
pub(super) struct TableMemory(Vec<u8>);

/// What unwinding carries: the memory that cannot be had.
struct Exhausted(Error);

impl Deref for TableMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for TableMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

// SAFETY: the memory grows or the call does not return; what it held lies at its end, the rest is zero.
unsafe impl Allocator for TableMemory {
    type Error = std::convert::Infallible;

    fn grow_downwards(&mut self) -> Result<(), Self::Error> {
        let wanted = self.0.len().saturating_mul(2).max(FIRST_BYTES);
        match filled(0u8, wanted) {
            Ok(mut grown) => {
                let start = wanted.saturating_sub(self.0.len());
                if let Some(end) = grown.get_mut(start..) {
                    end.copy_from_slice(&self.0);
                }
                self.0 = grown;
                Ok(())
            }
            // Not `panic_any`, which would report a panic that is none.
            Err(error) => resume_unwind(Box::new(Exhausted(error))),
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The finished table that `work` makes.
///
/// # Errors
/// What `work` says; `ErrorKind::LimitExceeded` when the memory cannot be had.
pub(super) fn built(work: impl for<'b> FnOnce(&mut Builder<'b>) -> Result<()>) -> Result<Vec<u8>> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut builder = Builder::new_in(TableMemory(Vec::new()));
        work(&mut builder)?;
        let (memory, start) = builder.collapse_in();
        let mut table = memory.0;
        table.drain(..start.min(table.len()));
        Ok(table)
    }));
    match result {
        Ok(result) => result,
        Err(payload) => match payload.downcast::<Exhausted>() {
            Ok(exhausted) => Err(exhausted.0),
            Err(other) => resume_unwind(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::memory_reserve::out_of_memory;

    #[test]
    fn a_table_grows_over_its_first_memory() {
        let long = "x".repeat(3 * FIRST_BYTES);
        let table = built(|b| {
            let text = b.create_string(&long);
            b.finish_minimal(text);
            Ok(())
        });
        assert_eq!(flatbuffers::root::<&str>(&table.unwrap()).unwrap(), long);
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let result = built(|_| {
            resume_unwind(Box::new(Exhausted(out_of_memory("a table"))));
        });
        assert_eq!(result.unwrap_err().kind(), pteron_core::ErrorKind::LimitExceeded);
    }
}
