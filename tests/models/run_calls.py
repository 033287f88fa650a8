"""Runs a program on stored inputs, without torch: `python run_calls.py FOLDER`.

The folder has `model.pte`, `calls.json` (method and argument names of each call) and `<call>.<name>.npy`;
results go to `<call>.<index>.out.npy`, flat, in their order.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import pteron


def flat(result: Any) -> list[Any]:
    """The arrays of a result, containers entered in order, None left out."""
    if result is None:
        return []
    if isinstance(result, dict):
        return [leaf for value in result.values() for leaf in flat(value)]
    if isinstance(result, (list, tuple)):
        return [leaf for value in result for leaf in flat(value)]
    return [result]


def main(folder: Path) -> None:
    program = pteron.load(folder / "model.pte")
    methods: dict[str, Any] = {}
    for index, call in enumerate(json.loads((folder / "calls.json").read_text())):
        name = call["method"]
        if name not in methods:
            methods[name] = program.load_method(name)
        given = {argument: np.load(folder / f"{index}.{argument}.npy") for argument in call["arguments"]}
        for position, array in enumerate(flat(methods[name](**given))):
            np.save(folder / f"{index}.{position}.out.npy", array)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    assert "torch" not in sys.modules
