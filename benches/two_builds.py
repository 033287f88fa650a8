"""Two builds of pteron, each in the Python of its own environment, in turns over rows of `make bench-field`.

    python benches/two_builds.py OLD_PYTHON NEW_PYTHON ROW [ROW ...] [--threads 2] [--pairs 10]

A process takes all rows, the median of each over its calls. Printed per row: the best process of
either build, and the median of the ratios of neighbouring processes. The files are those that
`field_speed.py --prepare` writes to `target/bench-field`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

FILES = Path(__file__).resolve().parents[1] / "target" / "bench-field"


def take(rows: list[str], threads: int, seconds: float) -> dict[str, float]:
    """Milliseconds of a call of each row in this process."""
    import numpy as np

    import pteron

    found = {}
    for row in rows:
        inputs = [np.load(path) for path in sorted((FILES / row).glob("input*.npy"))]
        method = pteron.load(FILES / row / "pteron.pte").load_method(num_threads=threads)
        for _ in range(3):
            method.execute(inputs)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 5:
            start = time.perf_counter()
            method.execute(inputs)
            times.append(time.perf_counter() - start)
        found[row] = statistics.median(times) * 1e3
    return found


def main() -> None:
    """Compare, or take the rows of one process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("rows", nargs="+", metavar="ROW")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(take(options.rows, options.threads, options.seconds)))
        return
    settings = ["--threads", str(options.threads), "--seconds", str(options.seconds), "--one"]
    found: dict[str, list[dict[str, float]]] = {options.old: [], options.new: []}
    if len(found) == 1:
        raise SystemExit("the two builds are one: give the Python of another environment")
    for pair in range(options.pairs):
        for python in list(found)[:: 1 if pair % 2 == 0 else -1]:
            command = [python, __file__, "-", "-", *options.rows, *settings]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            found[python].append(json.loads(done.stdout))
    for row in options.rows:
        old, new = ([each[row] for each in found[python]] for python in (options.old, options.new))
        ratios = [after / before for before, after in zip(old, new, strict=True)]
        best, middle = min(new) / min(old), statistics.median(ratios)
        print(
            f"{row:24} best {min(old):8.2f} {min(new):8.2f} ms {best:.2f}x | of neighbours {middle:.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
