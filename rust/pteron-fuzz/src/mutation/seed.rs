//! Files that mutations begin with.

use super::sites::Sites;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, and where things are in it.
pub struct SeedFile {
    /// The file.
    pub bytes: Arc<Vec<u8>>,
    /// Its numbers, lengths and references.
    pub sites: Sites,
}

impl SeedFile {
    /// A file of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        SeedFile { sites: Sites::of(&bytes), bytes: Arc::new(bytes) }
    }
}

/// A program, and the data file beside it if it needs one.
pub struct Seed {
    /// What findings call it.
    pub name: String,
    /// The program.
    pub program: SeedFile,
    /// The data file.
    pub data: Option<SeedFile>,
}

impl Seed {
    /// A program that needs no data file.
    pub fn new(name: impl Into<String>, program: Vec<u8>) -> Self {
        Seed { name: name.into(), program: SeedFile::new(program), data: None }
    }

    /// The program at `path`, with the data file of the same name.
    ///
    /// # Panics
    ///
    /// If a file cannot be read.
    pub fn read(path: &Path) -> Seed {
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let beside = path.with_extension("ptd");
        let data = beside.exists().then(|| SeedFile::new(read(&beside)));
        Seed { data, ..Seed::new(name, read(path)) }
    }
}

/// All programs of a folder, in the order of their names; none where there is no folder.
///
/// # Panics
///
/// If the folder or a file of it cannot be read.
pub fn read_all(folder: &Path) -> Vec<Seed> {
    if !folder.exists() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "pte" || e == "bpte"));
    paths.sort();
    paths.iter().map(|p| Seed::read(p)).collect()
}
