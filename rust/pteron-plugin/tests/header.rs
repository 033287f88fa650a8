//! The header and `abi` declare the same structs: a C compiler agrees on every size and offset.

use pteron_plugin::abi::{
    ABI_MAJOR, CAPSULE, FAILED, KERNEL_CAPSULE, KIND_BOOL, KIND_BOOLS, KIND_DOUBLE, KIND_DOUBLES, KIND_INT,
    KIND_INTS, KIND_NONE, KIND_STRING, KIND_TENSOR, KIND_TENSORS, OK, PteronArg, PteronBackend, PteronBytes,
    PteronCall, PteronCompileSpec, PteronError, PteronEvent, PteronExecute, PteronInit, PteronKernel,
    PteronOption, PteronOutput, PteronTensor, PteronValue,
};
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

macro_rules! same {
    ($to:expr, $rust:ident, $c:literal, $($field:ident),+) => {
        writeln!($to, "_Static_assert(sizeof(struct {}) == {}, \"size\");", $c, size_of::<$rust>()).unwrap();
        $(writeln!(
            $to,
            "_Static_assert(offsetof(struct {}, {}) == {}, \"{}\");",
            $c, stringify!($field), offset_of!($rust, $field), stringify!($field)
        ).unwrap();)+
    };
}

fn assertions() -> String {
    let mut c = String::from("#include \"pteron_backend.h\"\n");
    same!(c, PteronBytes, "pteron_bytes", data, len);
    same!(c, PteronError, "pteron_error", host, set);
    same!(c, PteronCompileSpec, "pteron_compile_spec", key, value);
    same!(c, PteronOption, "pteron_option", key, kind, number, text);
    same!(
        c,
        PteronInit,
        "pteron_init",
        struct_size,
        method,
        processed,
        specs,
        spec_count,
        options,
        option_count,
        host,
        named_data,
        keep_data,
        release_data,
        num_threads
    );
    same!(c, PteronTensor, "pteron_tensor", data, dtype, ndim, shape, strides, nbytes);
    same!(c, PteronArg, "pteron_arg", kind, tensor, number, real, text);
    same!(c, PteronOutput, "pteron_output", tensor, bound, capacity, host, resize);
    same!(c, PteronExecute, "pteron_execute", struct_size, instruction, method, host, is_cancelled, event);
    same!(c, PteronEvent, "pteron_event", struct_size, name, id, start_ns, end_ns, metadata);
    same!(
        c,
        PteronBackend,
        "pteron_backend",
        abi_major,
        struct_size,
        name,
        plugin,
        is_available,
        init,
        execute,
        destroy,
        has_state,
        get_state,
        set_state,
        reset_state
    );
    same!(c, PteronValue, "pteron_value", arg, items, item_count);
    same!(c, PteronCall, "pteron_call", struct_size);
    same!(c, PteronKernel, "pteron_kernel", abi_major, struct_size, name, plugin, call);
    let numbers = [
        ("PTERON_ABI_MAJOR", i64::from(ABI_MAJOR)),
        ("PTERON_OK", i64::from(OK)),
        ("PTERON_FAILED", i64::from(FAILED)),
        ("PTERON_KIND_NONE", i64::from(KIND_NONE)),
        ("PTERON_KIND_TENSOR", i64::from(KIND_TENSOR)),
        ("PTERON_KIND_INT", i64::from(KIND_INT)),
        ("PTERON_KIND_DOUBLE", i64::from(KIND_DOUBLE)),
        ("PTERON_KIND_BOOL", i64::from(KIND_BOOL)),
        ("PTERON_KIND_STRING", i64::from(KIND_STRING)),
        ("PTERON_KIND_INTS", i64::from(KIND_INTS)),
        ("PTERON_KIND_DOUBLES", i64::from(KIND_DOUBLES)),
        ("PTERON_KIND_BOOLS", i64::from(KIND_BOOLS)),
        ("PTERON_KIND_TENSORS", i64::from(KIND_TENSORS)),
        ("sizeof(PTERON_KERNEL_CAPSULE)", KERNEL_CAPSULE.to_bytes_with_nul().len() as i64),
        ("sizeof(PTERON_BACKEND_CAPSULE)", CAPSULE.to_bytes_with_nul().len() as i64),
    ];
    for (name, value) in numbers {
        writeln!(c, "_Static_assert({name} == {value}, \"{}\");", name.replace('"', "")).unwrap();
    }
    c
}

/// Whether a C compiler takes `source`, and what it says.
fn compiles(source: &str, name: &str) -> (bool, String) {
    let folder = std::env::temp_dir().join(format!("pteron-header-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("header.c");
    std::fs::write(&file, source).unwrap();
    let done = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(&file)
        .output()
        .expect("a C compiler, which building the example package needs as well");
    std::fs::remove_dir_all(&folder).unwrap();
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn the_header_declares_what_the_crate_declares() {
    let source = assertions();
    assert!(source.lines().count() > 60);
    let (is_good, text) = compiles(&source, "same");
    assert!(is_good, "{text}");
    let wrong = source.replacen("== 16", "== 24", 1);
    assert!(!compiles(&wrong, "wrong").0, "a wrong size is noticed");
}
