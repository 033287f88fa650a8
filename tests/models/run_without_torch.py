"""The calls of a model, run by its program in a process without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tests.models.zoo_model import Model


def run_without_torch(buffer: bytes, model: Model, folder: Path) -> list[list[Tensor]]:
    """The flat results of every call."""
    (folder / "model.pte").write_bytes(buffer)
    calls = [{"method": name, "arguments": list(given)} for name, given in model.calls]
    (folder / "calls.json").write_text(json.dumps(calls))
    for index, (_, given) in enumerate(model.calls):
        for argument, tensor in given.items():
            np.save(folder / f"{index}.{argument}.npy", tensor.numpy())
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_calls.py")), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    results = []
    for index in range(len(calls)):
        count = len(list(folder.glob(f"{index}.*.out.npy")))
        arrays = [np.load(folder / f"{index}.{position}.out.npy") for position in range(count)]
        results.append([torch.from_numpy(array) for array in arrays])
    return results
