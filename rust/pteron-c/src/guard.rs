//! Around every exported function: nothing unwinds out of it, and its error stays for the thread.

use crate::abi::OK;
use crate::failure::{Failure, Outcome};
use crate::last_error;
use pteron_core::Error;
use pteron_core::error::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The code of what `work` does; the error is kept.
pub(crate) fn call(work: impl FnOnce() -> Outcome<()>) -> i32 {
    // What a panic leaves half done is in a session, which refuses further use.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => OK,
        Ok(Err(failure)) => keep(failure),
        Err(panic) => {
            let text = panic_text(&*panic);
            // What was thrown may panic once more as it goes.
            std::mem::forget(panic);
            keep(Error::internal("a panic in the native code").got(text).into())
        }
    }
}

fn keep(failure: Failure) -> i32 {
    let code = failure.code;
    // Without memory for a text there is still the code.
    let kept = catch_unwind(AssertUnwindSafe(|| last_error::keep(failure)));
    if let Err(panic) = kept {
        std::mem::forget(panic);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_an_error() {
        let code = call(|| panic!("such a thing"));
        assert_eq!(Some(code), codes::CODES.iter().find(|c| c.constant == "INTERNAL").map(|c| c.number));
        #[allow(unsafe_code, reason = "reads what C would read")]
        // SAFETY: the text stays until the next error of this thread.
        let text = unsafe { CStr::from_ptr(last_error::pteron_error_text()) };
        assert!(text.to_str().unwrap().contains("such a thing"), "{text:?}");
        assert_eq!(last_error::pteron_error_code(), code);
    }
}
