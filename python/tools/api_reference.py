"""Write the API reference, from docstrings, into the folder that the command line names.

`python python/tools/api_reference.py target/doc/python`. Every public module of the package is a page.
Exits with 1 when something that the front doors export has no docstring.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc

import pteron

# Modules whose `__all__` is the front door: all that they name has a docstring.
FRONT_DOORS = ("pteron", "pteron.errors", "pteron.runtime", "pteron.exir")


def public_modules() -> list[str]:
    """Names of all modules of the package without a private part."""
    walked = (module.name for module in pkgutil.walk_packages(pteron.__path__, "pteron."))
    return ["pteron", *(name for name in walked if "._" not in name)]


def undocumented() -> list[str]:
    """Exported classes and functions, and public methods of exported classes, without a docstring."""
    missing = []
    for name in FRONT_DOORS:
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", []):
            item = getattr(module, exported)
            if callable(item) and not inspect.getdoc(item):
                missing.append(f"{name}.{exported}")
            if not inspect.isclass(item):
                continue
            for attribute, value in vars(item).items():
                is_described = (
                    callable(value) or isinstance(value, property) or inspect.isdatadescriptor(value)
                )
                if not attribute.startswith("_") and is_described and not inspect.getdoc(value):
                    missing.append(f"{name}.{exported}.{attribute}")
    return missing


def main(folder: str) -> int:
    """Write the pages, and the names that have no docstring to standard error; gives the exit status."""
    pdoc.render.configure(docformat="google", footer_text=f"pteron {pteron.__version__}")
    with warnings.catch_warnings():
        # A package without `__all__` brings its modules along; naming them again is harmless. Names that a
        # package resolves on first use have their page where they are defined.
        warnings.simplefilter("ignore")
        pdoc.pdoc(*public_modules(), output_directory=Path(folder))
    missing = undocumented()
    for name in missing:
        print(f"no docstring: {name}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
