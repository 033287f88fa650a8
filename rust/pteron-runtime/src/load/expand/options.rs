//! Runtime options of expanded backends. ExecuTorch's of XNNPACK choose how delegates share a workspace and packed
//! weights. Here the memory plan and the program's store of packed weights do so for the whole program, so the options
//! have nothing to say; they are checked, and accepted.

use pteron_core::error::printable;
use pteron_core::{BackendOption, Error, Result};

/// What an option of XNNPACK takes.
enum Kind {
    Switch,
    /// An integer from 0 to this.
    UpTo(i64),
    Text,
}

/// XNNPACK's options in ExecuTorch.
const XNNPACK: [(&str, Kind); 4] = [
    ("workspace_sharing_mode", Kind::UpTo(2)),
    ("weight_cache_enabled", Kind::Switch),
    ("packed_cache_path", Kind::Text),
    ("save_weight_cache_on_disk", Kind::Switch),
];

/// Checks the options for the delegates of `backend`, which were expanded.
///
/// Errors: an option that ExecuTorch does not have either, or of another kind than it takes.
pub(crate) fn check_options(backend: &str, options: &[(String, BackendOption)]) -> Result<()> {
    options.iter().try_for_each(|(name, value)| check(name, value).map_err(|e| e.backend(backend)))
}

fn check(name: &str, value: &BackendOption) -> Result<()> {
    let Some((_, kind)) = XNNPACK.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = XNNPACK.iter().map(|(known, _)| *known).collect();
        return Err(Error::input("the backend has no option of this name")
            .argument("backend_options")
            .expected(format!("names out of: {}", known.join(", ")))
            .got(printable(name))
            .hint("check the spelling"));
    };
    let (is_right, expected) = match (kind, value) {
        (Kind::Switch, value) => (matches!(value, BackendOption::Bool(_)), "a bool".to_string()),
        (Kind::UpTo(most), BackendOption::Int(n)) => (0 <= *n && n <= most, format!("0 to {most}")),
        (Kind::UpTo(most), _) => (false, format!("an int from 0 to {most}")),
        (Kind::Text, value) => (matches!(value, BackendOption::String(_)), "a str".to_string()),
    };
    match is_right {
        true => Ok(()),
        false => Err(Error::input("an option of the backend has a value that it does not take")
            .argument("backend_options")
            .expected(format!("{expected} for {name}"))
            .got(match value {
                BackendOption::Bool(v) => v.to_string(),
                BackendOption::Int(v) => v.to_string(),
                BackendOption::String(v) => format!("'{}'", printable(v)),
            })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, value: BackendOption) -> Result<()> {
        check_options("B", &[(name.to_string(), value)])
    }

    #[test]
    fn options_of_executorch_are_accepted() {
        checked("workspace_sharing_mode", BackendOption::Int(2)).unwrap();
        checked("weight_cache_enabled", BackendOption::Bool(true)).unwrap();
        checked("packed_cache_path", BackendOption::String("x".into())).unwrap();
        checked("save_weight_cache_on_disk", BackendOption::Bool(false)).unwrap();
    }

    #[test]
    fn other_names_kinds_and_numbers_are_refused() {
        for (name, value, text) in [
            ("workspace", BackendOption::Int(0), "got workspace"),
            ("workspace_sharing_mode", BackendOption::Int(3), "expected 0 to 2"),
            ("workspace_sharing_mode", BackendOption::Int(-1), "got -1"),
            ("workspace_sharing_mode", BackendOption::Bool(true), "an int from 0 to 2"),
            ("weight_cache_enabled", BackendOption::Int(1), "expected a bool"),
            ("packed_cache_path", BackendOption::Bool(false), "expected a str"),
        ] {
            let e = checked(name, value).unwrap_err().to_string();
            assert!(e.contains(text) && e.contains("backend B"), "{e}");
        }
    }
}
