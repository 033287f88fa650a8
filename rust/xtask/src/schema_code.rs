//! The schemas in `schema/` to the Rust of the crates that read them, by flatc.

use crate::generated_file::GeneratedFile;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version whose output is in the repository; others format it differently.
const FLATC_VERSION: &str = "24.3.25";
/// The schemas that have a root table, by name, and the crate that reads each.
const SCHEMAS: [(&str, &str); 4] = [
    ("program", "pteron-format"),
    ("flat_tensor", "pteron-format"),
    ("bundled_program", "pteron-format"),
    ("xnnpack_payload", "pteron-xnnpack"),
];

/// Runs flatc into a folder of its own and returns what it made.
pub fn generate(repository: &Path) -> Result<Vec<GeneratedFile>, String> {
    let flatc = find_flatc(repository)?;
    check_version(&flatc)?;
    let folder = repository.join("target/xtask");
    fs::create_dir_all(&folder).map_err(|e| format!("target/xtask cannot be made: {e}"))?;
    let mut files = Vec::new();
    for (name, reader) in SCHEMAS {
        let schema = repository.join(format!("schema/{name}.fbs"));
        // --gen-all: each file holds what its schema includes, so that they do not depend on each other.
        run(Command::new(&flatc).args(["--rust", "--gen-all", "-o"]).arg(&folder).arg(schema))?;
        let made = format!("{name}_generated.rs");
        let content =
            fs::read_to_string(folder.join(&made)).map_err(|e| format!("flatc made no {made}: {e}"))?;
        files.push(GeneratedFile { path: format!("rust/{reader}/src/generated/{made}"), content });
    }
    Ok(files)
}

/// `PTERON_FLATC`, or the one in the development environment, or the one on the PATH.
fn find_flatc(repository: &Path) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("PTERON_FLATC") {
        return Ok(PathBuf::from(path));
    }
    let local = repository.join(".venv/bin/flatc");
    let on_path = env::var_os("PATH")
        .iter()
        .flat_map(env::split_paths)
        .map(|folder| folder.join("flatc"))
        .find(|candidate| candidate.is_file());
    Some(local).filter(|l| l.is_file()).or(on_path).ok_or_else(|| {
        format!(
            "the FlatBuffers compiler was not found: looked at PTERON_FLATC, .venv/bin/flatc and PATH; \
             install flatc {FLATC_VERSION}, or set PTERON_FLATC to it"
        )
    })
}

fn check_version(flatc: &Path) -> Result<(), String> {
    let found = run(Command::new(flatc).arg("--version"))?;
    let found = found.trim().trim_start_matches("flatc version ");
    if found == FLATC_VERSION {
        return Ok(());
    }
    Err(format!(
        "{} is of another version; expected {FLATC_VERSION}, got {found} (set PTERON_FLATC to the right one)",
        flatc.display()
    ))
}

/// Standard output of `command`, or its standard error as an error.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|e| format!("{name} cannot be started: {e}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{name} failed ({}): {text}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
