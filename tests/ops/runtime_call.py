"""One operator call as a program file of its own, run by `pteron`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import pteron
from tests.ops.operator_case import OperatorCase, Output, dim_order
from tests.support.programs import MethodBuilder, build


def run_in_runtime(
    case: OperatorCase, outputs: list[torch.Tensor], runtime: pteron.Runtime | None = None
) -> list[torch.Tensor]:
    """The results of a call; `outputs` give dtype, largest shape and dim order."""
    program, inputs = program_of(case, outputs, runtime)
    return [_as_torch(r) for r in program.load_method("forward").execute(inputs)]


def program_of(
    case: OperatorCase, outputs: list[torch.Tensor], runtime: pteron.Runtime | None = None
) -> tuple[pteron.Program, list[torch.Tensor]]:
    """A program of one call, and its inputs."""
    method = MethodBuilder()
    inputs: list[torch.Tensor] = []
    arguments = [_value(method, a, inputs) for a in case.call_arguments(outputs)]
    written = [
        i for i, a in zip(arguments, case.call_arguments(outputs), strict=True) if isinstance(a, Output)
    ]
    if len(written) == 1:
        arguments.append(written[0])
    elif written:
        arguments.append(method.value(_schema().TensorList(written)))
    method.call(case.name, arguments)
    return pteron.load(build(method), runtime=runtime), inputs


def _as_torch(result: Any) -> torch.Tensor:
    """A result of a call: of one without tensors among its inputs it is an array."""
    if isinstance(result, np.ndarray) and result.dtype.name == "bfloat16":
        return torch.from_numpy(result.view(np.int16)).view(torch.bfloat16)
    return torch.as_tensor(result)


def _schema() -> Any:
    from tests.support.programs import schema

    return schema


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _tensor(method: MethodBuilder, tensor: torch.Tensor, *, dynamic: bool) -> int:
    order = dim_order(tensor)
    return method.tensor(list(tensor.shape), _dtype_name(tensor), dynamic=dynamic, dim_order=order)


def _value(method: MethodBuilder, value: Any, inputs: list[torch.Tensor]) -> int:
    schema = _schema()
    if isinstance(value, Output):
        ids = [method.output(_tensor(method, t, dynamic=True)) for t in value.tensors]
        return ids[0] if value.single else method.value(schema.TensorList(ids))
    if isinstance(value, torch.Tensor):
        inputs.append(value)
        return method.input(_tensor(method, value, dynamic=False))
    if isinstance(value, bool):
        return method.bool(value)
    if isinstance(value, int):
        return method.int(value)
    if isinstance(value, float):
        return method.double(value)
    if isinstance(value, str):
        return method.string(value)
    if value is None:
        return method.none()
    return _list(method, list(value), inputs)


def _list(method: MethodBuilder, items: list[Any], inputs: list[torch.Tensor]) -> int:
    schema = _schema()
    if any(isinstance(v, torch.Tensor) for v in items):
        ids = [-1 if v is None else _value(method, v, inputs) for v in items]
        return method.value(schema.OptionalTensorList(ids) if -1 in ids else schema.TensorList(ids))
    if items and isinstance(items[0], bool):
        return method.value(schema.BoolList(items))
    if items and isinstance(items[0], float):
        return method.value(schema.DoubleList(items))
    return method.int_list(items)
