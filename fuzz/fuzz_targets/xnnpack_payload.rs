//! See `pteron_fuzz::target`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pteron_fuzz::run("xnnpack_payload", data));
