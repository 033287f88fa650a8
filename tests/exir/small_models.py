"""Small models that between them use everything the compile half handles, with example inputs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional

from pteron.exir import EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager, to_edge

PORTABLE = ExecutorchBackendConfig(kernels="executorch-portable")


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Accumulator(nn.Module):
    """Keeps the sum of what it was given, from an initial value that is not zero."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


class SwappedBuffers(nn.Module):
    """Two buffers that take each other's value, a counter, and an output that is an old value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.ones(2, 2))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        old = self.a.clone()
        calls_before = self.calls.clone()
        self.a.copy_(self.b.view(4))
        self.b.copy_(old.view(2, 2) + x)
        self.calls.add_(1)
        return self.a + 1, self.b * 1, calls_before, self.calls


class Everything(nn.Module):
    """Views, splits, scalars, symbolic numbers, a buffer, constant and None inputs, a nested result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.weight = nn.Parameter(torch.linspace(-1, 1, 6).reshape(3, 2))
        self.register_buffer("seen", torch.arange(6.0))

    def forward(self, x: torch.Tensor, n: int, flag: Any = None) -> dict[str, Any]:
        y = self.linear(x) + 1
        self.seen.add_(y.sum(0))
        z = (y.view(-1, 3) @ self.weight).view(x.shape[0], -1)
        left, right = torch.split(z, 2, 1)
        return {
            "left": left * 2,
            "right": right.reshape(-1) + x.shape[0],
            "size": x.shape[0] * 2 + n,
            "seen": self.seen.clone(),
        }


class Nested(nn.Module):
    """Nested arguments, keyword arguments, a boolean, None in the result."""

    def forward(
        self, d: dict[str, list[torch.Tensor]], *, k: torch.Tensor, flag: bool = True
    ) -> dict[str, Any]:
        y = d["p"][0] * d["p"][1]
        if flag:
            y = y + 1
        return {"r": [y, k + 1], "q": (y.sum(), None, 7)}


class ManyResults(nn.Module):
    """One of most kinds of operator that the small models do not have."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[Any, ...]:
        mixed = (
            x // 2,
            x % 2,
            x.to(torch.int64) / 3,
            i + 1.5,
            x >= 0.5,
            (x > 0) & (x < 1),
            1 - x,
            2 / (x + 9),
        )
        reduced = (x.var(-1), x.max(), x.argmax(-1), *torch.topk(x, 2), x.cumsum(0), x.bool().any())
        shaped = (
            torch.cat([x, x * 2], 1),
            torch.stack([x, x]),
            x.expand(3, 4, 6),
            x.repeat(2, 1),
            x[:, 1:4:2],
            x[..., None].squeeze(-1),
            x.transpose(0, 1).contiguous(),
            functional.pad(x, (1, 2)),
            x.flip(0),
            torch.roll(x, 1, 0),
        )
        picked = (x[i], x.index_select(1, i), functional.embedding(i, x), functional.one_hot(i, 7))
        smooth = (
            functional.softmax(x, -1),
            functional.layer_norm(x, (6,)),
            functional.gelu(x, approximate="tanh"),
            functional.silu(x),
            x.masked_fill(x > 0, -1.0),
            torch.where(x > 0, x, 0.0),
        )
        made = (torch.full((2, 2), 3), x.new_zeros(2), torch.arange(5))
        return (*mixed, *reduced, *shaped, *picked, *smooth, *made)


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.norm(self.convolution(x)) + x)


class LongShortTermMemory(nn.Module):
    """A two-layer LSTM with a projection; returns its state too."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y, state = self.lstm(x)
        return {"y": self.out(y), "state": state}


