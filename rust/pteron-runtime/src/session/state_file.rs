//! State in a file: a data file (`.ptd`) with one tensor per mutable buffer.

use crate::load::storage::Storage;
use crate::{InputValue, TensorInput};
use pteron_core::error::printable;
use pteron_core::{Error, ErrorKind, MAX_RANK, OwnedTensor, Result, StableBytes};
use pteron_format::DataFile;
use pteron_format::write::{DataEntryDraft, DataFileDraft, LayoutDraft};
use pteron_kernels::strided::loops::signed;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Alignment of every tensor in the file, enough for any dtype.
const ALIGNMENT: u32 = 16;

/// Writes `state` to `path`: all of it, or nothing that replaces what was there.
///
/// A link is followed. Errors: `NotFound` for a directory that is not there, `ExternalData` for what is no file and
/// for other failures of the system.
pub(crate) fn write(path: &Path, state: &[(String, OwnedTensor)]) -> Result<()> {
    let draft = |(name, tensor): &'_ (String, OwnedTensor)| -> Result<DataEntryDraft<'static>> {
        let layout = LayoutDraft {
            dim_order: tensor.meta.dim_order().as_slice().to_vec(),
            ..LayoutDraft::contiguous(tensor.meta.dtype(), tensor.meta.shape())?
        };
        let key = name.clone();
        Ok(DataEntryDraft { key, data: Cow::Borrowed(&[]), alignment: ALIGNMENT, layout: Some(layout) })
    };
    let mut entries: Vec<DataEntryDraft<'_>> = state.iter().map(draft).collect::<Result<_>>()?;
    for (entry, (_, tensor)) in entries.iter_mut().zip(state) {
        entry.data = Cow::Borrowed(tensor.bytes());
    }
    let file = DataFileDraft { entries };
    let layout = file.lay_out(ALIGNMENT)?;
    let target = target_of(path)?;
    let (partial, unfinished) = create_beside(&target).map_err(|e| failed(path, e))?;
    let mut sink = BufWriter::new(unfinished);
    let written = layout.write_to(&mut sink).and_then(|()| {
        sink.flush()?;
        sink.get_ref().sync_all()?;
        std::fs::rename(&partial, &target)
    });
    written.map_err(|e| {
        // What is left of it is of no use; that it cannot be removed either changes nothing.
        let _ = std::fs::remove_file(&partial);
        failed(path, e)
    })
}

/// The file that `path` names, or would: what a link points to, so that the link stays one.
fn target_of(path: &Path) -> Result<PathBuf> {
    let Ok(target) = path.canonicalize() else { return Ok(path.to_path_buf()) };
    match target.metadata() {
        // Renaming a file to its name would replace a device or a pipe.
        Ok(meta) if !meta.is_file() => Err(Error::external_data("the state file cannot be written")
            .expected("the path of a file, or of one that is to be made")
            .got(format!("{}, which is no file", printable(&path.to_string_lossy())))
            .hint("pass the path of a regular file")),
        _ => Ok(target),
    }
}

/// A new file in the same directory, for this call alone: other threads, and processes with the same number on
/// another machine, may save to the same path.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{}.partial", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let partial = path.with_file_name(name);
        match File::create_new(&partial) {
            Ok(file) => return Ok((partial, file)),
            // Left behind by a process that was killed, or being written elsewhere.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

#[cold]
fn failed(path: &Path, error: io::Error) -> Error {
    let name = printable(&path.to_string_lossy());
    match error.kind() {
        io::ErrorKind::NotFound => {
            Error::not_found("the directory of the state file does not exist").got(name)
        }
        _ => Error::external_data("the state file cannot be written")
            .got(format!("{name}: {error}"))
            .hint("check the permissions of the directory, and that it has room")
            .cause(error),
    }
}

/// A state file in memory.
pub(crate) struct StateFile {
    storage: Storage,
    file: DataFile,
}

impl StateFile {
    /// Reads and checks a file: untrusted, as every file.
    pub(crate) fn read(path: &Path) -> Result<StateFile> {
        let storage = Storage::open_as(path, false, "state", ".ptd", ErrorKind::ExternalData)?;
        let file = DataFile::parse(storage.bytes())?;
        Ok(StateFile { storage, file })
    }

    /// Names of the buffers in it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.file.entries.iter().map(|e| e.key.as_str())
    }

    /// Gives `use_state` the buffers as what `set_state` takes.
    pub(crate) fn with_state<T>(
        &self,
        use_state: impl FnOnce(&[(&str, InputValue<'_>)]) -> Result<T>,
    ) -> Result<T> {
        let mut strides: Vec<[isize; MAX_RANK]> = Vec::with_capacity(self.file.entries.len());
        for entry in &self.file.entries {
            let spec = entry.layout.as_ref().ok_or_else(|| {
                Error::external_data("a state file has an entry that is no tensor")
                    .argument(entry.key.as_str())
                    .hint("pass a file that save_state wrote")
            })?;
            strides.push(signed(&spec.dim_order.strides(&spec.shape)));
        }
        let mut state = Vec::with_capacity(strides.len());
        for (entry, strides) in self.file.entries.iter().zip(&strides) {
            let lost = || Error::internal("a checked range lies outside its file");
            let spec = entry.layout.as_ref().ok_or_else(lost)?;
            let bytes = self.storage.bytes().get(entry.range.clone()).ok_or_else(lost)?;
            let strides = strides.get(..spec.shape.len()).ok_or_else(lost)?;
            let tensor = TensorInput::from_bytes(spec.dtype, &spec.shape, strides, bytes).ok_or_else(lost)?;
            state.push((entry.key.as_str(), InputValue::Tensor(tensor)));
        }
        use_state(&state)
    }
}
