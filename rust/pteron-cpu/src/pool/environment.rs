//! How many threads the pool of the process has: the processors that it may use, and at most what its environment says.

use super::MAX_THREADS;
use pteron_core::error::printable;
use pteron_core::{Error, Result};

/// Threads that the pool of the process gets: [`available_processors`], at most [`threads_of_environment`].
pub fn default_threads() -> usize {
    // A number that cannot be read is refused where a runtime is made.
    let cap = threads_of_environment().ok().flatten().unwrap_or(MAX_THREADS);
    available_processors().min(cap)
}

/// Processors that this process may use, as its affinity mask and the quotas of its control groups say.
pub fn available_processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).min(MAX_THREADS)
}

/// `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`, which engines set for their workers; `None` where neither says.
///
/// Of a list, as OpenMP takes it (`4,2`), the first number counts. An `OMP_NUM_THREADS` that is no number is none of ours,
/// and says nothing.
///
/// Errors: `Input` when `PTERON_NUM_THREADS` is not a number of at least 1.
pub fn threads_of_environment() -> Result<Option<usize>> {
    let variable = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    threads_of(variable("PTERON_NUM_THREADS").as_deref(), variable("OMP_NUM_THREADS").as_deref())
}

fn threads_of(own: Option<&str>, openmp: Option<&str>) -> Result<Option<usize>> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // More digits than a number of threads has are a large number all the same.
        is_number.then(|| text.parse().unwrap_or(usize::MAX)).filter(|n| *n > 0)
    };
    if let Some(text) = own.map(str::trim).filter(|text| !text.is_empty()) {
        return number(text).map(Some).ok_or_else(|| {
            Error::input("PTERON_NUM_THREADS is no number of threads")
                .argument("PTERON_NUM_THREADS")
                .expected("an integer of at least 1")
                .got(printable(text))
                .hint("unset it to use all processors of the process")
        });
    }
    Ok(openmp.and_then(|text| number(text.split(',').next().unwrap_or("").trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_variable_goes_before_that_of_openmp() {
        for (own, openmp, threads) in [
            (None, None, None),
            (Some("3"), None, Some(3)),
            (Some(" 3 "), Some("5"), Some(3)),
            (Some(""), Some("5"), Some(5)),
            (None, Some("4,2"), Some(4)),
            (None, Some("0"), None),
            (None, Some("many"), None),
            (None, Some(""), None),
            (Some("99999999999999999999999"), None, Some(usize::MAX)),
        ] {
            assert_eq!(threads_of(own, openmp).unwrap(), threads, "{own:?} {openmp:?}");
        }
    }

    #[test]
    fn our_variable_has_to_be_a_number() {
        for wrong in ["0", "-1", "two", "1.5", "+3"] {
            let text = threads_of(Some(wrong), Some("4")).unwrap_err().to_string();
            assert!(text.contains("PTERON_NUM_THREADS") && text.contains(wrong), "{text}");
        }
    }
}
