"""A program file and the plans that load makes of it, as objects: what every tool starts from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pteron._native import Program


@dataclass(frozen=True)
class TensorValue:
    """A tensor of a method. `nbytes` is that of its largest shape; `stored` says where stored bytes are."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    is_dynamic: bool
    is_state: bool
    arena: int | None = None
    offset: int | None = None
    dim_order: tuple[int, ...] | None = None
    stored: dict[str, Any] | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """`float32[2, <=8]`: dtype and extents."""
        bound = "<=" if self.is_dynamic else ""
        return f"{self.dtype}[{', '.join(f'{bound}{n}' for n in self.shape)}]"


@dataclass(frozen=True)
class Call:
    """One instruction: an operator, a delegate, or another kind with neither.

    `kind` is `operator`, `delegate`, `move`, `jump` or `free`; `jump` is the index of the instruction that a
    jump goes to where the value `condition` is false.
    """

    index: int
    operator: str | None
    delegate: int | None
    args: tuple[int, ...]
    kind: str = "operator"
    jump: int | None = None
    condition: int | None = None


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    `calls` are indices into the plan's calls, `instructions` those of the file, `parts` triples of delegate,
    node and debug handle for what load made of a delegate. `reads` and `writes` are bytes at the largest
    shapes, `written` the tensors that it writes. `declined` are the kernels that were asked before this one,
    by variant, and what each says about that (None: nothing).
    """

    index: int
    name: str
    operator: str | None
    args: tuple[int, ...]
    calls: tuple[int, ...]
    instructions: tuple[int, ...]
    handles: tuple[int, ...]
    parts: tuple[tuple[int, int, int], ...]
    reads: int
    writes: int
    written: tuple[int, ...] = ()
    declined: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class MethodDescription:
    """A method as the file has it, or as load made it (then with `steps`)."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    arenas: tuple[int, ...]
    delegates: tuple[dict[str, Any], ...]
    values: tuple[Any, ...]
    calls: tuple[Call, ...]
    steps: tuple[Step, ...] = ()
    session_bytes: int = 0

    @cached_property
    def tensors(self) -> dict[int, TensorValue]:
        """The tensors among the values."""
        return {value.index: value for value in self.values if isinstance(value, TensorValue)}

    def leaves(self, index: int) -> Iterator[TensorValue]:
        """The tensors that an argument is: itself, or the members of a list."""
        # Optional arguments that are left out have a number behind all values.
        value = self.values[index] if index < len(self.values) else None
        if isinstance(value, TensorValue):
            yield value
        elif isinstance(value, dict):
            for member in value.get("tensors", ()):
                if member is not None:
                    yield from self.leaves(member)


@dataclass(frozen=True)
class ProgramDescription:
    """A program file. Sizes are in bytes."""

    program_bytes: int
    constant_bytes: int
    segments: tuple[tuple[int, int], ...]
    named_data: dict[str, int]
    methods: dict[str, MethodDescription] = field(repr=False)


def describe(program: Program) -> ProgramDescription:
    """What the file of `program` says."""
    data = json.loads(program.description())
    methods = (_method(method) for method in data["methods"])
    return ProgramDescription(
        data["program_bytes"],
        data["constant_bytes"],
        tuple((start, end) for start, end in data["segments"]),
        {entry["key"]: entry["nbytes"] for entry in data["named_data"]},
        {method.name: method for method in methods},
    )


def describe_plan(program: Program, method: str = "forward") -> MethodDescription:
    """What load makes of a method: builds it.

    Raises:
        PteronError: those of loading the method.
    """
    return _method(json.loads(program.plan_description(method)))


def _method(data: dict[str, Any]) -> MethodDescription:
    return MethodDescription(
        name=data["name"],
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
        arenas=tuple(data["arenas"]),
        delegates=tuple(data["delegates"]),
        values=tuple(_value(index, value) for index, value in enumerate(data["values"])),
        calls=tuple(_call(index, call) for index, call in enumerate(data["calls"])),
        steps=tuple(_step(index, step) for index, step in enumerate(data.get("steps", ()))),
        session_bytes=data.get("session_bytes", 0),
    )


def _call(index: int, call: dict[str, Any]) -> Call:
    kind = next(kind for kind in ("operator", "delegate", "move", "jump", "free") if kind in call)
    return Call(
        index,
        call.get("operator"),
        call.get("delegate"),
        tuple(call.get("args", ())),
        kind,
        call.get("jump"),
        call.get("unless"),
    )


def _value(index: int, value: Any) -> Any:
    if not isinstance(value, dict) or "dtype" not in value:
        return value
    return TensorValue(index, **{**value, "shape": tuple(value["shape"])})


def _step(index: int, step: dict[str, Any]) -> Step:
    return Step(
        index=index,
        name=step["name"],
        operator=step.get("operator"),
        args=tuple(step["args"]),
        calls=tuple(step["calls"]),
        instructions=tuple(step["instructions"]),
        handles=tuple(step["handles"]),
        parts=tuple((delegate, node, handle) for delegate, node, handle in step["parts"]),
        reads=step.get("reads", 0),
        writes=step.get("writes", 0),
        written=tuple(step.get("written", ())),
        declined=tuple((variant, why) for variant, why in step.get("declined", ())),
    )
