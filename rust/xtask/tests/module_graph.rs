//! The graph of modules sees what the compiler sees: a small crate is written and read.

use std::fs;
use std::path::{Path, PathBuf};
use xtask::module_graph::{ModuleGraph, components};

/// Writes a crate of these files and reads its graph.
fn graph(name: &str, files: &[(&str, &str)]) -> ModuleGraph {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Left from an earlier run, if it is there.
    let _ = fs::remove_dir_all(&folder);
    for (path, text) in files {
        let path = folder.join("src").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    ModuleGraph::of_crate(&folder).unwrap()
}

/// The edges by name, sorted.
fn edges(graph: &ModuleGraph) -> Vec<String> {
    let name = |index: &usize| graph.files[*index].display().to_string();
    let all = graph.edges.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to)));
    let mut found: Vec<String> = all.map(|(from, to)| format!("{} -> {}", name(from), name(to))).collect();
    found.sort();
    found
}

#[test]
fn a_re_export_leads_to_the_file_that_defines() {
    let graph = graph(
        "re_export",
        &[
            ("lib.rs", "mod a; mod b; pub use a::inner::Thing as Renamed;"),
            ("a/mod.rs", "pub mod inner;"),
            ("a/inner.rs", "pub struct Thing; impl Thing { pub fn new() -> Self { Thing } }"),
            ("b.rs", "use crate::Renamed; pub fn make() -> Renamed { Renamed::new() }"),
        ],
    );
    assert_eq!(edges(&graph), ["b.rs -> a/inner.rs"]);
}

#[test]
fn paths_without_use_are_seen() {
    let graph = graph(
        "inline_paths",
        &[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
            ("a.rs", "pub fn f() {} pub const N: usize = 1;"),
            ("b.rs", "pub fn g() { crate::a::f() }"),
            ("c.rs", "pub fn h() { println!(\"{}\", super::a::N) }"),
            ("d.rs", "use crate::a; pub fn i() { a::f() }"),
            ("e.rs", "mod inner { pub fn j(_: [u8; super::super::a::N]) {} } pub fn k() { inner::j([0]) }"),
        ],
    );
    assert_eq!(edges(&graph), ["b.rs -> a.rs", "c.rs -> a.rs", "d.rs -> a.rs", "e.rs -> a.rs"]);
}

#[test]
fn globs_and_macros_are_followed() {
    let graph = graph(
        "globs",
        &[
            ("lib.rs", "mod top;"),
            ("top.rs", "macro_rules! twice { ($e:expr) => { $e + $e } } mod below; pub struct Shared;"),
            ("top/below.rs", "use super::*; pub fn f(_: Shared) -> u8 { twice!(1) }"),
        ],
    );
    assert_eq!(edges(&graph), ["top/below.rs -> top.rs"]);
    assert_eq!(graph.edge(2, 1).map(|e| e.path.as_str()), Some("Shared"));
}

#[test]
fn tests_other_crates_and_declarations_make_no_edge() {
    let graph = graph(
        "no_edges",
        &[
            ("lib.rs", "pub mod a; pub mod b; pub use b::B;"),
            ("a.rs", "use std::fmt; pub struct A; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "pub struct B; impl std::fmt::Debug for B {\n#[cfg(test)]\nfn x() { crate::a::A; } }"),
        ],
    );
    assert_eq!(edges(&graph), Vec::<String>::new());
}

#[test]
fn a_circle_is_named_with_the_edge_that_closes_it() {
    let graph = graph(
        "circle",
        &[
            ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::A;"),
            ("a.rs", "pub struct A(pub crate::b::B);"),
            ("b.rs", "pub struct B(pub crate::c::C);"),
            ("c.rs", "pub struct C;\n\nimpl C { pub fn up(a: &crate::A) -> &C { &a.0.0 } }"),
            ("d.rs", "pub fn d(_: crate::A) {}"),
        ],
    );
    let found = components(&graph);
    let mut sizes: Vec<usize> = found.iter().map(|c| c.modules.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 3]);
    let text = found[0].to_string();
    assert_eq!(found[0].closing_edges().len(), 1, "{text}");
    let closing = found[0].closing_edges()[0];
    let (from, to): (&PathBuf, &PathBuf) = (&graph.files[closing.0], &graph.files[closing.1]);
    assert!(text.contains(&format!("{}:{} -> {}", from.display(), closing.2.line, to.display())), "{text}");
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("missing");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), "mod nowhere;").unwrap();
    let error = ModuleGraph::of_crate(&folder).err().expect("the module has no file");
    assert!(error.contains("nowhere"), "{error}");
}
