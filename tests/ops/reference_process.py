"""The reference kernels, without loader or engine, in a process of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch

from tests.ops.operator_case import DTYPE_CODES, OperatorCase, Output, dim_order, memory_bytes

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}


class KernelRefused(Exception):
    """The kernel answered with an error."""


class ReferenceProcess:
    """Runs calls in `run_reference`, the example program of the kernel crate."""

    def __init__(self) -> None:
        # As all tests of the workspace link it: alone it would have other features, and be compiled again.
        build = "cargo build -q --workspace --exclude pteron-python --example run_reference"
        subprocess.run(build.split(), cwd=ROOT, check=True)
        binary = ROOT / "target" / "debug" / "examples" / "run_reference"
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()

    def run(self, case: OperatorCase, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results of a call; `outputs` give dtype, largest shape and dim order."""
        call = case.call_arguments(outputs)
        line = json.dumps({"operator": case.name, "args": [_encode(a) for a in call]})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise KernelRefused(answer["error"])
        results = []
        for argument, value in zip(call, answer["args"], strict=False):
            if isinstance(argument, Output):
                results += [_tensor(t) for t in value.get("tensors", [value.get("tensor")])]
        return results


def _describe(tensor: torch.Tensor, data: bytes) -> dict[str, Any]:
    return {
        "dtype": DTYPE_CODES[tensor.dtype],
        "shape": list(tensor.shape),
        "order": dim_order(tensor),
        "bytes": data.hex(),
    }


def _encode(value: Any) -> Any:
    if isinstance(value, Output):
        # A pattern that shows up when a kernel leaves an element out.
        blank = [_describe(t, b"\x5a" * (t.numel() * t.element_size())) for t in value.tensors]
        return {"tensor": blank[0]} if value.single else {"tensors": blank}
    if isinstance(value, torch.Tensor):
        return {"tensor": _describe(value, memory_bytes(value))}
    if isinstance(value, str):
        return {"string": value}
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return {"double": repr(value)}
    items = list(value)
    if any(isinstance(v, torch.Tensor) for v in items):
        return {"tensors": [v if v is None else _describe(v, memory_bytes(v)) for v in items]}
    if items and isinstance(items[0], bool):
        return {"bools": items}
    if items and isinstance(items[0], float):
        return {"doubles": items}
    return {"ints": items}


def _tensor(described: dict[str, Any]) -> torch.Tensor:
    dtype = DTYPES[described["dtype"]]
    shape, order = described["shape"], described["order"]
    data = bytearray.fromhex(described["bytes"])
    ordered = [shape[d] for d in order]
    flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)
    inverse = [order.index(d) for d in range(len(order))]
    return flat.reshape(ordered).permute(inverse)
