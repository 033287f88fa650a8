"""One call of an operator, to be run by eager PyTorch and by a runtime on equal inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.ops.wide_oracle import in_float64, rounded_once


@dataclass
class OperatorCase:
    """A call of the out-variant `overload` of `torch.ops.<library>.<operator>`.

    `namespace` is the library's name in a program file. `function` stands for the functional operator where
    the library has none. `args` and `kwargs` are those of the functional operator. `outputs` limits how many
    results are compared; `largest` is the shape to make room for where the data decides the shape or the
    call is refused, or one for each result.
    """

    operator: str
    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    outputs: int | None = None
    largest: tuple[int, ...] | list[tuple[int, ...]] | None = None
    library: str = "aten"
    namespace: str = "aten"
    function: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """The name in a program file."""
        return f"{self.namespace}::{self.operator}" + (f".{self.overload}" if self.overload else "")

    @property
    def schema(self) -> Any:
        """The schema of the out-variant."""
        packet = getattr(getattr(torch.ops, self.library), self.operator)
        return getattr(packet, self.overload)._schema

    @property
    def is_list_output(self) -> bool:
        """Does the operator write a list of tensors and return nothing?"""
        return not self.schema.returns

    def __str__(self) -> str:
        parts = [_brief(a) for a in self.args] + [f"{k}={_brief(v)}" for k, v in self.kwargs.items()]
        return f"{self.operator}.{self.overload}({', '.join(parts)}){self.note}"

    def expected(self) -> list[torch.Tensor]:
        """What eager PyTorch gives, of 16-bit floats what it gives in float64, rounded once; raises what it
        raises.
        """
        eager = self._eager(*(_copy(a) for a in self.args), **self.kwargs)
        return rounded_once(self.name, self._eager, self.args, self.kwargs, eager)

    def exact(self) -> list[torch.Tensor] | None:
        """What eager PyTorch gives in float64; None where it refuses that."""
        return in_float64(self._eager, self.args, self.kwargs)

    def _eager(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        function = self.function or getattr(getattr(torch.ops, self.namespace), self.operator)
        result = function(*args, **kwargs)
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        # A gradient that is not asked for is absent; the out-variant leaves its tensor alone.
        return [torch.empty(0) if r is None else dense(r) for r in results]

    def room(self, expected: list[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs to write, with the dtypes, shapes and dim orders of the expected ones."""
        if self.largest is None:
            return expected
        shapes = self.largest if isinstance(self.largest, list) else [self.largest] * len(expected)
        return [torch.zeros(shape, dtype=e.dtype) for shape, e in zip(shapes, expected, strict=True)]

    def call_arguments(self, outputs: list[torch.Tensor]) -> list[Any]:
        """Every argument of the out-variant in order; tensors that are written are in `outputs`."""
        schema = self.schema
        given = list(self.args)
        waiting = list(outputs)
        call: list[Any] = []
        for argument in schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                if argument.type.kind() == "ListType":
                    call.append(Output(waiting))
                    waiting = []
                else:
                    call.append(Output([waiting.pop(0)], single=True))
                continue
            if argument.name in self.kwargs:
                value = self.kwargs[argument.name]
            elif given and not argument.kwarg_only:
                value = given.pop(0)
            else:
                value = argument.default_value
            value = _stored(value)
            kind = str(argument.type)
            is_plain_int = isinstance(value, int) and not isinstance(value, bool)
            if is_plain_int and kind in ("List[int]", "Optional[List[int]]"):
                value = [value]
            if is_plain_int and kind in ("float", "Optional[float]"):
                value = float(value)
            call.append(value)
        return call


@dataclass
class Output:
    """Tensors that the call writes; their values give dtype, largest shape and dim order."""

    tensors: list[torch.Tensor]
    single: bool = False


DTYPE_CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}


MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


def _stored(value: Any) -> Any:
    """What a program holds in place of PyTorch's own kinds of values."""
    if isinstance(value, torch.dtype):
        return DTYPE_CODES[value]
    if isinstance(value, torch.memory_format):
        return MEMORY_FORMATS[value]
    if isinstance(value, torch.layout):
        return 0
    return None if isinstance(value, torch.device) else value


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own, dense in its own dim order where it has one."""
    if tensor.numel() == 0:
        return tensor.contiguous()
    order = sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), d))
    moved = tensor.permute(order)
    return tensor if moved.is_contiguous() else tensor.contiguous()


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        order = "" if value.is_contiguous() else "*"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{order}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return "[" + " ".join(_brief(v) for v in value) + "]"
    return str(value).removeprefix("torch.")


def dim_order(tensor: torch.Tensor) -> list[int]:
    """Dimensions by memory order, outermost first."""
    return (
        sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), d))
        if tensor.numel()
        else list(range(tensor.dim()))
    )


def memory_bytes(tensor: torch.Tensor) -> bytes:
    """The elements in memory order."""
    flat = tensor.permute(dim_order(tensor)).clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
