#!/usr/bin/env bash
# AddressSanitizer over the Rust tests, then over Python tests that need no torch. `address.sh rust` or `address.sh
# python` does one of them. Leaks are reported by the Rust tests only: an interpreter never frees everything.
# Sanitizers are unstable options of the stable compiler. Kernels are built for a short compile, not for speed.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
target=x86_64-unknown-linux-gnu
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/sanitize/address
quick=()
for crate in core kernels cpu; do quick+=(--config "profile.dev.package.pteron-$crate.opt-level=1"); done

if [ "$what" != python ]; then
    # Not `mutation`: its children run in less address space than the sanitizer's shadow takes.
    cargo test --quiet --target $target "${quick[@]}" -p pteron-core -p pteron-format -p pteron-kernels
    cargo test --quiet --target $target "${quick[@]}" -p pteron-runtime --lib --test runtime --test random_graphs
    cargo test --quiet --target $target "${quick[@]}" -p pteron-cpu --lib
fi

if [ "$what" != rust ]; then
    cargo build --quiet --target $target "${quick[@]}" -p pteron-python
    place=target/sanitize/python
    rm -rf $place && mkdir -p $place && cp -r python/pteron $place/
    cp $CARGO_TARGET_DIR/$target/debug/lib_native.so $place/pteron/_native.abi3.so
    # The runtime of rustc as a library that an interpreter can load first; what has to be in a program stays out.
    cp "$(rustc --print sysroot)/lib/rustlib/$target/lib/librustc-stable_rt.asan.a" $place/asan.a
    ar d $place/asan.a asan_preinit.cpp.o
    # Not called libasan.so: the runtime takes that name for a second one of its kind, and ends.
    g++ -shared -o $place/libaddress.so -Wl,--whole-archive $place/asan.a -Wl,--no-whole-archive -lpthread -ldl -lrt -lm
    LD_PRELOAD=$PWD/$place/libaddress.so PYTHONMALLOC=malloc PYTHONPATH=$PWD/$place \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PTERON_STRESS_SECONDS=10 \
        .venv/bin/python -m pytest -q -p no:cacheprovider tests/run/test_lifetimes.py tests/run/test_stress.py \
        tests/run/test_delegate_phases.py tests/run/test_python_delegates.py tests/run/test_lent_outputs.py \
        tests/run/test_outputs.py tests/run/test_inputs.py tests/run/test_tensor.py tests/run/test_state.py
fi
