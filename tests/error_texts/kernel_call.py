"""One kernel call as a program, out of a form that JSON can hold."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import pteron
from tests.support.programs import CODES, MethodBuilder, build, schema

# A call is [operator, arguments]. An argument is a number, a text, null, a list of numbers, or
#   {"in": dtype, "shape": [...], "fill": number}   an input with one value everywhere,
#   {"out": dtype, "shape": [...]}                  a result with room for the shape,
#   {"list": [arguments]}                           tensors, some null.
Call = tuple[str, list[Any]]

ARRAYS = {n: np.dtype(ml_dtypes.bfloat16 if n == "bfloat16" else n) for n in CODES}


def is_tensor(argument: Any) -> bool:
    """Is it an input or a result?"""
    return isinstance(argument, dict) and "list" not in argument


def run_kernel_call(call: Call, runtime: pteron.Runtime) -> None:
    """Loads, builds and runs the call with fixed shapes; raises what comes of it."""
    operator, arguments = call
    method = MethodBuilder()
    inputs: list[Any] = []
    ids = [_value(method, a, inputs) for a in arguments]
    written = [
        i for i, a in zip(ids, arguments, strict=True) if isinstance(a, dict) and ("out" in a or _is_out(a))
    ]
    if len(written) == 1:
        ids.append(written[0])
    elif written:
        ids.append(method.value(schema.TensorList(written)))
    method.call(operator, ids)
    loaded = pteron.load(build(method), runtime=runtime).load_method("forward")
    loaded.execute(inputs)


def _is_out(argument: dict[str, Any]) -> bool:
    return any(a and "out" in a for a in argument.get("list", []))


def _tensor(method: MethodBuilder, argument: dict[str, Any], inputs: list[Any]) -> int:
    shape = argument["shape"]
    if "out" in argument:
        return method.output(method.tensor(shape, argument["out"], dynamic=True))
    dtype = argument["in"]
    fill = argument.get("fill", 0)
    array = np.full(shape, fill, ARRAYS[dtype])
    index = method.input(method.tensor(shape, dtype))
    inputs.append(array)
    return index


def _value(method: MethodBuilder, argument: Any, inputs: list[Any]) -> int:
    match argument:
        case {"list": items}:
            ids = [-1 if a is None else _tensor(method, a, inputs) for a in items]
            return method.value(schema.OptionalTensorList(ids) if -1 in ids else schema.TensorList(ids))
        case dict():
            return _tensor(method, argument, inputs)
        case bool():
            return method.bool(argument)
        case int():
            return method.int(argument)
        case float():
            return method.double(argument)
        case str():
            return method.string(argument)
        case None:
            return method.none()
    if argument and isinstance(argument[0], bool):
        return method.value(schema.BoolList(argument))
    if argument and isinstance(argument[0], float):
        return method.value(schema.DoubleList(argument))
    return method.int_list(argument)
