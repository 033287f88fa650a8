"""Processor instructions of what has to be small, against limits: counts do not depend on what else runs.

    python benches/instruction_gate.py [--rows step call]

Counts with callgrind (Debian's `valgrind`), portable kernels, one thread. A row is run with few calls and
with many, each in a fresh process; the difference is what the calls alone take. Exits with 1 where a row is
above its limit: what was counted when it was set, in a build without link-time optimisation, and a tenth
more.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from results import Tables, add_json_option

ROOT = Path(__file__).resolve().parents[1]
STEPS = 200

#: Row: what it counts; what the instructions of a call are divided by; few calls and many; limit.
ROWS: dict[str, tuple[str, int, int, int, int]] = {
    "call": ("one-add call from NumPy", 1, 1000, 5000, 14_700),
    "bound": ("one-add call with a bound output", 1, 1000, 5000, 17_700),
    "step": ("elementwise step of 16 elements, plans off", STEPS, 50, 250, 1_000),
}


def chain() -> bytes:
    """`STEPS` sums of 16 elements, each with the input."""
    sys.path.insert(0, str(ROOT))
    from tests.support.programs import MethodBuilder, build

    m = MethodBuilder()
    x = value = m.input(m.tensor([16]), "x")
    for step in range(STEPS):
        result = m.tensor([16])
        if step == STEPS - 1:
            m.output(result)
        m.add(value, x, result)
        value = result
    return build(m)


def call_of(row: str) -> Callable[[], object]:
    """What a row calls."""
    import numpy as np

    import pteron

    if row in ("call", "bound"):
        sys.path.insert(0, str(ROOT))
        from tests.support.programs import add_method, build

        program = pteron.load(build(add_method((4,))))
        method = program.load_method(num_threads=1)
        x, out = np.ones(4, np.float32), np.empty(4, np.float32)
        return {
            "call": lambda: method(x, x),
            "bound": lambda: method.execute((x, x), outputs=(out,)),
        }[row]
    runtime = pteron.Runtime(num_threads=1, disabled_rules=["all"])
    chained = pteron.load(chain(), runtime=runtime).load_method()
    x = np.ones(16, np.float32)
    return lambda: chained(x)


def instructions(row: str, calls: int) -> int:
    """What callgrind counts for a process that makes so many calls."""
    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, __file__, "--worker", row, str(calls)]
        watched = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *worker]
        environment = {**os.environ, "PTERON_ISA": "portable", "PYTHONHASHSEED": "0"}
        done = subprocess.run(watched, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(done.stderr)
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        call = call_of(options.worker[0])
        for _ in range(int(options.worker[1])):
            call()
        return 0
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: apt-get install valgrind")
    failed = []
    tables = Tables()
    tables.begin(["what", "instructions", "limit"])
    print(f"{'what':48} {'instructions':>12} {'limit':>8}")
    for row in options.rows:
        what, divisor, few, many, limit = ROWS[row]
        found = (instructions(row, many) - instructions(row, few)) / (many - few) / divisor
        print(f"{what:48} {found:12.1f} {limit:8}", flush=True)
        tables.row(what, f"{found:,.0f}", f"{limit:,}")
        if found > limit:
            failed.append(row)
    tables.save(options)
    if failed:
        print(f"above their limits: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
