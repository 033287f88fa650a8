//! The modules of every crate form no circle larger than its stated limit.

use std::path::{Path, PathBuf};
use xtask::module_graph::{ModuleGraph, components};

/// Crates whose largest component has more than one module, with its size. A smaller number is always welcome; a larger
/// one is a new circle.
const LIMITS: &[(&str, usize)] = &[("pteron-cpu", 2), ("pteron-kernels", 2)];

fn crates() -> Vec<PathBuf> {
    let rust = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in a folder of crates");
    let mut found: Vec<PathBuf> = std::fs::read_dir(rust)
        .expect("the folder of crates")
        .map(|entry| entry.expect("an entry of it").path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    found.sort();
    found
}

#[test]
fn no_circle_of_modules_is_larger_than_its_limit() {
    let mut report = String::new();
    for folder in crates() {
        let name = folder.file_name().expect("a crate has a name").to_string_lossy().into_owned();
        let limit = LIMITS.iter().find(|(n, _)| *n == name).map_or(1, |(_, limit)| *limit);
        let graph = ModuleGraph::of_crate(&folder).expect("the sources parse");
        let found = components(&graph);
        println!("{name}: {} modules, largest component {}", graph.files.len(), found[0].modules.len());
        for component in found.iter().filter(|c| c.modules.len() > limit) {
            report += &format!("{name} (limit {limit}): {component}");
        }
    }
    assert!(report.is_empty(), "circles of modules:\n{report}");
}
