"""Models, backends and partitioners that the delegation tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram, export

from pteron.exir import to_edge
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from pteron.exir.backend.program_copy import deep_copy


class RecordingBackend(BackendDetails):
    """Accepts everything and remembers what it was given."""

    programs: list[ExportedProgram] = []  # noqa: RUF012
    specs: list[Any] = []  # noqa: RUF012

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> PreprocessResult:
        RecordingBackend.programs.append(edge_program)
        RecordingBackend.specs.append(compile_specs)
        return PreprocessResult(f"blob {len(edge_program.graph.nodes)}".encode())


def record() -> type[RecordingBackend]:
    """The recording backend, emptied."""
    RecordingBackend.programs.clear()
    RecordingBackend.specs.clear()
    return RecordingBackend


class SixSteps(torch.nn.Module):
    """Two additions with other operators between them."""

    def forward(self, x, y):
        x = x + y
        x = x * y
        x = x - y
        x = x / y
        x = x * y
        return x + y


def floats(*values: float) -> np.ndarray:
    """A vector of float32."""
    return np.array(values, np.float32)


class TagBy(Partitioner):
    """Tags by a function from node to tag or None; every tag goes to `backend`."""

    def __init__(
        self,
        choose: Callable[[torch.fx.Node], str | None],
        backend: str = "RecordingBackend",
        named: Callable[[str], bool] = lambda tag: True,
    ) -> None:
        super().__init__()
        self.choose = choose
        self.backend = backend
        self.named = named
        self.seen: ExportedProgram | None = None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        self.seen = exported_program
        tags = {}
        for node in exported_program.graph.nodes:
            tag = self.choose(node)
            if tag is not None:
                node.meta["delegation_tag"] = tag
                if self.named(tag):
                    tags[tag] = DelegationSpec(self.backend, [])
        return PartitionResult(exported_program, tags)


def operators(*names: str, constants: bool = False) -> Callable[[torch.fx.Node], str | None]:
    """Tags calls of these operators (by part of their name) `t`, and with `constants` what they read."""

    def is_chosen(node: torch.fx.Node) -> bool:
        return node.op == "call_function" and any(name in str(node.target) for name in names)

    def choose(node: torch.fx.Node) -> str | None:
        if is_chosen(node):
            return "t"
        is_constant = node.op == "placeholder" and node.name[:2] in ("p_", "b_", "c_")
        return "t" if constants and is_constant and any(map(is_chosen, node.users)) else None

    return choose


def edge(module: torch.nn.Module, *inputs: Any, **options: Any) -> ExportedProgram:
    """The edge program of a module."""
    return to_edge(export(module, inputs, **options)).exported_program()


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Counter(torch.nn.Module):
    """Adds a buffer that counts the calls; `seen` says who sees the new count."""

    def __init__(self, seen: bool = False) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.seen = seen

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        total = x + self.count
        return (torch.sin(total), torch.sin(self.count)) if self.seen else torch.sin(total)


def delegate_calls(program: ExportedProgram) -> list[torch.fx.Node]:
    """The delegate calls of a program."""
    return [n for n in program.graph.nodes if "executorch_call_delegate" in str(n.target)]


def names(program: ExportedProgram) -> list[str]:
    """Names of the operators that a program calls."""
    return [
        str(getattr(n.target, "__name__", n.target)) for n in program.graph.nodes if n.op == "call_function"
    ]


def same(program, lowered, *inputs, calls=1):
    """Both programs compute the same, over several calls."""
    left, right = deep_copy(program).module(), deep_copy(lowered).module()
    for _ in range(calls):
        torch.testing.assert_close(right(*inputs), left(*inputs))
