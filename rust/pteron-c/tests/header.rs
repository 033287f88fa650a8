//! The header and the crate declare the same: C and C++ compilers agree on every size, offset and number, and the functions
//! are those of the sources.

use pteron::abi::{
    API_MAJOR, API_MINOR, BUFFERS, FIELDS, INPUTS, LIST_BACKENDS, LIST_METHODS, LIST_NAMED_DATA,
    LIST_OPERATORS, OUTPUTS, PteronBackendOption, PteronExecuteOptions, PteronLimits, PteronLoadOptions,
    PteronMethodOptions, PteronRuntimeOptions, PteronSource, PteronSpec,
};
use pteron::codes::CODES;
use pteron_core::DType;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

const HEADER: &str = include_str!("../include/pteron.h");

macro_rules! same {
    ($to:expr, $rust:ident, $c:literal, $($field:ident),+) => {
        writeln!($to, "SAME(sizeof(struct {}) == {}, \"size\");", $c, size_of::<$rust>()).unwrap();
        $(writeln!(
            $to,
            "SAME(offsetof(struct {}, {}) == {}, \"{}\");",
            $c, stringify!($field), offset_of!($rust, $field), stringify!($field)
        ).unwrap();)+
    };
}

fn assertions() -> String {
    let mut c = String::from(
        "#include \"pteron.h\"\n#ifdef __cplusplus\n#define SAME static_assert\n#else\n#define SAME _Static_assert\n#endif\n",
    );
    same!(c, PteronRuntimeOptions, "pteron_runtime_options", struct_size, reserved, num_threads);
    same!(
        c,
        PteronLimits,
        "pteron_limits",
        struct_size,
        reserved,
        arena_bytes,
        instructions,
        time_ns,
        nesting,
        values,
        rank
    );
    same!(c, PteronSource, "pteron_source", struct_size, is_read, path, data, size, release, host);
    same!(
        c,
        PteronLoadOptions,
        "pteron_load_options",
        struct_size,
        reserved,
        limits,
        data_files,
        data_file_count
    );
    same!(
        c,
        PteronSpec,
        "pteron_spec",
        struct_size,
        kind,
        name,
        text,
        dtype,
        ndim,
        shape,
        least,
        is_computed,
        has_range,
        number_min,
        number_max,
        number,
        real,
        string
    );
    same!(c, PteronBackendOption, "pteron_backend_option", backend, option);
    same!(
        c,
        PteronMethodOptions,
        "pteron_method_options",
        struct_size,
        has_seed,
        seed,
        num_threads,
        limits,
        backend_options,
        backend_option_count
    );
    same!(
        c,
        PteronExecuteOptions,
        "pteron_execute_options",
        struct_size,
        reserved,
        outputs,
        output_count,
        deadline_ns,
        num_threads
    );
    let mut numbers: Vec<(String, i64)> = [
        ("API_MAJOR", i64::from(API_MAJOR)),
        ("API_MINOR", i64::from(API_MINOR)),
        ("LIST_METHODS", i64::from(LIST_METHODS)),
        ("LIST_BACKENDS", i64::from(LIST_BACKENDS)),
        ("LIST_OPERATORS", i64::from(LIST_OPERATORS)),
        ("LIST_NAMED_DATA", i64::from(LIST_NAMED_DATA)),
        ("INPUTS", i64::from(INPUTS)),
        ("OUTPUTS", i64::from(OUTPUTS)),
        ("BUFFERS", i64::from(BUFFERS)),
    ]
    .map(|(name, number)| (name.to_string(), number))
    .to_vec();
    numbers.extend(FIELDS.iter().map(|(name, number)| (format!("FIELD_{name}"), i64::from(*number))));
    numbers.extend(CODES.iter().map(|c| (format!("ERROR_{}", c.constant), i64::from(c.number))));
    numbers.extend(DType::ALL.iter().map(|d| (d.name().to_uppercase(), i64::from(d.code()))));
    for (name, number) in numbers {
        writeln!(c, "SAME(PTERON_{name} == {number}, \"{name}\");").unwrap();
    }
    c
}

/// Whether a compiler takes `source`, and what it says.
fn compiles(source: &str, name: &str, compiler: (&str, &str), flags: &[&str]) -> (bool, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("header-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("header.c");
    std::fs::write(&file, source).unwrap();
    let include = |of: &str| format!("{}/../{of}/include", env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(std::env::var_os(compiler.0).unwrap_or_else(|| compiler.1.into()))
        .args(flags)
        .args(["-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", "-fsyntax-only"])
        .args(["-I", &include("pteron-c"), "-I", &include("pteron-plugin")])
        .arg(&file)
        .output()
        .expect("a C and a C++ compiler");
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn the_header_declares_what_the_crate_declares() {
    let source = assertions();
    assert!(source.lines().count() > 110, "{}", source.lines().count());
    let (is_good, text) = compiles(&source, "c", ("CC", "cc"), &["-std=c11"]);
    assert!(is_good, "{text}");
    let (is_good, text) = compiles(&source, "cxx", ("CXX", "c++"), &["-std=c++11", "-x", "c++"]);
    assert!(is_good, "{text}");
    let wrong = source.replacen("== 16", "== 24", 1);
    assert_ne!(wrong, source);
    assert!(!compiles(&wrong, "wrong", ("CC", "cc"), &["-std=c11"]).0, "a wrong size is noticed");
}

/// Names of functions behind `before`, where a parenthesis follows.
fn names<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let name = |piece: &'a str| {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (name, rest) = piece.split_at(end);
        rest.starts_with('(').then_some(name)
    };
    text.split(before).skip(1).filter_map(name).filter(|name| name.starts_with("pteron_")).collect()
}

#[test]
fn every_function_is_declared_and_defined() {
    // Declarations begin at the start of a line and end in a semicolon; inline functions have a body.
    let mut declared = BTreeSet::new();
    for line in HEADER.lines().filter(|line| !line.starts_with([' ', '#', '/', '*', 's', 't'])) {
        declared.extend(names(line, " "));
        declared.extend(names(line, " *"));
    }
    // `static` and `struct` lines are excluded above; `size_t pteron_dtype_size` begins with an s.
    declared.extend(names(HEADER, "\nsize_t "));
    let mut defined = BTreeSet::new();
    let mut sources = String::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        sources.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    for text in sources.split("#[unsafe(no_mangle)]").skip(1) {
        defined.extend(names(text.lines().nth(1).unwrap(), "fn "));
    }
    assert!(defined.len() > 30, "{defined:?}");
    assert_eq!(declared, defined);
}
