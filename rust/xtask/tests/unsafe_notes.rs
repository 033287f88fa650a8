//! What the compiler and clippy do not ask of unsafe code: a SAFETY note states a fact and who promises it, and every
//! unsafe function says under `# Safety` what its caller has to keep.

use std::fs;
use std::path::{Path, PathBuf};

/// Notes that say nothing: who reads one has to look for the fact somewhere else.
const EMPTY: &[&str] = &[
    "the caller's promise",
    "the caller's contract",
    "as above",
    "the same",
    "as before",
    "by contract",
    "see above",
    "safe",
];

/// Beginnings of notes that send the reader elsewhere; with more words they may state a fact all the same.
const POINTERS: &[&str] = &["as above", "as in ", "as for ", "contract of ", "module contract"];

/// Words that a note has at least, and one that begins with a pointer.
const FEWEST_WORDS: [usize; 2] = [3, 6];

fn sources() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|n| n != "generated" && n != "target") {
                collect(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    assert!(found.len() > 400, "only {} sources", found.len());
    found
}

/// The text of the note that begins in line `i`, over all its lines.
fn note(lines: &[&str], i: usize) -> Option<String> {
    let first = lines[i].trim_start().strip_prefix("// SAFETY: ")?;
    let mut text = first.trim().to_owned();
    for line in &lines[i + 1..] {
        match line.trim().strip_prefix("// ") {
            Some(more) => text = format!("{text} {}", more.trim()),
            None => break,
        }
    }
    Some(text)
}

fn is_empty(note: &str) -> bool {
    let bare = note.trim_end_matches(['.', ':']).to_lowercase();
    let is_pointer = POINTERS.iter().any(|p| bare.starts_with(p));
    EMPTY.contains(&bare.as_str()) || bare.split_whitespace().count() < FEWEST_WORDS[usize::from(is_pointer)]
}

/// Is the function of line `i` a method of a trait implementation, whose trait has the contract?
fn is_of_a_trait(lines: &[&str], i: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[i]);
    let begins = |l: &str| {
        ["impl", "unsafe impl", "pub trait", "trait"].iter().any(|word| l.trim_start().starts_with(word))
    };
    let Some(head) = lines[..i].iter().rposition(|l| begins(l) && indent(l) < own) else { return false };
    // A long head goes on in the next lines.
    let head: Vec<&str> =
        lines[head..].iter().take_while(|l| !l.ends_with('{')).copied().chain([lines[head]]).collect();
    head.join(" ").contains(" for ")
}

fn has_contract(lines: &[&str], i: usize) -> bool {
    let above = lines[..i].iter().rev().map(|l| l.trim());
    above
        .take_while(|l| l.starts_with("//") || l.starts_with("#[") || l.starts_with("$(#["))
        .any(|l| l == "/// # Safety")
}

fn is_unsafe_function(line: &str) -> bool {
    let line = line.trim_start();
    let mut words = line.split_whitespace().skip_while(|w| w.starts_with("pub") || *w == "const");
    let (first, rest) = (words.next(), words.collect::<Vec<_>>().join(" "));
    first == Some("unsafe")
        && (rest.starts_with("fn ") || rest.starts_with("extern \"C\" fn "))
        && line.contains('(')
}

#[test]
fn notes_state_a_fact() {
    let mut found = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for i in 0..lines.len() {
            if note(&lines, i).is_some_and(|n| is_empty(&n)) {
                found.push(format!("{}:{} {}", path.display(), i + 1, lines[i].trim()));
            }
        }
    }
    let hint =
        "say what is true and who promises it: \"`i` is below `n`, and the caller promises `n` elements\"";
    assert!(found.is_empty(), "{} notes without content ({hint}):\n{}", found.len(), found.join("\n"));
}

#[test]
fn unsafe_functions_say_what_they_ask_for() {
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|p| p.components().any(|c| c.as_os_str() == "src")) {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for i in 0..lines.len() {
            let in_tests = lines[..i].contains(&"mod tests {");
            if is_unsafe_function(lines[i])
                && !in_tests
                && !has_contract(&lines, i)
                && !is_of_a_trait(&lines, i)
            {
                found.push(format!("{}:{} {}", path.display(), i + 1, lines[i].trim()));
            }
        }
    }
    assert!(found.is_empty(), "{} unsafe functions without # Safety:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_check_knows_a_note_from_none() {
    let lines = [
        "// SAFETY: the caller's promise.",
        "// SAFETY: `i` is below `n`, and the",
        "// caller promises `n`.",
        "x",
    ];
    assert!(is_empty(&note(&lines[..1], 0).unwrap()));
    assert!(is_empty("as for `bind`."));
    assert!(!is_empty("i < n."));
    assert_eq!(note(&lines, 1).unwrap(), "`i` is below `n`, and the caller promises `n`.");
    assert!(is_unsafe_function("    pub(crate) unsafe fn run(&self) {"));
    assert!(!is_unsafe_function("type RunFn = unsafe fn(&Tile);"));
    assert!(!has_contract(&["/// Runs.", "unsafe fn run() {"], 1));
    assert!(has_contract(&["/// # Safety", "/// So.", "#[inline]", "unsafe fn run() {"], 3));
}
