"""Models of loops, with the inputs that tests run them on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim, ExportedProgram

from pteron.exir import EdgeProgramManager, to_edge
from tests.exir.small_models import PORTABLE

Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class LoopCase:
    """A model, the inputs it is exported with, more inputs to run it on, and what may vary.

    `reference`: the same computation in plain Python; eager mode is asked where there is none.
    """

    model: Callable[[], torch.nn.Module]
    args: Tensors
    more_args: tuple[Tensors, ...] = ()
    dynamic_shapes: Any = None
    reference: Callable[..., Any] | None = None

    def export(self) -> ExportedProgram:
        """The captured model."""
        # What PyTorch remembers of one model makes it take extents of the next for constants.
        torch._dynamo.reset()
        return torch.export.export(self.model().eval(), self.args, dynamic_shapes=self.dynamic_shapes)


def _random(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=generator)


def _seeded(build: Callable[[], torch.nn.Module]) -> Callable[[], torch.nn.Module]:
    def made() -> torch.nn.Module:
        torch.manual_seed(0)
        # What follows from gradients that are asked for is not what these models are about.
        return build().requires_grad_(False)

    return made


def _zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


class MapSeveral(torch.nn.Module):
    """Two mapped tensors, a captured one, a weight; two results, one of which is a row as it came."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        def body(rows: Any, z: torch.Tensor) -> Any:
            a, b = rows
            return self.linear(a) + z, (b * 2).to(torch.int32)

        return map_over(body, (x, y), z)


