//! Files to bytes. A [`ProgramDraft`], [`DataFileDraft`] or [`BundleDraft`] says what a file should hold, in the terms of the schema;
//! [`ProgramDraft::lay_out`] decides where everything goes and [`FileLayout`] is written to a file or to
//! memory. The same draft always gives the same bytes.
//!
//! The layout is read back and checked before it is returned, so an illegal draft is an error here
//! and not on the machine that loads the file.

mod bundle;
mod container;
mod data_file;
mod distinct;
mod file_layout;
mod program_draft;
mod segment_layout;
mod segments;
mod table;
mod table_memory;
mod write_options;

pub use bundle::{BundleDraft, BundledValueDraft, TestCaseDraft, TestSuiteDraft};
pub use data_file::{DataEntryDraft, DataFileDraft, LayoutDraft};
pub use file_layout::FileLayout;
pub use program_draft::{
    AllocationDraft, BufferDeviceDraft, ChainDraft, DelegateDraft, ExtraTensorDraft, FrameDraft,
    InstructionDraft, MethodDraft, NamedDataDraft, OperatorDraft, ProgramDraft, TensorDraft, ValueDraft,
};
pub use write_options::WriteOptions;
