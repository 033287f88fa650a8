"""`ExecutorBackend`, run half in Python: loads the nested program and runs it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.backends.demo.compiler_demo_runtime import store_output
from pteron.scalar_types import SCALAR_TYPES


class ExecutorRuntime:
    """The backend object: register it under the name `ExecutorBackend`.

    Args:
        runtime: where the nested program's kernels and backends come from, None for the default runtime.
    """

    def __init__(self, runtime: Any = None) -> None:
        self._runtime = runtime

    def is_available(self) -> bool:
        """Always."""
        return True

    def init(self, ctx: Any, processed: Any, compile_specs: Mapping[str, bytes]) -> ExecutorDelegate:
        """Loads the nested program, with those of its tensors that stand in a data file of the program
        outside; its errors are raised as they are.
        """
        import pteron

        program = pteron.load(bytes(processed), runtime=self._runtime)
        outside = _tensors_outside(program, ctx.named_data)
        if outside:
            program = pteron.load(bytes(processed), data=_data_file(outside), runtime=self._runtime)
        return ExecutorDelegate(program.load_method("forward"), len(program.outputs("forward")))


@dataclass(frozen=True)
class _Layout:
    """dtype code, extents and memory order of a tensor."""

    scalar_type: int
    sizes: list[int]
    dim_order: list[int]


@dataclass(frozen=True)
class _Entry:
    """A tensor of a data file."""

    key: str
    data: memoryview
    alignment: int
    layout: _Layout


def _tensors_outside(program: Any, named_data: Callable[[str], memoryview]) -> list[_Entry]:
    """The tensors that `forward` reads from data files, sorted by name.

    Those that the program outside does not have are left out: loading the method names them.
    """
    methods = json.loads(program.description())["methods"]
    found: dict[str, _Entry] = {}
    for value in (value for each in methods if each["name"] == "forward" for value in each["values"]):
        key = value["stored"].get("external") if isinstance(value, dict) and "stored" in value else None
        if key is not None:
            order = value.get("dim_order") or list(range(len(value["shape"])))
            layout = _Layout(SCALAR_TYPES[value["dtype"]], value["shape"], order)
            with contextlib.suppress(KeyError):
                found[key] = _Entry(key, named_data(key), 1, layout)
    return [found[key] for key in sorted(found)]


def _data_file(entries: list[_Entry]) -> bytes:
    """The bytes of a data file with these tensors."""
    from pteron import _native

    head, pieces, size = _native.layout_data_file(entries)
    file = bytearray(size)
    file[: len(head)] = head
    for offset, piece in pieces:
        file[offset : offset + len(piece)] = piece
    return bytes(file)


class ExecutorDelegate:
    """A session of the nested program."""

    def __init__(self, method: Any, num_outputs: int) -> None:
        self.num_outputs = num_outputs
        self._method = method

    def execute(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs the nested program and copies its outputs."""
        arguments = [
            value if isinstance(value, (int, float, bool)) else np.asarray(value) for value in inputs
        ]
        results = self._method.execute(arguments)
        for output, result in zip(outputs, results, strict=True):
            store_output(output, np.asarray(result))

    def get_state(self) -> dict[str, Any]:
        """The mutable buffers of the nested program, by name."""
        state: dict[str, Any] = self._method.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Sets some of them."""
        self._method.set_state(state)

    def reset_state(self) -> None:
        """Puts all of them back to their initial contents."""
        self._method.reset_state()
