"""Runs every component of a saved folder with `pteron.hub`, where torch and transformers cannot be imported.

    python run_folder.py FOLDER CALLS

`CALLS` holds for each component `<name>.json`, the keywords as nests of numbers, and `<name>.npz`, the arrays
that they stand for. The flat results go to `<name>.out.npz`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFUSED = ("torch", "executorch", "torchao", "transformers")


class Refuse:
    """Finds the modules that must not be imported, and says so."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in REFUSED:
            raise AssertionError(f"something imported {name}")


sys.meta_path.insert(0, Refuse())  # type: ignore[arg-type]

import numpy as np  # noqa: E402

from pteron import hub  # noqa: E402


def filled(nest: Any, arrays: Any) -> Any:
    """The nest with arrays in the place of their numbers."""
    if isinstance(nest, dict):
        return {key: filled(value, arrays) for key, value in nest.items()}
    if isinstance(nest, list):
        return tuple(filled(value, arrays) for value in nest)
    return arrays[nest] if isinstance(nest, str) else nest


def flat(nest: Any) -> list[Any]:
    """The arrays of a nest in order."""
    if isinstance(nest, Mapping):
        nest = tuple(nest.values())
    return [leaf for part in nest for leaf in flat(part)] if isinstance(nest, tuple) else [nest]


def main(folder: Path, calls: Path) -> None:
    model = hub.load(folder, num_threads=1)
    assert model.config["model_type"]
    for name, component in model.components.items():
        keywords = filled(json.loads((calls / f"{name}.json").read_text()), np.load(calls / f"{name}.npz"))
        results = flat(component(**keywords))
        np.savez(calls / f"{name}.out.npz", *results)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
