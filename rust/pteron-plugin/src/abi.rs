//! The declarations of `pteron_backend.h`, field by field. Within a major version structs only grow at the end;
//! `struct_size` tells how much of a table its maker knew.

use std::ffi::{c_char, c_void};

/// Name of the Python capsule that holds a `*const PteronBackend`.
pub const CAPSULE: &std::ffi::CStr = c"pteron.backend.v1";
/// Major version of this interface.
pub const ABI_MAJOR: u32 = 1;
/// What functions return when all is well.
pub const OK: i32 = 0;
/// What functions return when something failed; the text is in the error.
pub const FAILED: i32 = 1;

/// Bytes that somebody else owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronBytes {
    /// First byte; may be null when `len` is zero.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

/// Where a plugin leaves the text of an error; the host copies it.
#[repr(C)]
pub struct PteronError {
    /// The host's.
    pub host: *mut c_void,
    /// Sets the text (UTF-8), its debug handle, or -1.
    pub set: Option<unsafe extern "C" fn(host: *mut c_void, text: PteronBytes, debug_handle: i64)>,
}

/// A key and value of the exporter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronCompileSpec {
    /// UTF-8.
    pub key: PteronBytes,
    /// Any bytes.
    pub value: PteronBytes,
}

/// A load-time option: `kind` 0 is a bool in `number`, 1 an int in `number`, 2 a string in `text`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronOption {
    /// UTF-8.
    pub key: PteronBytes,
    /// See above.
    pub kind: i32,
    /// See above.
    pub number: i64,
    /// See above.
    pub text: PteronBytes,
}

/// What a backend is told when it makes a delegate. Valid during the call, but for `host`, `named_data` and what it
/// gives, which stay as long as the delegate.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronInit {
    /// Size of this struct.
    pub struct_size: u32,
    /// Name of the method, UTF-8.
    pub method: PteronBytes,
    /// What the exporter's `preprocess` produced. Untrusted.
    pub processed: PteronBytes,
    /// Compile specs in order.
    pub specs: *const PteronCompileSpec,
    /// How many.
    pub spec_count: usize,
    /// Options in order.
    pub options: *const PteronOption,
    /// How many.
    pub option_count: usize,
    /// The host's.
    pub host: *mut c_void,
    /// Named data of the program: `OK` and the bytes, or `FAILED` where there is none of that name.
    pub named_data:
        Option<unsafe extern "C" fn(host: *mut c_void, key: PteronBytes, out: *mut PteronBytes) -> i32>,
    /// A `host` for `named_data` that stays, with the bytes that it gives, until `release_data`, whatever becomes of
    /// the delegate. `host` is the one above, while the delegate lives. Not set by hosts of the first version.
    pub keep_data: Option<unsafe extern "C" fn(host: *mut c_void) -> *mut c_void>,
    /// Ends what `keep_data` gave, once, from any thread.
    pub release_data: Option<unsafe extern "C" fn(kept: *mut c_void)>,
    /// Threads that a call may use at most, the calling one included; 0 in hosts that do not say.
    pub num_threads: usize,
}

/// A tensor. `dtype` is the file format's number of the element type (float32 is 6).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronTensor {
    /// First element.
    pub data: *mut c_void,
    /// Element type.
    pub dtype: i32,
    /// Number of dimensions.
    pub ndim: i32,
    /// Extents, `ndim` of them.
    pub shape: *const i64,
    /// Strides in elements, `ndim` of them.
    pub strides: *const i64,
    /// Bytes from `data` on that are the tensor's.
    pub nbytes: usize,
}

/// No value.
pub const KIND_NONE: i32 = 0;
/// A tensor to read.
pub const KIND_TENSOR: i32 = 1;
/// An integer.
pub const KIND_INT: i32 = 2;
/// A float.
pub const KIND_DOUBLE: i32 = 3;
/// A bool, in `number`.
pub const KIND_BOOL: i32 = 4;
/// A string, in `text`.
pub const KIND_STRING: i32 = 5;

/// One input of a call.
#[repr(C)]
pub struct PteronArg {
    /// One of the `KIND_` constants; what follows is set according to it.
    pub kind: i32,
    /// The tensor.
    pub tensor: PteronTensor,
    /// The integer or bool.
    pub number: i64,
    /// The float.
    pub real: f64,
    /// The string.
    pub text: PteronBytes,
}

