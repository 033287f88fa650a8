//! Data files of a program: opened, checked, and searched as one.

use crate::ProgramSource;
use crate::load::storage::Storage;
use pteron_core::error::printable;
use pteron_core::{Error, ErrorKind, Result, StableBytes};
use pteron_format::{DataEntryDef, DataFile};
use std::collections::HashMap;

/// A `.ptd` file beside a program.
pub struct DataSource {
    /// Where its bytes are.
    pub source: ProgramSource,
    /// What messages call it: its path, or where its bytes came from.
    pub name: String,
}

/// An open data file.
pub(crate) struct ExternalFile {
    pub name: String,
    pub storage: Storage,
    pub file: DataFile,
}

impl ExternalFile {
    fn open(given: DataSource) -> Result<Self> {
        let DataSource { source, name } = given;
        let storage = match source {
            ProgramSource::File { path, is_mapped } => {
                Storage::open_as(&path, is_mapped, "data", ".ptd", ErrorKind::ExternalData)?
            }
            ProgramSource::Bytes(bytes) => Storage::borrow(bytes)?,
        };
        let file = DataFile::parse(storage.bytes()).map_err(|e| in_file(&name, e))?;
        Ok(ExternalFile { name, storage, file })
    }

    fn bytes(&self, entry: &DataEntryDef) -> &[u8] {
        self.storage.bytes().get(entry.range.clone()).unwrap_or_default()
    }
}

fn in_file(name: &str, e: Error) -> Error {
    let message = format!("data file '{}': {}", printable(name), e.detail().message);
    e.with_message(message)
}

/// All data files of a program. No key stands for two things.
#[derive(Default)]
pub(crate) struct ExternalFiles {
    files: Vec<ExternalFile>,
    // Key → file and entry.
    index: HashMap<String, (usize, usize)>,
}

impl ExternalFiles {
    /// Opens all of them. A key that two files have is an error unless it stands for the same in both.
    pub(crate) fn open(sources: Vec<DataSource>) -> Result<Self> {
        let mut out = ExternalFiles::default();
        for source in sources {
            let opened = ExternalFile::open(source)?;
            for (at, entry) in opened.file.entries.iter().enumerate() {
                match out.index.get(&entry.key) {
                    Some((file, _)) => out.check_same(*file, &opened, entry)?,
                    None => {
                        out.index.insert(entry.key.clone(), (out.files.len(), at));
                    }
                }
            }
            out.files.push(opened);
        }
        Ok(out)
    }

    fn check_same(&self, file: usize, second: &ExternalFile, entry: &DataEntryDef) -> Result<()> {
        let Some((first, known)) = self.files.get(file).and_then(|f| Some((f, f.file.entry(&entry.key)?)))
        else {
            return Err(Error::internal("an entry left its data file"));
        };
        if known.layout == entry.layout && first.bytes(known) == second.bytes(entry) {
            return Ok(());
        }
        Err(Error::external_data("two data files have different contents under one key")
            .expected("each key in one file, or the same tensor in all")
            .got(format!(
                "'{}' in '{}' and in '{}'",
                printable(&entry.key),
                printable(&first.name),
                printable(&second.name)
            ))
            .hint("pass only the data files that were written with this program"))
    }

    /// The entry of a key: index of its file, the file, the entry.
    pub(crate) fn find(&self, key: &str) -> Option<(usize, &ExternalFile, &DataEntryDef)> {
        let (file, entry) = self.index.get(key)?;
        let found = self.files.get(*file)?;
        Some((*file, found, found.file.entries.get(*entry)?))
    }

    /// The bytes of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.find(key).map(|(_, file, entry)| file.bytes(entry))
    }

    /// File number `index`.
    pub(crate) fn file(&self, index: usize) -> Option<&ExternalFile> {
        self.files.get(index)
    }

    /// All keys, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// What was given, for messages.
    pub(crate) fn description(&self) -> String {
        const SHOWN: usize = 6;
        if self.files.is_empty() {
            return "no data file".to_string();
        }
        let shown = |f: &ExternalFile| format!("'{}' ({} entries)", printable(&f.name), f.file.entries.len());
        let names: Vec<String> = self.files.iter().take(SHOWN).map(shown).collect();
        let more = if self.files.len() > SHOWN { ", ..." } else { "" };
        format!("{}{more}", names.join(", "))
    }
}
