//! The name that programs look the shared library up by, with the major version of the header.

fn main() {
    println!("cargo::rerun-if-changed=include/pteron.h");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let header = std::fs::read_to_string("include/pteron.h").expect("include/pteron.h cannot be read");
    let major = header
        .lines()
        .find_map(|line| line.strip_prefix("#define PTERON_API_MAJOR "))
        .expect("include/pteron.h has no PTERON_API_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpteron.so.{}", major.trim());
    // Threads of the pool may run, so dlclose leaves the library where it is.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
