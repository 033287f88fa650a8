//! Code generation of the repository, and its check mode.
//!
//! `cargo xtask gen` writes every generated file that is in the repository; `cargo xtask gen --check`
//! makes them again elsewhere and fails when one differs.

mod generated_file;
mod schema_code;

use generated_file::{GeneratedFile, Outcome};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask gen [--check]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["gen"] => generate(false),
        ["gen", "--check"] => generate(true),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The top of the repository.
fn repository() -> &'static Path {
    // This crate is rust/xtask.
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn generate(is_check: bool) -> Result<(), String> {
    let files: Vec<GeneratedFile> = schema_code::generate(repository())?;
    let mut stale = Vec::new();
    for file in &files {
        match file.settle(repository(), is_check)? {
            Outcome::Same => println!("unchanged  {}", file.path),
            Outcome::Written => println!("written    {}", file.path),
            Outcome::Stale => stale.push(file.path.clone()),
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!("generated files are out of date: {} (fix: cargo xtask gen)", stale.join(", ")))
}
