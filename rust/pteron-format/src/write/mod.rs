//! Programs to bytes. A [`ProgramDraft`] says what a file should hold, in the terms of the schema;
//! [`ProgramDraft::to_bytes`] lays it out. The same draft always gives the same bytes.
//!
//! The result is read back and checked before it is returned, so an illegal draft is an error here
//! and not on the machine that loads the file.

mod container;
mod distinct;
mod program_draft;
mod segment_layout;
mod table;
mod write_options;

pub use program_draft::{
    AllocationDraft, ChainDraft, DelegateDraft, ExtraTensorDraft, InstructionDraft, MethodDraft,
    NamedDataDraft, OperatorDraft, ProgramDraft, TensorDraft, ValueDraft,
};
pub use write_options::WriteOptions;
