"""What the comparisons with ExecuTorch's `portable_lib` share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

exir = pytest.importorskip("executorch.exir")


def same(a: Any, b: Any) -> None:
    """The same kinds of values, and the same values."""
    assert len(a) == len(b)
    for left, right in zip(a, b, strict=True):
        assert type(left) is type(right)
        if isinstance(left, Tensor):
            assert left.dtype == right.dtype
            torch.testing.assert_close(left, right)
        else:
            assert left == right


def bundled(model: nn.Module, *cases: tuple[Tensor, Tensor]) -> bytes:
    """A bundle of theirs: a model of one input and one output, and pairs of both; the last may lack one."""
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import (
        serialize_from_bundled_program_to_flatbuffer as serialize,
    )

    manager = exir.to_edge(torch.export.export(model, cases[0][:1])).to_executorch()
    suite = MethodTestSuite("forward", [MethodTestCase(case[:1], case[1:]) for case in cases])
    return bytes(serialize(BundledProgram(manager, [suite])))
