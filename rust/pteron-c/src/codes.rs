//! The numbers of errors: one for each kind, and one for calls that break the rules of the header.

use pteron_core::ErrorKind;
use std::ffi::CStr;

/// A call that breaks the rules of the header.
pub const MISUSE: i32 = 1;

/// A code of the header.
pub struct Code {
    /// The kind; `None` for misuse.
    pub kind: Option<ErrorKind>,
    /// Its number.
    pub number: i32,
    /// What follows `PTERON_ERROR_`.
    pub constant: &'static str,
    /// Name of the Python exception.
    pub name: &'static CStr,
}

const fn code(kind: ErrorKind, number: i32, constant: &'static str, name: &'static CStr) -> Code {
    Code { kind: Some(kind), number, constant, name }
}

/// Every code.
pub const CODES: [Code; 17] = [
    Code { kind: None, number: MISUSE, constant: "MISUSE", name: c"MisuseError" },
    code(ErrorKind::Program, 2, "PROGRAM", c"ProgramError"),
    code(ErrorKind::MissingOperator, 3, "MISSING_OPERATOR", c"MissingOperatorError"),
    code(ErrorKind::MissingBackend, 4, "MISSING_BACKEND", c"MissingBackendError"),
    code(ErrorKind::MethodNotFound, 5, "METHOD_NOT_FOUND", c"MethodNotFoundError"),
    code(ErrorKind::Input, 6, "INPUT", c"InputError"),
    code(ErrorKind::InputType, 7, "INPUT_TYPE", c"InputTypeError"),
    code(ErrorKind::Kernel, 8, "KERNEL", c"KernelError"),
    code(ErrorKind::Delegate, 9, "DELEGATE", c"DelegateError"),
    code(ErrorKind::ExternalData, 10, "EXTERNAL_DATA", c"ExternalDataError"),
    code(ErrorKind::LimitExceeded, 11, "LIMIT_EXCEEDED", c"LimitExceeded"),
    code(ErrorKind::Cancelled, 12, "CANCELLED", c"Cancelled"),
    code(ErrorKind::DeadlineExceeded, 13, "DEADLINE_EXCEEDED", c"DeadlineExceeded"),
    code(ErrorKind::MethodBusy, 14, "METHOD_BUSY", c"MethodBusy"),
    code(ErrorKind::OutputsInUse, 15, "OUTPUTS_IN_USE", c"OutputsInUseError"),
    code(ErrorKind::NotFound, 16, "NOT_FOUND", c"FileNotFoundError"),
    code(ErrorKind::Internal, INTERNAL, "INTERNAL", c"InternalError"),
];
const INTERNAL: i32 = 17;

/// The number of a kind.
pub fn number(kind: ErrorKind) -> i32 {
    CODES.iter().find(|c| c.kind == Some(kind)).map_or(INTERNAL, |c| c.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_number_and_the_name_of_its_exception() {
        for kind in ErrorKind::ALL {
            let code = CODES.iter().find(|c| c.kind == Some(*kind)).unwrap();
            assert_eq!(code.name.to_str().unwrap(), kind.exception());
            assert_eq!(number(*kind), code.number);
        }
        let numbers: Vec<i32> = CODES.iter().map(|c| c.number).collect();
        assert_eq!(numbers, (1..=17).collect::<Vec<i32>>());
    }
}