/// One output of a call: a tensor to write.
#[repr(C)]
pub struct PteronOutput {
    /// As it is now; changed by `resize`.
    pub tensor: PteronTensor,
    /// Largest extents that it may be given, `tensor.ndim` of them.
    pub bound: *const i64,
    /// Bytes at `tensor.data` that may be written.
    pub capacity: usize,
    /// The host's.
    pub host: *mut c_void,
    /// Gives the output its extents for this call, within what the program states.
    pub resize:
        Option<unsafe extern "C" fn(output: *mut PteronOutput, shape: *const i64, ndim: usize) -> i32>,
}

/// What a delegate may ask while it executes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronExecute {
    /// Size of this struct.
    pub struct_size: u32,
    /// Index of the instruction.
    pub instruction: u64,
    /// Name of the method, UTF-8.
    pub method: PteronBytes,
    /// The host's.
    pub host: *mut c_void,
    /// Not zero when the delegate should stop early. May be asked from any thread.
    pub is_cancelled: Option<unsafe extern "C" fn(host: *mut c_void) -> i32>,
    /// Takes an event; null in calls that nobody traces. To be called from the thread of the call.
    pub event: Option<unsafe extern "C" fn(host: *mut c_void, event: *const PteronEvent)>,
}

/// Something that took time inside a delegate.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PteronEvent {
    /// Size of this struct.
    pub struct_size: u32,
    /// The part of the delegate that it belongs to, UTF-8; `data` null where `id` says it.
    pub name: PteronBytes,
    /// The part of the delegate that it belongs to, where `name` is null.
    pub id: i64,
    /// When it began, in nanoseconds on a clock of the plugin's choice.
    pub start_ns: u64,
    /// When it ended, on the same clock.
    pub end_ns: u64,
    /// Whatever the plugin adds.
    pub metadata: PteronBytes,
}

/// Takes a copy of a buffer: `OK`, or `FAILED` where `tensor` is none that can be copied.
pub type GiveBuffer =
    unsafe extern "C" fn(host: *mut c_void, name: PteronBytes, tensor: *const PteronTensor) -> i32;

/// A backend. Its functions may be called from any thread, several at once; those of one delegate one at a time.
#[repr(C)]
pub struct PteronBackend {
    /// [`ABI_MAJOR`].
    pub abi_major: u32,
    /// Size of this struct.
    pub struct_size: u32,
    /// The id that programs name, UTF-8, null-terminated.
    pub name: *const c_char,
    /// The plugin's.
    pub plugin: *mut c_void,
    /// `OK`, or `FAILED` with the reason why it cannot be used here. May be null: always usable.
    pub is_available: Option<unsafe extern "C" fn(plugin: *mut c_void, error: *mut PteronError) -> i32>,
    /// Makes a delegate and says how many of a call's last arguments are outputs.
    pub init: Option<
        unsafe extern "C" fn(
            plugin: *mut c_void,
            init: *const PteronInit,
            delegate: *mut *mut c_void,
            num_outputs: *mut usize,
            error: *mut PteronError,
        ) -> i32,
    >,
    /// Computes outputs from inputs.
    pub execute: Option<
        unsafe extern "C" fn(
            delegate: *mut c_void,
            execute: *const PteronExecute,
            inputs: *const PteronArg,
            input_count: usize,
            outputs: *mut PteronOutput,
            output_count: usize,
            error: *mut PteronError,
        ) -> i32,
    >,
    /// Ends a delegate. May be null.
    pub destroy: Option<unsafe extern "C" fn(delegate: *mut c_void)>,
    /// Not zero where the delegate gives the buffers that it owns. May be null: it does if `get_state` is set.
    pub has_state: Option<unsafe extern "C" fn(delegate: *mut c_void) -> i32>,
    /// Calls `give` for each mutable buffer: its name, UTF-8, and its contents, row-major. Null where delegates
    /// of this backend give none; then the two below are not called.
    pub get_state: Option<
        unsafe extern "C" fn(
            delegate: *mut c_void,
            give: GiveBuffer,
            host: *mut c_void,
            error: *mut PteronError,
        ) -> i32,
    >,
    /// Sets the buffers named, each one that `get_state` gives, of its dtype and shape, row-major.
    pub set_state: Option<
        unsafe extern "C" fn(
            delegate: *mut c_void,
            names: *const PteronBytes,
            tensors: *const PteronTensor,
            count: usize,
            error: *mut PteronError,
        ) -> i32,
    >,
    /// Puts all buffers back to their initial contents.
    pub reset_state: Option<unsafe extern "C" fn(delegate: *mut c_void, error: *mut PteronError) -> i32>,
}

