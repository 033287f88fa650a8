//! The seed programs, `tests/corpus/seeds`.

use crate::sites::Sites;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A program, and the data file beside it if it needs one.
pub struct Seed {
    pub name: String,
    pub program: Arc<Vec<u8>>,
    pub data: Option<Arc<Vec<u8>>>,
    pub program_sites: Sites,
    pub data_sites: Sites,
}

/// `tests/corpus`.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

impl Seed {
    /// The program at `path`, with its data file.
    pub fn read(path: &Path) -> Seed {
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let program = read(path);
        let beside = path.with_extension("ptd");
        let data = beside.exists().then(|| read(&beside));
        Seed {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            program_sites: Sites::of(&program),
            data_sites: data.as_ref().map(|d| Sites::of(d)).unwrap_or_default(),
            program: Arc::new(program),
            data: data.map(Arc::new),
        }
    }
}

/// All programs of a folder, in the order of their names.
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
