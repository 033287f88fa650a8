//! The files of a crate and the edges between them.

use super::source_tree::SourceTree;
use super::uses::uses_of;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The first use that makes one file need another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The line of the use.
    pub line: usize,
    /// The path as written there.
    pub path: String,
}

/// The modules of one crate: its library and its binaries.
#[derive(Default)]
pub struct ModuleGraph {
    /// Files, relative to the crate's `src`.
    pub files: Vec<PathBuf>,
    /// From each file to those that it uses.
    pub edges: BTreeMap<usize, BTreeMap<usize, Edge>>,
}

impl ModuleGraph {
    /// Reads the sources of a crate, given its folder.
    ///
    /// # Errors
    ///
    /// A text that names the file, where one is missing or does not parse.
    pub fn of_crate(folder: &Path) -> Result<Self, String> {
        let sources = folder.join("src");
        let mut graph = Self::default();
        for root in roots(&sources)? {
            graph.add_root(&SourceTree::read(&root)?, &sources);
        }
        Ok(graph)
    }

    /// Does a module use another?
    pub fn edge(&self, from: usize, to: usize) -> Option<&Edge> {
        self.edges.get(&from)?.get(&to)
    }

    fn add_root(&mut self, tree: &SourceTree, sources: &Path) {
        let numbers: Vec<usize> = tree
            .files
            .iter()
            .map(|file| {
                let path = file.path.strip_prefix(sources).unwrap_or(&file.path).to_owned();
                self.files.iter().position(|f| *f == path).unwrap_or_else(|| {
                    self.files.push(path);
                    self.files.len() - 1
                })
            })
            .collect();
        for (file, &from) in numbers.iter().enumerate() {
            for found in uses_of(tree, file) {
                let to = numbers[found.file];
                if to != from {
                    let edge = Edge { line: found.line, path: found.path };
                    self.edges.entry(from).or_default().entry(to).or_insert(edge);
                }
            }
        }
    }
}

/// `lib.rs`, `main.rs` and the files of `bin/`, those that are there.
fn roots(sources: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found: BTreeSet<PathBuf> = ["lib.rs", "main.rs"].iter().map(|name| sources.join(name)).collect();
    if let Ok(entries) = std::fs::read_dir(sources.join("bin")) {
        found.extend(entries.filter_map(Result::ok).map(|e| e.path()).filter(|p| p.extension().is_some()));
    }
    found.retain(|path| path.is_file());
    if found.is_empty() {
        return Err(format!("{} has no root", sources.display()));
    }
    Ok(found.into_iter().collect())
}
