"""Test cases of a method, before they are bundled with a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_flatten

from pteron.errors import CaseMismatchError

#: What a bundled program can hold.
ConfigValue: TypeAlias = torch.Tensor | int | bool | float


class MethodTestCase:
    """One call of a method: its inputs and, where the result is to be compared, the expected outputs.

    Both may be nested as the method has them; `inputs` and `expected_outputs` are flat lists.
    CaseMismatchError for a value that is no tensor, int, bool or float.
    """

    __test__ = False

    def __init__(self, inputs: Any, expected_outputs: Any = None) -> None:
        self.inputs: list[ConfigValue] = _flat(inputs, "inputs")
        self.expected_outputs: list[ConfigValue] = (
            [] if expected_outputs is None else _flat(expected_outputs, "expected_outputs")
        )


@dataclass
class MethodTestSuite:
    """The test cases of the method `method_name`."""

    __test__ = False

    method_name: str
    test_cases: Sequence[MethodTestCase]


def _flat(nested: Any, name: str) -> list[ConfigValue]:
    leaves, _ = tree_flatten(nested, is_leaf=lambda value: value is None)
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, (torch.Tensor, int, float)):
            raise CaseMismatchError(
                f"MethodTestCase({name}=...): value {index} cannot be bundled",
                argument=name,
                expected="a tensor, an int, a bool or a float",
                got=type(leaf).__name__,
            )
    return leaves
