//! A file of the repository that a program makes.

use std::fs;
use std::path::Path;

/// What a generated file should hold.
pub struct GeneratedFile {
    /// Path below the top of the repository.
    pub path: String,
    /// Its content.
    pub content: String,
}

/// What became of a generated file.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was right already.
    Same,
    /// It was written.
    Written,
    /// It differs and was left alone.
    Stale,
}

impl GeneratedFile {
    /// Compares the file with what it should hold; writes it unless this is a check.
    pub fn settle(&self, repository: &Path, is_check: bool) -> Result<Outcome, String> {
        let path = repository.join(&self.path);
        if fs::read_to_string(&path).is_ok_and(|found| found == self.content) {
            return Ok(Outcome::Same);
        }
        if is_check {
            return Ok(Outcome::Stale);
        }
        fs::write(&path, &self.content).map_err(|e| format!("{} cannot be written: {e}", self.path))?;
        Ok(Outcome::Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_reports_and_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("xtask-settle-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = GeneratedFile { path: "a.rs".to_owned(), content: "new".to_owned() };
        fs::write(folder.join("a.rs"), "old").unwrap();
        assert_eq!(file.settle(&folder, true), Ok(Outcome::Stale));
        assert_eq!(fs::read_to_string(folder.join("a.rs")).unwrap(), "old");
        assert_eq!(file.settle(&folder, false), Ok(Outcome::Written));
        assert_eq!(file.settle(&folder, true), Ok(Outcome::Same));
        fs::remove_dir_all(&folder).unwrap();
    }
}
