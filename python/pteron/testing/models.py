"""Small models that a backend is checked with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_ROWS = torch.export.Dim("rows", min=1, max=9)


@dataclass(frozen=True)
class ModelCase:
    """A model, and the arguments to export it with.

    Attributes:
        name: what the report calls it.
        make: makes the model; called once for each program.
        args: example arguments, flat tensors.
        dynamic_shapes: as of `torch.export.export`.
        calls: arguments of further calls, of other extents where they vary.
        rtol, atol: how far results may be from eager PyTorch.
    """

    name: str
    make: Callable[[], nn.Module]
    args: tuple[Tensor, ...]
    dynamic_shapes: Any = None
    calls: tuple[tuple[Tensor, ...], ...] = field(default=())
    rtol: float = 1e-4
    atol: float = 1e-5

    @property
    def all_calls(self) -> tuple[tuple[Tensor, ...], ...]:
        """The example, the further calls, and the example again, which must see nothing of the others."""
        return (self.args, *self.calls, self.args)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Tensor) -> Any:
        return self._function(*args)


class _Counter(nn.Module):
    """A buffer that every call changes."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total * 2.0


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(-1, -2) / 8**0.5, -1)
        result: Tensor = weights @ self.value(x)
        return result


def _of(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: _Function(function)


def _seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def seeded() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make().eval()

    return seeded


def model_cases() -> tuple[ModelCase, ...]:
    """The models of `check_backend`: a sum in each element type, layers, nets, extents that vary, state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return (*_element_types(), *_layers(), *_shapes(), counter_case())


def counter_case() -> ModelCase:
    """A model with a buffer that every call changes."""
    x = torch.tensor([1.0, -2.0, 3.0])
    return ModelCase("a buffer that calls change", _Counter, (x,), calls=((x + 1,), (x * 2,)))


def _element_types() -> tuple[ModelCase, ...]:
    add, floats = _of(lambda x, y: x + y), (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    cases = []
    for dtype in (*floats, torch.int64, torch.int32, torch.int8, torch.uint8):
        values = (
            torch.randn(2, 3).mul(10).to(dtype) if dtype.is_floating_point else torch.arange(6).view(2, 3)
        )
        x, y = values.to(dtype), values.flip(0).to(dtype)
        rough = {torch.float16: 1e-2, torch.bfloat16: 1e-1}.get(dtype, 1e-4)
        name = f"sum of {str(dtype).removeprefix('torch.')}"
        cases.append(ModelCase(name, add, (x, y), calls=((y, x),), rtol=rough))
    bits = torch.tensor([True, False, True])
    cases.append(ModelCase("and of bool", _of(torch.logical_and), (bits, ~bits), calls=((bits, bits),)))
    return tuple(cases)


def _layers() -> tuple[ModelCase, ...]:
    x, image = torch.randn(3, 8), torch.randn(1, 3, 8, 8)
    conv = lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2))  # noqa: E731
    special = torch.tensor([float("nan"), float("inf"), -0.0])
    two = lambda x: (torch.sin(x), torch.cos(x) + 1.0)  # noqa: E731
    return (
        ModelCase("linear", _seeded(lambda: nn.Linear(8, 4)), (x,), calls=((-x,),)),
        ModelCase(
            "two linears", _seeded(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))), (x,)
        ),
        ModelCase(
            "matrix product and sum", _of(lambda a, b, c: a @ b + c), (x, x.t().contiguous(), x[:, :3])
        ),
        ModelCase("convolutions", _seeded(conv), (image,), calls=((image * 2,),)),
        ModelCase("attention", _seeded(_Attention), (torch.randn(2, 5, 8),)),
        ModelCase("softmax", _of(lambda x: torch.softmax(x, -1)), (x,), calls=((x * 50,),)),
        ModelCase("two results", _of(two), (x,), calls=((x + 1,),)),
        ModelCase("not a number and infinity", _of(lambda x: x + x), (special,)),
    )


def _shapes() -> tuple[ModelCase, ...]:
    add = _of(lambda x, y: x + y)
    rows = {"args": ({0: _ROWS}, {0: _ROWS})}
    linear = _seeded(lambda: nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    calls = tuple((torch.randn(n, 8),) for n in (1, 9, 2))
    return (
        ModelCase("a tensor without dimensions", add, (torch.tensor(1.5), torch.tensor(2.0))),
        ModelCase("an empty tensor", add, (torch.zeros(0, 3), torch.zeros(0, 3))),
        ModelCase("broadcast", add, (torch.randn(4, 1, 3), torch.randn(2, 1))),
        ModelCase(
            "a sum whose rows vary",
            add,
            (torch.randn(4, 3), torch.randn(4, 3)),
            rows,
            tuple((torch.randn(n, 3), torch.randn(n, 3)) for n in (1, 9, 2)),
        ),
        ModelCase("a linear whose rows vary", linear, (torch.randn(4, 8),), {"input": {0: _ROWS}}, calls),
    )
