//! The last error of a thread, as C reads it. Unsafe island (exported functions).

use crate::abi::OK;
use crate::codes;
use crate::failure::Failure;
use crate::text::c_string;
use crate::wording::in_c;
use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// An error in texts that C can read.
struct Kept {
    code: i32,
    text: CString,
    fields: [Option<CString>; 9],
}

thread_local! {
    static LAST: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// Makes `failure` the last error of this thread.
pub(crate) fn keep(failure: Failure) {
    let detail = failure.error.detail();
    let text = |t: &str| c_string(&in_c(t)).unwrap_or_default();
    let field = |t: &Option<String>| t.as_deref().map(text);
    let hint = detail.hint.clone().or_else(|| match failure.code {
        codes::MISUSE => Some("pteron.h says how the function is called".to_string()),
        _ => Some(detail.kind.remedy().to_string()),
    });
    let kept = Kept {
        code: failure.code,
        text: text(&match &detail.hint {
            Some(_) => failure.error.to_string(),
            None => format!("{} (hint: {})", failure.error, hint.as_deref().unwrap_or_default()),
        }),
        fields: [
            Some(text(&detail.message)),
            field(&detail.method),
            field(&detail.operator),
            field(&detail.backend),
            field(&detail.argument),
            field(&detail.expected),
            field(&detail.got),
            field(&detail.source_line),
            field(&hint),
        ],
    };
    // A thread that ends has no place for it, and nobody to ask.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = Some(kept);
        }
    });
}

fn look<T>(otherwise: T, at: impl FnOnce(&Kept) -> T) -> T {
    LAST.try_with(|last| last.try_borrow().ok().and_then(|last| last.as_ref().map(at)))
        .ok()
        .flatten()
        .unwrap_or(otherwise)
}

/// The last error of this thread in one line; "" without one.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_error_text() -> *const c_char {
    look(c"".as_ptr(), |kept| kept.text.as_ptr())
}

/// Its code.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_error_code() -> i32 {
    look(OK, |kept| kept.code)
}

/// One part of it, or null.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_error_field(field: i32) -> *const c_char {
    let Ok(index) = usize::try_from(field) else { return std::ptr::null() };
    look(std::ptr::null(), |kept| match kept.fields.get(index) {
        Some(Some(text)) => text.as_ptr(),
        _ => std::ptr::null(),
    })
}

/// Name of a code, or null.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_error_name(code: i32) -> *const c_char {
    codes::CODES.iter().find(|c| c.number == code).map_or(std::ptr::null(), |c| c.name.as_ptr())
}
