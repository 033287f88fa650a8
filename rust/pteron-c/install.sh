#!/bin/sh
# install.sh PROFILE PREFIX: builds the shared and the static library and puts them, the headers and pteron.pc under PREFIX.
# With DESTDIR, under that folder, for packages. PROFILE is a profile of Cargo.toml: release, min-size or dev.
set -eu
cd "$(dirname "$0")/../.."
profile=$1
prefix=$2

# Names, link flags and what a static library needs (pteron.pc.in) are those of ELF systems with glibc or musl.
[ "$(uname -s)" = Linux ] || {
    echo "make c-library knows Linux alone, and this is $(uname -s); build the library there with cargo rustc -p pteron-c" \
        "--release --crate-type cdylib,staticlib and pack it as the system wants" >&2
    exit 1
}

header=rust/pteron-c/include/pteron.h
major=$(sed -n 's/^#define PTERON_API_MAJOR //p' $header)
minor=$(sed -n 's/^#define PTERON_API_MINOR //p' $header)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

if [ "$profile" = dev ]; then
    # For tests: the library of the workspace's tests. Asked for alone it would have other features, and be compiled again.
    cargo test --no-run --quiet --workspace --exclude pteron-python --test header
    built=debug/deps
else
    # Without the plain library beside them, which would rule optimisation at link time out.
    cargo rustc --quiet --package pteron-c --lib --profile "$profile" --crate-type cdylib,staticlib
    built=$profile
fi
built=${CARGO_TARGET_DIR:-target}/$built
to=${DESTDIR:-}$prefix
mkdir -p "$to/lib/pkgconfig" "$to/include"
install -m 644 $header rust/pteron-plugin/include/pteron_backend.h "$to/include"

shared=libpteron.so.$major.$minor
if [ "$profile" = dev ]; then
    # For tests: large files with their debug information, not copied.
    ln -f "$built/libpteron.so" "$to/lib/$shared"
    ln -f "$built/libpteron.a" "$to/lib/libpteron.a"
else
    install -m 755 "$built/libpteron.so" "$to/lib/$shared"
    install -m 644 "$built/libpteron.a" "$to/lib/libpteron.a"
    strip --strip-unneeded "$to/lib/$shared"
    strip --strip-debug "$to/lib/libpteron.a"
fi
ln -sf "$shared" "$to/lib/libpteron.so.$major"
ln -sf "libpteron.so.$major" "$to/lib/libpteron.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" \
    rust/pteron-c/pteron.pc.in > "$to/lib/pkgconfig/pteron.pc"
