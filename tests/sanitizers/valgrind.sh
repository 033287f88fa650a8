#!/usr/bin/env bash
# valgrind (memcheck) over tests of the runtime, and over a program that Python runs with portable kernels: valgrind
# knows no AVX-512. `valgrind.sh rust` or `valgrind.sh python` does one of them. Needs Debian's valgrind.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
check=(valgrind -q --error-exitcode=99 --track-origins=yes --num-callers=20 --suppressions=tests/sanitizers/valgrind.supp)

if [ "$what" != python ]; then
    cargo test --profile checked --quiet --no-run -p pteron-runtime --test runtime
    binary=$(cargo test --profile checked --no-run -p pteron-runtime --test runtime 2>&1 | sed -n 's/.*(\(target[^)]*\)).*/\1/p')
    PROPTEST_CASES=5 "${check[@]}" "$binary" --test-threads=1 --skip cancel --skip deadline --skip endless
fi

if [ "$what" != rust ]; then
    PYTHONMALLOC=malloc "${check[@]}" .venv/bin/python tests/sanitizers/smoke.py
fi