impl PteronBackend {
    /// Size of the table of the first version, which every plugin has at least.
    pub const FIRST_SIZE: usize = std::mem::offset_of!(PteronBackend, has_state);

    /// A table in which nothing is set.
    pub(crate) const EMPTY: PteronBackend = PteronBackend {
        abi_major: ABI_MAJOR,
        struct_size: 0,
        name: std::ptr::null(),
        plugin: std::ptr::null_mut(),
        is_available: None,
        init: None,
        execute: None,
        destroy: None,
        has_state: None,
        get_state: None,
        set_state: None,
        reset_state: None,
    };
}

/// No bytes.
const NO_BYTES: PteronBytes = PteronBytes { data: std::ptr::null(), len: 0 };

impl PteronInit {
    /// Size of the struct of the first version, which every host gives at least.
    pub const FIRST_SIZE: usize = std::mem::offset_of!(PteronInit, keep_data);

    /// What nothing is said in.
    pub(crate) const UNSAID: PteronInit = PteronInit {
        struct_size: 0,
        method: NO_BYTES,
        processed: NO_BYTES,
        specs: std::ptr::null(),
        spec_count: 0,
        options: std::ptr::null(),
        option_count: 0,
        host: std::ptr::null_mut(),
        named_data: None,
        keep_data: None,
        release_data: None,
        num_threads: 0,
    };
}

impl PteronExecute {
    /// Size of the struct of the first version, which every host gives at least.
    pub const FIRST_SIZE: usize = std::mem::offset_of!(PteronExecute, event);

    /// What nothing is said in.
    pub(crate) const UNSAID: PteronExecute = PteronExecute {
        struct_size: 0,
        instruction: 0,
        method: NO_BYTES,
        host: std::ptr::null_mut(),
        is_cancelled: None,
        event: None,
    };
}

/// Name of the Python capsule that holds a `*const PteronKernel`.
pub const KERNEL_CAPSULE: &std::ffi::CStr = c"pteron.kernel.v1";
/// Integers, in `items`.
pub const KIND_INTS: i32 = 6;
/// Floats, in `items`.
pub const KIND_DOUBLES: i32 = 7;
/// Bools, a byte each, in `items`.
pub const KIND_BOOLS: i32 = 8;
/// Tensors, in `items`, as arguments of the kinds tensor and none.
pub const KIND_TENSORS: i32 = 9;

/// One input of a kernel.
#[repr(C)]
pub struct PteronValue {
    /// A single one; of a list, the kind alone.
    pub arg: PteronArg,
    /// The members of a list.
    pub items: *const c_void,
    /// How many.
    pub item_count: usize,
}

/// What a kernel is told of a call.
#[repr(C)]
pub struct PteronCall {
    /// Size of this struct.
    pub struct_size: u32,
}

/// A kernel of a custom operator. Its function may be called from any thread, several at once.
#[repr(C)]
pub struct PteronKernel {
    /// [`ABI_MAJOR`].
    pub abi_major: u32,
    /// Size of this struct.
    pub struct_size: u32,
    /// The operator, UTF-8, null-terminated: `my_ns::my_op`.
    pub name: *const c_char,
    /// The plugin's.
    pub plugin: *mut c_void,
    /// Computes outputs from inputs.
    pub call: Option<
        unsafe extern "C" fn(
            plugin: *mut c_void,
            call: *const PteronCall,
            inputs: *const PteronValue,
            input_count: usize,
            outputs: *mut PteronOutput,
            output_count: usize,
            error: *mut PteronError,
        ) -> i32,
    >,
}
