"""What a benchmark saves for `make bench-page`: its tables, with the machine and the build they are of."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from timing import cpu_model

PEERS = ("numpy", "torch", "onnxruntime", "executorch")


def build() -> str:
    """The start of a digest of the installed package, its code and its native library."""
    import pteron

    folder = Path(pteron.__file__).parent
    digest = hashlib.sha256()
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.so")]):
        digest.update(file.relative_to(folder).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def commit() -> str:
    """The commit that is checked out, as far as there is one."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "none"


def machine() -> dict[str, str]:
    """What figures are of: they can stand on one page only where this is equal."""
    import pteron

    found = {
        "processor": cpu_model(),
        "processors": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "pteron": f"{pteron.__version__}, build {build()}",
    }
    for name in PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def save(path: Path, content: dict[str, Any]) -> None:
    """Writes results with machine, command and load of the moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    load = round(os.getloadavg()[0], 1)
    head = {"machine": machine(), "commit": commit(), "command": command, "load": load}
    path.write_text(json.dumps({**head, **content}, indent=1) + "\n")


class Tables:
    """The tables of one benchmark."""

    def __init__(self) -> None:
        self._tables: list[dict[str, Any]] = []

    def begin(self, columns: Sequence[str], title: str = "") -> None:
        """A new table."""
        self._tables.append({"title": title, "columns": list(columns), "rows": []})

    def row(self, *cells: object) -> None:
        """A row of the last table, as texts with their units."""
        assert len(cells) == len(self._tables[-1]["columns"]), cells
        self._tables[-1]["rows"].append([str(cell) for cell in cells])

    def save(self, options: argparse.Namespace) -> None:
        """Writes the tables where `--json` says, if it was given."""
        if options.json is not None:
            save(options.json, {"tables": self._tables})


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json FILE`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the tables for make bench-page")
