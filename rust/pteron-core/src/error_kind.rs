//! The one table of the kinds of errors: a row gives the kind's meaning, its public exception class, and what a reader
//! can do about it. The constructors of [`Error`], the exceptions of `pteron.errors` and `docs/reference/errors.md` come
//! from it or are checked against it.

use crate::error::Error;

macro_rules! error_kinds {
    ($($(#[doc = $meaning:literal])* $kind:ident, $constructor:ident, $exception:literal, $remedy:literal;)*) => {
        /// What kind of thing went wrong; one kind is one public exception class.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $meaning])* $kind,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Name of the kind.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)* }
            }

            /// Name of the function of [`Error`] that makes an error of this kind.
            pub const fn constructor(self) -> &'static str {
                match self { $(Self::$kind => stringify!($constructor),)* }
            }

            /// When the error comes, a sentence or two.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$kind => concat!($($meaning),*).trim_ascii(),)* }
            }

            /// Name of the exception class in `pteron.errors`. (A file that is not there is the built-in class.)
            pub const fn exception(self) -> &'static str {
                match self { $(Self::$kind => $exception,)* }
            }

            /// What to do about an error that says nothing more precise itself.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)* }
            }
        }

        impl Error {
            $($(#[doc = $meaning])* #[cold] pub fn $constructor(message: impl Into<String>) -> Self {
                Self::new(ErrorKind::$kind, message)
            })*
        }
    };
}

error_kinds! {
    /// A program file is damaged or breaks a rule of the format.
    Program, program, "ProgramError",
        "the file is damaged or breaks a rule of the format: copy it again, or export the model again";
    /// A program needs operators that the runtime has no kernel for. The text names all of them.
    MissingOperator, missing_operator, "MissingOperatorError",
        "delegate these operators, or decompose them before export";
    /// A program needs a backend that is not registered, or not available on this machine.
    MissingBackend, missing_backend, "MissingBackendError",
        "pteron.register_backend makes a backend known; program.backends(method) lists those needed";
    /// The program has no method of that name.
    MethodNotFound, method_not_found, "MethodNotFoundError", "program.methods lists the methods";
    /// An input has a wrong count, shape, rank or value.
    Input, input, "InputError",
        "program.inputs(method) and program.outputs(method) tell what a method takes and gives";
    /// An input has a wrong dtype or Python type.
    InputType, input_type, "InputTypeError",
        "program.inputs(method) and program.outputs(method) tell what a method takes and gives";
    /// A kernel refused its arguments or failed.
    Kernel, kernel, "KernelError",
        "look at the inputs of this call: the operator cannot do what they ask for; program.listing() shows the instruction";
    /// A backend failed in init or execute. What it raised, if it is written in Python, is the `__cause__`.
    Delegate, delegate, "DelegateError",
        "the backend failed, not the runtime; __cause__ holds what a backend written in Python raised";
    /// A data file is missing, damaged, or does not fit the program.
    ExternalData, external_data, "ExternalDataError", "pass the data file that was written together with the program";
    /// A limit on memory, instructions or rank was reached.
    LimitExceeded, limit, "LimitExceeded", "raise the limit if the program is trusted: pteron.Limits, or budget";
    /// The run was cancelled. The method can be used again.
    Cancelled, cancelled, "Cancelled", "the method can be called again";
    /// The deadline passed before the run ended. The method can be used again.
    DeadlineExceeded, deadline_exceeded, "DeadlineExceeded", "the method can be called again; give it more time with deadline";
    /// The method is running already, on another thread or further up this one.
    MethodBusy, method_busy, "MethodBusy", "load one method per thread, or use program.run()";
    /// Outputs that an earlier call lent are still alive.
    OutputsInUse, outputs_in_use, "OutputsInUseError", "let go of the outputs of earlier calls, or copy them";
    /// A file that is not there.
    NotFound, not_found, "FileNotFoundError", "check the path";
    /// A bug in pteron. The text says how to report it.
    Internal, internal, "InternalError",
        "this is a bug in pteron: please report it with this text and the program";
}
