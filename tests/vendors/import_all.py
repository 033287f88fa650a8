"""Imports every module of some packages of ExecuTorch's wheel, one package after the other:
`python -m tests.vendors.import_all ours|theirs OUT PACKAGE...`.

OUT is a JSON object from each package to one from the module's name to null where it imports, else to what
stopped it: the type, the name of the missing module or name where there is one, and the text.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any


def modules_below(package: str) -> list[str]:
    """The package and every module in its folders, sorted; those with `__main__` files and scripts are in."""
    spec = importlib.util.find_spec("executorch")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    top = folder.parent
    found = []
    for file in sorted(folder.joinpath(*package.split(".")[1:]).rglob("*.py")):
        parts = file.relative_to(top).with_suffix("").parts
        if all(part.isidentifier() for part in parts) and parts[-1] != "__main__":
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def outcome(module: str) -> dict[str, Any] | None:
    """What stops the import of a module; None where nothing does."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return {"type": type(error).__name__, "name": getattr(error, "name", None), "text": str(error)}
    return None


def main(arguments: list[str]) -> None:
    """Writes the outcomes of one side."""
    side, out, *packages = arguments
    warnings.simplefilter("ignore")
    modules = {package: modules_below(package) for package in packages}
    unknown = [package for package, found in modules.items() if not found]
    if unknown or out.startswith("executorch."):
        # With OUT and PACKAGE swapped, a file with the package's name would appear in the working folder.
        raise SystemExit(f"import_all: expected ours|theirs OUT PACKAGE..., got {arguments}")
    if side == "ours":
        from pteron import compat

        compat.install()
    sys.argv[1:] = []
    found = {package: {module: outcome(module) for module in modules[package]} for package in packages}
    Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
