//! The file formats: bytes to checked programs ([`ProgramFile`]), data files ([`DataFile`]) and bundled
//! programs ([`BundleFile`]), and back to bytes ([`mod@write`]); the text form ([`listing()`]); files without
//! debug information ([`strip()`]). Executes nothing; `schema/FORMAT.md` describes the formats themselves.
//!
//! Reading is one step: [`ProgramFile::parse`] copies the program table to owned memory, verifies its
//! structure, checks every index, range, size and code in it, and returns plain owned data. Nothing of
//! a file is looked at again after that except the byte ranges of weights and blobs, which consumers
//! take from the file they keep.
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod bundle_file;
mod data_file;
#[allow(unsafe_code, reason = "what flatc writes")]
mod generated;
mod header;
mod listing;
mod method_def;
mod program_file;
mod read;
mod strip;
mod value_def;
pub mod write;

pub use bundle_file::{BundleFile, BundledValue, TestCaseDef, TestSuiteDef};
pub use data_file::{DataEntryDef, DataFile};
pub use listing::{SpecText, listing};
pub use method_def::{DelegateDef, MethodDef};
pub use program_file::{NamedDataDef, ProgramFile};
pub use strip::{DEBUG_KEY, strip};
pub use value_def::{Placement, StoredBytes, TensorDef, ValueDef};
