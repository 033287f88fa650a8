"""What an ETDump file says, as objects. Names are those of ExecuTorch's schema (identifier ED00, version 0).

A field that is not there is None; numbers that the schema gives a default for have it (-1 for ids).
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Names of the kinds of a `Value`, in the order of their numbers.
VALUE_KINDS = ("Null", "Int", "Bool", "Float", "Double", "Tensor", "TensorList", "String")


@dataclass
class Tensor:
    """A tensor in the debug buffer: `offset` in bytes, `strides` in elements, `scalar_type` a number of
    `pteron.scalar_types`.
    """

    scalar_type: int = 0
    sizes: list[int] | None = None
    strides: list[int] | None = None
    offset: int = 0


@dataclass
class TensorList:
    """Several tensors."""

    tensors: list[Tensor] | None = None


@dataclass
class Int:
    """An integer."""

    int_val: int = 0


@dataclass
class Bool:
    """A truth value."""

    bool_val: bool = False


@dataclass
class Float:
    """A number of 32 bits."""

    float_val: float = 0.0


@dataclass
class Double:
    """A number of 64 bits."""

    double_val: float = 0.0


@dataclass
class Value:
    """One value: `val` is one of `VALUE_KINDS`, and the field of that kind holds it. `output`: it is one of
    the method's.
    """

    val: str = "Null"
    tensor: Tensor | None = None
    tensor_list: TensorList | None = None
    int_value: Int | None = None
    float_value: Float | None = None
    double_value: Double | None = None
    bool_value: Bool | None = None
    output: Bool | None = None


@dataclass
class DebugEvent:
    """A value that an instruction wrote."""

    chain_index: int = 0
    instruction_id: int = -1
    debug_entry: Value | None = None
    delegate_debug_id_int: int = -1
    delegate_debug_id_str: str | None = None
    name: str | None = None


@dataclass
class ProfileEvent:
    """A span of time: of an instruction, of a part of a delegate, or of a whole call."""

    name: str | None = None
    chain_index: int = 0
    instruction_id: int = -1
    delegate_debug_id_int: int = -1
    delegate_debug_id_str: str | None = None
    delegate_debug_metadata: bytes | None = None
    start_time: int = 0
    end_time: int = 0


@dataclass
class AllocationEvent:
    """Memory that an allocator gave."""

    allocator_id: int = 0
    allocation_size: int = 0


@dataclass
class Event:
    """One of the three."""

    profile_event: ProfileEvent | None = None
    allocation_event: AllocationEvent | None = None
    debug_event: DebugEvent | None = None


@dataclass
class Allocator:
    """An allocator, by its name."""

    name: str | None = None


@dataclass
class RunData:
    """The events of one run, or of what happened before the first ("Default")."""

    name: str | None = None
    bundled_input_index: int = -1
    allocators: list[Allocator] | None = None
    events: list[Event] | None = None


@dataclass
class ETDump:
    """A file."""

    version: int = 0
    run_data: list[RunData] = field(default_factory=list)
