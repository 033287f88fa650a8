"""ExecuTorch's suites in its wheel, and what the repository keeps about them.

`IN_EXECUTORCH` has a line for each test: what becomes of it in ExecuTorch itself. `PAGE` lists the tests
that pass there and fail here, each with its reason; a row with `*` stands for every test of a module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/executorch-suites.md"
IN_EXECUTORCH = Path(__file__).with_name("in_executorch.txt")

#: Folder in the wheel → the name of its suite.
SUITES = {
    "exir/backend/test": "delegation",
    "exir/emit/test": "emit",
    "exir/_serialize/test": "serialize",
    "exir/program/test": "program",
    "exir/tests": "exir",
    "exir/dialects": "dialects",
    "exir/operator": "operator",
    "devtools/bundled_program": "bundled programs",
    "runtime/test": "runtime",
    "extension/pybindings/test": "pybindings",
}
#: Suites that look at the constants and the numbers of values of programs: `install(keep_constants=True)`.
KEEP_CONSTANTS = frozenset({"exir/emit/test"})
EVERY = "*"
_ROW = re.compile(r"^\| `(?P<module>[\w.]+)` \| `(?P<test>[\w.*]+)` \| (?P<reason>.+?) \|$")


@dataclass(frozen=True)
class Listed:
    """A row of the page: a test, or every test of a module, that fails here, and why."""

    module: str
    test: str
    reason: str


def modules(folder: str) -> Iterator[str]:
    """Test modules below a folder of the wheel, by path from `executorch`, sorted."""
    wheel = Path(str(distribution("executorch").locate_file("executorch")))
    for path in sorted((wheel / folder).rglob("test_*.py")):
        yield ".".join(path.relative_to(wheel).with_suffix("").parts)


def keeps_constants(module: str) -> bool:
    """Whether a test module, by its path from `executorch`, is one of a suite of `KEEP_CONSTANTS`."""
    return module.rpartition(".")[0].replace(".", "/") in KEEP_CONSTANTS


def in_executorch() -> dict[str, dict[str, str]]:
    """Module → test → "pass", "skip" or "fail", in ExecuTorch itself."""
    found: dict[str, dict[str, str]] = {}
    for line in IN_EXECUTORCH.read_text().splitlines():
        outcome, module, test = line.split()
        found.setdefault(module, {})[test] = outcome
    return found


def listed() -> list[Listed]:
    """The rows of the page."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    matches = [match for line in lines if (match := _ROW.match(line))]
    return [Listed(match["module"], match["test"], match["reason"]) for match in matches]
