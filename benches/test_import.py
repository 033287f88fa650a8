"""What `import pteron` adds to `import numpy`, each in fresh processes: median of 20 by -X importtime."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys


def import_milliseconds(statement: str, module: str) -> float:
    """Cumulative import time of ``module``, as the interpreter reports it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement], capture_output=True, text=True, check=True
    )
    for line in done.stderr.splitlines():
        found = re.fullmatch(r"import time:\s+\d+ \|\s+(\d+) \| (\S+)", line)
        if found and found[2] == module:
            return int(found[1]) / 1e3
    raise AssertionError(f"{module} was not imported")


def test_import_pteron_after_numpy(record_property: object) -> None:
    times = [import_milliseconds("import numpy, pteron", "pteron") for _ in range(20)]
    numpy = [import_milliseconds("import numpy", "numpy") for _ in range(20)]
    ours, theirs = statistics.median(times), statistics.median(numpy)
    print(f"\nimport pteron after numpy: {ours:.1f} ms; numpy: {theirs:.1f} ms")
