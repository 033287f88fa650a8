//! The declarations of `pteron.h`, field by field; those that it takes from `pteron_backend.h` are in
//! `pteron_plugin::abi`. Structs only grow at their ends.

pub use pteron_plugin::abi::{
    KIND_BOOL, KIND_DOUBLE, KIND_INT, KIND_NONE, KIND_STRING, KIND_TENSOR, OK, PteronArg, PteronBackend,
    PteronBytes, PteronKernel, PteronOption, PteronTensor,
};
use std::ffi::{c_char, c_void};

/// Major version of this interface.
pub const API_MAJOR: u32 = 1;
/// Minor version of this interface.
pub const API_MINOR: u32 = 0;

/// A handle as C sees it: a pointer that points nowhere.
#[repr(C)]
pub struct Opaque {
    _nothing: [u8; 0],
}

/// `struct pteron_runtime_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronRuntimeOptions {
    /// Size of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Threads of its pool; 0: the pool of the process.
    pub num_threads: usize,
}

/// `struct pteron_limits`; 0 is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronLimits {
    /// Size of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of a session.
    pub arena_bytes: u64,
    /// Of one call.
    pub instructions: u64,
    /// Of one call.
    pub time_ns: u64,
    /// Programs inside each other.
    pub nesting: u64,
    /// Of a method.
    pub values: u64,
    /// Of a tensor.
    pub rank: u64,
}

/// `struct pteron_source`: a path, or bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronSource {
    /// Size of this struct.
    pub struct_size: u32,
    /// Not 0: the file is read, not mapped.
    pub is_read: u32,
    /// The path, or null.
    pub path: *const c_char,
    /// The bytes, or null.
    pub data: *const c_void,
    /// How many.
    pub size: usize,
    /// Set where the bytes are lent.
    pub release: Option<unsafe extern "C" fn(host: *mut c_void)>,
    /// What `release` is given.
    pub host: *mut c_void,
}

/// `struct pteron_load_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronLoadOptions {
    /// Size of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Limits, or null.
    pub limits: *const PteronLimits,
    /// Data files.
    pub data_files: *const *const PteronSource,
    /// How many.
    pub data_file_count: usize,
}

/// The names that a program has: `pteron_program_name`.
pub const LIST_METHODS: i32 = 0;
/// See [`LIST_METHODS`].
pub const LIST_BACKENDS: i32 = 1;
/// See [`LIST_METHODS`].
pub const LIST_OPERATORS: i32 = 2;
/// See [`LIST_METHODS`].
pub const LIST_NAMED_DATA: i32 = 3;

/// The specs that a method has: `pteron_program_spec`.
pub const INPUTS: i32 = 0;
/// See [`INPUTS`].
pub const OUTPUTS: i32 = 1;
/// See [`INPUTS`].
pub const BUFFERS: i32 = 2;

/// `struct pteron_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronSpec {
    /// Size of this struct.
    pub struct_size: u32,
    /// One of the `KIND_` constants.
    pub kind: i32,
    /// Name.
    pub name: *const c_char,
    /// As text.
    pub text: *const c_char,
    /// Element type of a tensor.
    pub dtype: i32,
    /// Rank of a tensor.
    pub ndim: i32,
    /// Largest extents.
    pub shape: *const i64,
    /// Smallest extents.
    pub least: *const i64,
    /// An output whose value says nothing.
    pub is_computed: i32,
    /// An int within a range.
    pub has_range: i32,
    /// Smallest value of an int.
    pub number_min: i64,
    /// Largest value of an int.
    pub number_max: i64,
    /// Int or bool of the export.
    pub number: i64,
    /// Double of the export.
    pub real: f64,
    /// String of the export.
    pub string: *const c_char,
}

/// `struct pteron_backend_option`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronBackendOption {
    /// Name of the backend.
    pub backend: *const c_char,
    /// Its option.
    pub option: PteronOption,
}

/// `struct pteron_method_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronMethodOptions {
    /// Size of this struct.
    pub struct_size: u32,
    /// Is `seed` set?
    pub has_seed: i32,
    /// Where random operators start.
    pub seed: u64,
    /// Most threads; 0: all.
    pub num_threads: usize,
    /// Limits, or null.
    pub limits: *const PteronLimits,
    /// Options of backends.
    pub backend_options: *const PteronBackendOption,
    /// How many.
    pub backend_option_count: usize,
}

/// `struct pteron_execute_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronExecuteOptions {
    /// Size of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Memory for outputs.
    pub outputs: *const PteronTensor,
    /// How many.
    pub output_count: usize,
    /// Nanoseconds from now; 0: none.
    pub deadline_ns: u64,
    /// Most threads; 0: all.
    pub num_threads: usize,
}

/// `pteron_give_buffer` of `pteron_backend.h`.
pub type GiveBuffer =
    unsafe extern "C" fn(host: *mut c_void, name: PteronBytes, tensor: *const PteronTensor) -> i32;

/// Parts of an error: `pteron_error_field`.
pub const FIELDS: [(&str, i32); 9] = [
    ("MESSAGE", 0),
    ("METHOD", 1),
    ("OPERATOR", 2),
    ("BACKEND", 3),
    ("ARGUMENT", 4),
    ("EXPECTED", 5),
    ("GOT", 6),
    ("SOURCE_LINE", 7),
    ("HINT", 8),
];
