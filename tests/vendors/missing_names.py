"""What vendors' code imports from modules that pteron replaces, and does not find:
`python -m tests.vendors.missing_names OUT`.

OUT is a JSON list of "module: name". The code is read, not imported, so SDKs need not be there.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
import warnings
from pathlib import Path


def imported(folder: Path) -> set[tuple[str, str]]:
    """(module, name) of every `from executorch... import ...` below a folder."""
    found: set[tuple[str, str]] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                found.update((node.module, each.name) for each in node.names)
    return {(module, name) for module, name in found if module.startswith("executorch.")}


def is_there(module: str, name: str) -> bool:
    """Whether `from module import name` works."""
    try:
        if name == "*" or hasattr(importlib.import_module(module), name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def main(arguments: list[str]) -> None:
    """Writes the names that are not there."""
    warnings.simplefilter("ignore")
    from pteron import compat
    from pteron.compat.refused_paths import REPLACED

    spec = importlib.util.find_spec("executorch")
    assert spec is not None
    wanted = imported(Path(next(iter(spec.submodule_search_locations or ())), "backends"))
    compat.install()
    ours = tuple(f"executorch.{package}" for package in (*REPLACED, "devtools"))
    missing = [
        f"{module}: {name}"
        for module, name in sorted(wanted)
        if (module in ours or module.startswith(tuple(f"{package}." for package in ours[:-1])))
        and not is_there(module, name)
    ]
    Path(arguments[0]).write_text(json.dumps(missing))


if __name__ == "__main__":
    main(sys.argv[1:])
