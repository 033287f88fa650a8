#!/usr/bin/env bash
# ThreadSanitizer over the Rust tests of the pool, of sessions, of cancelling and of lifetimes. Needs once:
#   rustup toolchain install nightly --component rust-src
# The standard library is built with the sanitizer too: without that its locks look like races.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=x86_64-unknown-linux-gnu
export RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/sanitize/thread
# A forked child that starts threads is what one of the tests is about; the sanitizer ends such by default.
export TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 suppressions=$PWD/tests/sanitizers/thread.supp"
test=(cargo +nightly test --quiet -Zbuild-std --target $target --config 'profile.dev.package.pteron-cpu.opt-level=1'
    --config 'profile.dev.package.pteron-kernels.opt-level=1')
"${test[@]}" -p pteron-cpu --lib -- pool::
"${test[@]}" -p pteron-runtime --lib -- cancel:: deadline:: builds:: memory:: fork_lock::
"${test[@]}" -p pteron-runtime --test runtime -- lifetimes:: sharing:: limits:: delegates:: memory::