class Branches(nn.Module):
    """A choice within a choice; results that are an operand, a view, one tensor twice, and a constant used
    inside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(second, lambda x: x + 1, lambda x: self.linear(x), (x,))

        def taken(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = inner(x)
            return y, x.clone(), x.sin().view(16)

        def not_taken(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * 2
            return y, y.clone(), (x - 1).cos().view(16)

        a, b, c = torch.cond(first, taken, not_taken, (x.exp(),))
        return a + b, c.view(4, 4) * a


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Residual(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Hardswish(),
        nn.Conv2d(8, 4, 1),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.LogSoftmax(1),
    )


class FewerProducts(nn.Module):
    """3 x 3 convolutions with channels enough for Winograd's method, one with an addition behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.inner = nn.Conv2d(32, 32, 3, padding=1)
        self.last = nn.Conv2d(32, 33, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.last(torch.relu(self.inner(x) + x)).mean((2, 3))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@dataclass(frozen=True)
class Case:
    """A model, an example call, further calls to check, and what may vary."""

    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    more_args: tuple[tuple[Any, ...], ...] = ()

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval()

    def export(self) -> ExportedProgram:
        with warnings.catch_warnings():
            # nn.LSTM rebuilds a list of its own weights while it is traced.
            warnings.filterwarnings("ignore", message="The tensor attribute.* assigned during export")
            return export(self.model(), self.args, self.kwargs, dynamic_shapes=self.dynamic_shapes)


def random(*shape: int) -> torch.Tensor:
    """Normal numbers that depend on the shape alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


_BATCH = Dim("batch", min=1, max=16)

CASES: dict[str, Case] = {
    "mlp": Case(mlp, (random(2, 8),)),
    "mlp_dynamic": Case(
        mlp,
        (random(3, 8),),
        dynamic_shapes=({0: _BATCH},),
        more_args=((random(1, 8),), (random(16, 8),), (random(7, 8),)),
    ),
    "convolutional": Case(convolutional, (random(1, 3, 32, 32),)),
    "convolutional_dynamic": Case(
        convolutional,
        (random(2, 3, 32, 32),),
        dynamic_shapes=({0: _BATCH},),
        more_args=((random(1, 3, 32, 32),), (random(5, 3, 32, 32),)),
    ),
    "depthwise": Case(depthwise, (random(1, 3, 16, 16),)),
    "fewer_products": Case(FewerProducts, (random(1, 3, 14, 14),)),
    "lstm": Case(LongShortTermMemory, (random(2, 3, 4),)),
    "accumulator": Case(Accumulator, (torch.ones(3),), more_args=((torch.full((3,), 5.0),),) * 2),
    "swapped_buffers": Case(
        SwappedBuffers,
        (torch.ones(2, 2),),
        more_args=tuple((torch.full((2, 2), float(n)),) for n in range(3)),
    ),
    "everything": Case(
        Everything,
        (random(3, 4), 3, None),
        dynamic_shapes={"x": {0: Dim("rows", min=2, max=16)}, "n": None, "flag": None},
        more_args=((random(2, 4), 3, None), (random(16, 4), 3, None)),
    ),
    "nested": Case(Nested, ({"p": [torch.ones(2), torch.arange(2.0)]},), {"k": torch.ones(3), "flag": True}),
    "branches": Case(
        Branches,
        (random(4, 4), torch.tensor(True), torch.tensor(True)),
        more_args=tuple(
            (random(4, 4) + 1, torch.tensor(first), torch.tensor(second))
            for first in (True, False)
            for second in (False, True)
        ),
    ),
    "many_results": Case(ManyResults, (random(4, 6), torch.tensor([0, 2, 1]))),
}


@functools.cache
def captured(name: str) -> ExportedProgram:
    """The exported program of a case; no test changes it."""
    return CASES[name].export()


@functools.cache
def edge_program_of(name: str) -> EdgeProgramManager:
    """A case in the edge dialect; no test changes it."""
    return to_edge(captured(name))


def edge_of(function: Callable[..., Any], *args: Any, **options: Any) -> EdgeProgramManager:
    """`function` exported with `args` and brought into the edge dialect."""
    return to_edge(export(Function(function).eval(), args, **options))


def emitted(function: Callable[..., Any], *args: Any, **options: Any) -> ExecutorchProgramManager:
    """`function` exported with `args` and emitted for ExecuTorch's portable kernels."""
    return edge_of(function, *args, **options).to_executorch(PORTABLE)


def targets(program: ExportedProgram) -> list[str]:
    """Names of what the calls of a graph point at, in order."""
    return [
        getattr(node.target, "__name__", str(node.target))
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


def node_of(program: ExportedProgram, name: str) -> torch.fx.Node:
    """The only call whose target has this name."""
    found = [
        node
        for node in program.graph.nodes
        if node.op == "call_function" and getattr(node.target, "__name__", str(node.target)) == name
    ]
    assert len(found) == 1, f"expected one {name}, found {found}"
    return found[0]
