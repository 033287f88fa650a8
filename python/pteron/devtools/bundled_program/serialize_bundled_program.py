"""A `BundledProgram` → the bytes of a `.bpte` file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pteron.devtools.bundled_program.bundled_program import BundledProgram
from pteron.devtools.bundled_program.method_test_suite import ConfigValue
from pteron.exir.edge.scalar_type import scalar_type_of
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.emit.shared_data import tensor_bytes


@dataclass
class BundledTensor:
    """A tensor as a file states it; `data`: its elements in memory order."""

    scalar_type: int
    sizes: list[int]
    dim_order: list[int]
    data: memoryview


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """The bytes of a bundled program, for `pteron.load` and for ExecuTorch.

    LimitExceeded where program and tensors take more than 2 GB together; such a program keeps its weights in
    a data file. ExportError where weights were changed in place since `to_executorch`.
    """
    from pteron import _native

    suites = []
    for suite in bundled_program.method_test_suites:
        cases = [
            ([_value(v) for v in case.inputs], [_value(v) for v in case.expected_outputs])
            for case in suite.test_cases
        ]
        suites.append((suite.method_name, cases))
    return _native.serialize_bundle(bundled_program.program_bytes(), suites)


def _value(value: ConfigValue) -> Any:
    return bundled_tensor(value) if isinstance(value, torch.Tensor) else value


def bundled_tensor(value: torch.Tensor) -> BundledTensor:
    """What a file states of a tensor."""
    tensor = value.detach()
    order = dim_order_of_value(tensor)
    if order == tuple(range(tensor.dim())):
        tensor = tensor.contiguous()
    return BundledTensor(scalar_type_of(tensor.dtype), list(tensor.shape), list(order), tensor_bytes(tensor))