class MapOfMap(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return map_over(lambda plane: map_over(lambda row: row.exp() + row.sum(), plane).neg(), x).sum(1)


class MapOfOneNumber(torch.nn.Module):
    """Rows without dimensions."""

    def forward(self, x: torch.Tensor) -> Any:
        return map_over(lambda value: value * value > 1, x)


class MapInnerDynamic(torch.nn.Module):
    """Rows whose own extent varies."""

    def forward(self, x: torch.Tensor) -> Any:
        return map_over(lambda row: torch.cat([row, row * 2]), x)


class Recurrent(torch.nn.Module):
    """A recurrent cell by `scan`: two carried values, one of them 0-d, two stacked ones."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.Linear(7, 4)
        self.scale = 0.5

    def forward(self, x: torch.Tensor, hidden: torch.Tensor, steps: torch.Tensor) -> Any:
        rows = x.shape[0]

        def step(carry: Any, row: torch.Tensor) -> Any:
            hidden, steps = carry
            new = torch.tanh(self.cell(torch.cat([row, hidden])))
            return (new, steps + 1), (new * self.scale + rows, hidden.clone())

        (hidden, steps), (outputs, before) = scan(step, (hidden, steps), x)
        return hidden, steps, outputs, before


class ScanOptions(torch.nn.Module):
    """`dim` and `reverse`."""

    def forward(self, x: torch.Tensor, start: torch.Tensor) -> Any:
        return scan(lambda c, row: (c * 0.9 + row, c - row), start, x, dim=1, reverse=True)


class ScanSwap(torch.nn.Module):
    """Carried values that swap, and one that stays as it is."""

    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        def step(carry: Any, row: torch.Tensor) -> Any:
            a, b, c = carry
            return (b.clone(), a + row, c.clone()), a - b + c

        return scan(step, (a, b, a * 2), x)


class ScanViews(torch.nn.Module):
    """Results that are reshapes of carried values."""

    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        def step(carry: Any, row: torch.Tensor) -> Any:
            a, b = carry
            return (b.reshape(4).clone(), (a + row).reshape(2, 2)), a.reshape(2, 2) * 2

        return scan(step, (a, b), x)


class Associative(torch.nn.Module):
    """The operator itself; PyTorch's front end decomposes it on the CPU."""

    def forward(self, decay: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> Any:
        def combine(a: Any, b: Any, c: Any, d: Any, scale: Any) -> Any:
            return a * c, c * b * scale + d

        return torch.ops.higher_order.associative_scan(combine, [decay, x], (scale,))


def _associative_reference(decay: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> Any:
    a, b = [decay[:0]], [x[:0]]
    for row in range(decay.shape[0]):
        if row == 0:
            a.append(decay[:1])
            b.append(x[:1])
        else:
            c, d = decay[row : row + 1], x[row : row + 1]
            a, b = [*a, a[-1] * c], [*b, c * b[-1] * scale + d]
    return torch.cat(a), torch.cat(b)


class AssociativeDecomposed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a + b, x, dim=1, reverse=True, combine_mode="generic")


class Countdown(torch.nn.Module):
    """A loop that may run no iteration; a weight, a state that is read inside and updated outside, and an
    extent are captured.
    """

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("state", torch.zeros(()))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        rows = x.shape[0]
        self.state.add_(1)

        def goes_on(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < n

        def body(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, torch.tanh(self.linear(y)) + rows + self.state

        i, y = while_loop(goes_on, body, (_zero(), x))
        self.state.mul_(2)
        return i, y


class Fibonacci(torch.nn.Module):
    """Carried integers, one of which becomes the other, as extents never do."""

    def forward(self, x: torch.Tensor) -> Any:
        def goes_on(a: int, b: int, x: torch.Tensor) -> Any:
            return a < 50

        def body(a: int, b: int, x: torch.Tensor) -> Any:
            return b, a + b, x + a

        return while_loop(goes_on, body, (0, 1, x))


class WhileSwap(torch.nn.Module):
    """Carried tensors of three types; two swap."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, flag: torch.Tensor) -> Any:
        def goes_on(i: Any, a: Any, b: Any, flag: Any) -> Any:
            return torch.logical_and(i < 3, flag)

        def body(i: Any, a: Any, b: Any, flag: Any) -> Any:
            return i + 1, b * 1.5, a.clone(), (a.sum() + b.sum()) > -100

        return while_loop(goes_on, body, (_zero(), a, b, flag))


class Nested(torch.nn.Module):
    """A `while_loop` with a `cond` in a `scan`, a `map` after it, a `scan` in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, start: torch.Tensor, flag: torch.Tensor) -> Any:
        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            def goes_on(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return torch.logical_and(i < 4, y.sum() < 3)

            def body(i: torch.Tensor, y: torch.Tensor) -> Any:
                more = torch.cond(i > 1, lambda y: self.linear(y), lambda y: y + row, (y,))
                return i + 1, more

            count, total = while_loop(goes_on, body, (_zero(), carry * 0.5 + row))
            return total, total * count

        def scanned(x: torch.Tensor, start: torch.Tensor) -> Any:
            return scan(step, start, x)

        def plain(x: torch.Tensor, start: torch.Tensor) -> Any:
            return start + 1, x * 2

        carry, rows = torch.cond(flag, scanned, plain, (x, start))
        return carry, map_over(lambda row: row.cumsum(0), rows)


class LoopInLoop(torch.nn.Module):
    """A `while_loop` that starts anew in each iteration of another, on carried values."""

    def forward(self, x: torch.Tensor) -> Any:
        def outer(i: torch.Tensor, y: torch.Tensor) -> Any:
            j, y = while_loop(lambda j, y: j < i, lambda j, y: (j + 1, y * 2 - j), (_zero(), y))
            return i + 1, y + j

        return while_loop(lambda i, y: i < 4, outer, (_zero(), x))


class GrowingTensor(torch.nn.Module):
    """Carried tensors of varying shape."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        return while_loop(
            lambda i, y: i < n, lambda i, y: (i + 1, (y + y.mean(0)).relu()), (_zero(), x.sin())
        )


class ConstantsInside(torch.nn.Module):
    """Tensors written down inside bodies, and in a body of a body."""

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> Any:
        def body(i: torch.Tensor, y: torch.Tensor) -> Any:
            more = torch.cond(
                i > 1,
                lambda y: y * torch.tensor([1.0, 2.0, 3.0]),
                lambda y: y + torch.tensor([0.5, 0.25, 0.125]) - torch.tensor([1.0, 1.0, 2.0]),
                (y,),
            )
            return i + 1, more + torch.tensor([1.0, -1.0, 0.0])

        _, y = while_loop(lambda i, y: i < torch.tensor(4), body, (_zero(), x))
        return map_over(lambda row: row * torch.tensor(3.0), y)


_ROWS = Dim("rows", min=0, max=6)
_COLUMNS = Dim("columns", min=2, max=8)


def _number(value: int) -> torch.Tensor:
    return torch.tensor(value)


CASES: dict[str, LoopCase] = {
    "map_several": LoopCase(
        _seeded(MapSeveral),
        (_random(3, 4), _random(3, 2), _random(3)),
        tuple((_random(n, 4), _random(n, 2), _random(3)) for n in (1, 6)),
        ({0: _ROWS}, {0: _ROWS}, None),
    ),
    "map_of_map": LoopCase(MapOfMap, (_random(2, 3, 4),)),
    "map_of_one_number": LoopCase(MapOfOneNumber, (_random(5),)),
    "map_inner_dynamic": LoopCase(
        MapInnerDynamic,
        (_random(3, 4),),
        ((_random(6, 8),), (_random(1, 2),)),
        ({0: _ROWS, 1: _COLUMNS},),
    ),
    "recurrent": LoopCase(
        _seeded(Recurrent),
        (_random(3, 3), _random(4), _number(7)),
        ((_random(6, 3), _random(4), _number(-1)),),
        ({0: _ROWS}, None, None),
    ),
    "recurrent_static": LoopCase(_seeded(Recurrent), (_random(3, 3), _random(4), _number(7))),
    "scan_options": LoopCase(
        ScanOptions, (_random(2, 3), _random(2)), ((_random(2, 6), _random(2)),), ({1: _ROWS}, None)
    ),
    "scan_swap": LoopCase(ScanSwap, (_random(3, 4), _random(4), _random(4) + 1)),
    "scan_views": LoopCase(ScanViews, (_random(3, 4), _random(4), _random(2, 2))),
    "associative": LoopCase(
        Associative, (_random(4, 3), _random(4, 3), _random(3)), reference=_associative_reference
    ),
    "associative_dynamic": LoopCase(
        Associative,
        (_random(4, 3), _random(4, 3), _random(3)),
        tuple((_random(n, 3), _random(n, 3), _random(3)) for n in (0, 1, 2, 6)),
        ({0: _ROWS}, {0: _ROWS}, None),
        _associative_reference,
    ),
    "associative_decomposed": LoopCase(AssociativeDecomposed, (_random(2, 5),)),
    "countdown": LoopCase(
        _seeded(Countdown),
        (_random(3, 4), _number(3)),
        ((_random(5, 4), _number(0)), (_random(1, 4), _number(1)), (_random(3, 4), _number(20))),
        ({0: Dim("rows", min=1, max=8)}, None),
    ),
    "fibonacci": LoopCase(Fibonacci, (_random(3),)),
    "while_swap": LoopCase(
        WhileSwap,
        (_random(3), _random(3) + 1, torch.tensor(True)),
        ((_random(3), _random(3), torch.tensor(False)),),
    ),
    "nested": LoopCase(
        _seeded(Nested),
        (_random(3, 4), _random(4), torch.tensor(True)),
        (
            (_random(3, 4), _random(4) - 2, torch.tensor(True)),
            (_random(3, 4), _random(4), torch.tensor(False)),
        ),
    ),
    "constants_inside": LoopCase(ConstantsInside, (_random(3), torch.tensor(True))),
    "loop_in_loop": LoopCase(LoopInLoop, (_random(3),)),
    "varying_carry": LoopCase(
        GrowingTensor,
        (_random(3, 4), _number(2)),
        ((_random(6, 4), _number(3)), (_random(2, 4), _number(0)), (_random(6, 4), _number(1))),
        ({0: Dim("rows", min=2, max=6)}, None),
    ),
}


@functools.cache
def edge_program_of(name: str) -> EdgeProgramManager:
    """The model in the edge dialect; do not change it."""
    with torch.no_grad():
        return to_edge(CASES[name].export())


@functools.cache
def buffer_of(name: str) -> bytes:
    """The model's program, for ExecuTorch's kernels."""
    return edge_program_of(name).to_executorch(PORTABLE).buffer
