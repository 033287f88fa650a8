"""A lowered module inside another one, captured the ways PyTorch has."""

from __future__ import annotations

import pytest
import torch
from torch.export import export

from pteron.exir import to_edge
from pteron.exir.backend.backend_api import to_backend
from tests.backend.lowering_cases import Function, edge


class Caller(torch.nn.Module):
    """Calls a lowered module twice and computes between."""

    def __init__(self, lowered: torch.nn.Module) -> None:
        super().__init__()
        self.lowered = lowered

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.lowered(self.lowered(x) * 2)
        return result


class Weighted(torch.nn.Module):
    """Has a parameter, a buffer and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("shift", torch.tensor([0.5, 0.25]))
        self.plain = torch.tensor([3.0, 4.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.shift + self.plain


class Nested(torch.nn.Module):
    """Takes a dict and a keyword, returns a dict."""

    def forward(self, given: dict[str, torch.Tensor], *, shift: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": given["x"] + shift, "product": given["x"] * shift}


class NestedCaller(Caller):
    """Calls such a module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.lowered({"x": x}, shift=x + 1)
        return result["sum"] - result["product"]


X = torch.tensor([0.5, -1.0])


def lowered(module: torch.nn.Module, *args: object, **kwargs: object) -> torch.nn.Module:
    """The module, lowered as a whole."""
    program = to_edge(export(module, args, kwargs)).exported_program()
    return to_backend("RecordingBackend", program, [])


CASES = {
    "plain": lambda: (Caller(lowered(Function(torch.sin), X)), lambda x: torch.sin(torch.sin(x) * 2)),
    "weights": lambda: (Caller(lowered(Weighted(), X)), Caller(Weighted())),
    "structures": lambda: (
        NestedCaller(lowered(Nested(), {"x": X}, shift=X + 1)),
        NestedCaller(Nested()),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strict", [True, False])
def test_it_is_exported(case: str, strict: bool) -> None:
    caller, expected = CASES[case]()
    program = export(caller, (X,), strict=strict)
    calls = [node for node in program.graph.nodes if "executorch_call_delegate" in str(node.target)]
    assert len(calls) == (1 if case == "structures" else 2)
    torch.testing.assert_close(program.module()(X), expected(X))
    delegates = to_edge(program).to_executorch().executorch_program.execution_plan[0].delegates
    assert len(delegates) == len(calls)


@pytest.mark.parametrize("case", ["plain", "structures"])
def test_it_is_compiled_in_one_graph(case: str) -> None:
    caller, expected = CASES[case]()
    torch._dynamo.reset()
    compiled = torch.compile(caller, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(X), expected(X))


def test_a_stateful_module_is_exported_strictly_without_running_it() -> None:
    class Count(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    inner = to_backend("RecordingBackend", edge(Count(), X), [])
    program = export(Caller(inner), (X,), strict=True)
    torch.testing.assert_close(program.module()(X), (X + 1) * 2 + 2)
