"""What a bundled program's file states, as objects; a field stands for the field of the file's schema."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.exir.schema import ScalarType


@dataclass
class Tensor:
    """A dense tensor. `data`: its elements in memory order, of which `dim_order` says the order."""

    scalar_type: ScalarType
    sizes: list[int]
    data: bytes
    dim_order: list[int]


@dataclass
class Int:
    """An integer."""

    int_val: int


@dataclass
class Bool:
    """A truth value."""

    bool_val: bool


@dataclass
class Double:
    """A floating-point number."""

    double_val: float


ValueUnion = Tensor | Int | Double | Bool


@dataclass
class Value:
    """An input or an output."""

    val: ValueUnion


@dataclass
class BundledMethodTestCase:
    """One call, flat; without expected outputs it is run and not compared."""

    inputs: list[Value]
    expected_outputs: list[Value]


@dataclass
class BundledMethodTestSuite:
    """The cases of a method."""

    method_name: str
    test_cases: list[BundledMethodTestCase]


@dataclass
class BundledProgram:
    """The file: a whole program file and its cases."""

    version: int
    method_test_suites: list[BundledMethodTestSuite]
    program: bytes
