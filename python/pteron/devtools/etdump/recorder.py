"""Runs of this runtime as ETDump: the spans of every step and of the parts of delegates, and, with a debug
buffer, what they wrote.

A step that stands for several instructions of the file is one span of the last of them, whose result it
writes; all of them are in its metadata (`step_instructions`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pteron._native import Method, Program, TracedStep
from pteron.devtools.description import MethodDescription, describe, describe_plan
from pteron.devtools.etdump.flatbuffer import write_etdump
from pteron.devtools.etdump.schema import (
    Bool,
    DebugEvent,
    Double,
    ETDump,
    Event,
    Int,
    ProfileEvent,
    RunData,
    Tensor,
    TensorList,
    Value,
)
from pteron.errors import LimitExceeded
from pteron.scalar_types import SCALAR_TYPES

#: The chain of what no instruction does, in the two widths of the schema.
_NO_CHAIN = -1
_NO_CHAIN_UNSIGNED = 2**64 - 1
_ALIGNMENT = 16
_INSTRUCTIONS = "pteron_instructions"
_HANDLES = "pteron_handles"


def step_instructions(metadata: bytes | None) -> list[int]:
    """The instructions of the file that a span stands for, where it says so."""
    return _stated(metadata, _INSTRUCTIONS)


def stated_handles(metadata: bytes | None) -> list[int]:
    """The debug handles of a part of a delegate, where its span states them."""
    return _stated(metadata, _HANDLES)


def _stated(metadata: bytes | None, key: str) -> list[int]:
    try:
        found = json.loads(metadata or b"{}")
    except (ValueError, RecursionError):
        return []
    listed = found.get(key) if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(type(each) is int and each >= 0 for each in listed):
        return []
    return listed


class EtdumpRecorder:
    """Records calls of the methods of one program.

    `debug_buffer_size`: bytes that the values of all recorded calls may take; 0 records spans alone. Values
    are those of the plan: with `Runtime(disabled_rules=["all"])` every instruction of the file writes its
    own.
    """

    def __init__(self, program: Program, *, debug_buffer_size: int = 0) -> None:
        self._program = program
        self._methods: dict[str, _Plan] = {}
        self._buffer = DebugBuffer(debug_buffer_size)
        self.etdump = ETDump()

    def load_method(self, method: str = "forward", **options: Any) -> Method:
        """`Program.load_method`, recorded as a run "Default"."""
        start = time.perf_counter_ns()
        session = self._program.load_method(method, **options)
        self.loaded(start, time.perf_counter_ns())
        return session

    def loaded(self, start: int, end: int) -> None:
        """Records that a method was loaded between two readings of the clock, in nanoseconds."""
        names = ("Method::init", "Program::load_method")
        self.etdump.run_data.append(
            RunData("Default", events=[Event(_framework_event(name, start, end)) for name in names])
        )

    def execute(self, session: Method, inputs: Iterable[Any], **options: Any) -> list[Any]:
        """`Method.execute`, recorded as a run "Execute".

        Raises:
            LimitExceeded: the values do not fit into the debug buffer.
            PteronError: those of the call.
        """
        plan = self._plan(session.name)
        watch = _Watch(self._buffer) if not self._buffer.size else _ValueWatch(self._buffer)
        start = time.perf_counter_ns()
        outputs = session.execute(inputs, tracer=watch, **options)
        end = time.perf_counter_ns()
        events = list(plan.events(watch))
        events.append(Event(_framework_event("Method::execute", start, end)))
        if self._buffer.size:
            values = (self._buffer.value(output) for output in outputs)
            events += [_output_event(value) for value in values if value is not None]
        self.etdump.run_data.append(RunData("Execute", events=events))
        return outputs

    def etdump_bytes(self) -> bytes:
        """The file of what was recorded."""
        return write_etdump(self.etdump)

    @property
    def debug_buffer(self) -> bytes:
        """The bytes of the values that were recorded."""
        return bytes(self._buffer.data)

    def write(
        self, etdump_path: str | os.PathLike[str], debug_buffer_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Writes the file of spans and, where values were recorded, the file of their bytes.

        Raises:
            OSError: a file cannot be written.
        """
        Path(etdump_path).write_bytes(self.etdump_bytes())
        if debug_buffer_path is not None and self._buffer.size:
            Path(debug_buffer_path).write_bytes(self._buffer.data)

    def _plan(self, method: str) -> _Plan:
        if method not in self._methods:
            self._methods[method] = _Plan(self._program, method)
        return self._methods[method]


class DebugBuffer:
    """The bytes of values, one after the other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data = bytearray()

    def value(self, value: Any) -> Value | None:
        """A value as the file states it; None for what it has no kind for.

        Raises:
            LimitExceeded: there is no room left.
        """
        if isinstance(value, (bool, np.bool_)):
            return Value("Bool", bool_value=Bool(bool(value)))
        if isinstance(value, (int, np.integer)):
            return Value("Int", int_value=Int(int(value)))
        if isinstance(value, (float, np.floating)):
            return Value("Double", double_value=Double(float(value)))
        tensor = self.tensor(value)
        return None if tensor is None else Value("Tensor", tensor=tensor)

    def tensor(self, value: Any) -> Tensor | None:
        """Puts a tensor's bytes there, in row-major order; None where the value is no tensor."""
        if not hasattr(value, "dtype"):
            return None
        dtype = str(value.dtype).removeprefix("torch.")
        if hasattr(value, "detach"):  # of torch, some of whose types NumPy does not have
            data = _torch_bytes(value)
        else:
            data = np.ascontiguousarray(value).tobytes()
        offset = len(self.data) + -len(self.data) % _ALIGNMENT
        if offset + len(data) > self.size:
            raise LimitExceeded(
                "the debug buffer has no room for another value",
                expected=f"at most {self.size} bytes in all",
                got=f"{offset + len(data)} bytes so far",
                hint="record with a larger debug_buffer_size, or fewer calls",
            )
        self.data += bytes(offset - len(self.data)) + data
        sizes = [int(extent) for extent in value.shape]
        strides = [int(np.prod(sizes[at + 1 :], dtype=np.int64)) for at in range(len(sizes))]
        return Tensor(SCALAR_TYPES[dtype], sizes, strides, offset)


def _torch_bytes(value: Any) -> bytes:
    torch: Any = sys.modules["torch"]  # whoever passes its tensors has imported it
    plain = value.detach().cpu().contiguous().reshape(-1)
    return bytes(plain.view(torch.uint8).numpy().tobytes())


def _framework_event(name: str, start: int, end: int) -> ProfileEvent:
    return ProfileEvent(name, chain_index=_NO_CHAIN, instruction_id=0, start_time=start, end_time=end)


def _output_event(value: Value) -> Event:
    value.output = Bool(True)
    return Event(debug_event=DebugEvent(chain_index=_NO_CHAIN_UNSIGNED, instruction_id=0, debug_entry=value))


@dataclass
class _Span:
    """One run of a step: its calls of the tracer, and within them the step itself. Nanoseconds."""

    step: TracedStep
    outer_start: int
    start: int
    end: int = 0
    outer_end: int = 0


class _Watch:
    """The tracer of spans."""

    def __init__(self, buffer: DebugBuffer) -> None:
        self.buffer = buffer
        self.spans: list[_Span] = []
        self.parts: dict[int, list[ProfileEvent]] = {}
        self.values: dict[int, list[tuple[int, Value | Tensor]]] = {}

    def step_begin(self, step: TracedStep) -> None:
        outer = time.perf_counter_ns()
        self.spans.append(_Span(step, outer, 0))
        self.spans[-1].start = time.perf_counter_ns()

    def step_end(self, step: TracedStep, error: str | None) -> None:
        end = time.perf_counter_ns()
        span = self.spans[-1]
        span.end = span.end or end
        span.outer_end = time.perf_counter_ns()

    def delegate_event(
        self, step: TracedStep, backend: str, identifier: int | str, start: int, end: int, metadata: Any
    ) -> None:
        is_number = isinstance(identifier, int)
        event = ProfileEvent(
            delegate_debug_id_int=identifier if isinstance(identifier, int) else -1,
            delegate_debug_id_str=None if is_number else str(identifier),
            delegate_debug_metadata=bytes(metadata) if metadata else None,
            start_time=start,
            end_time=end,
        )
        self.parts.setdefault(len(self.spans) - 1, []).append(event)


class _ValueWatch(_Watch):
    """The tracer of spans and values."""

    def value(self, step: TracedStep, position: int, value: Any) -> None:
        span = self.spans[-1]
        span.end = span.end or time.perf_counter_ns()
        held = self.buffer.tensor(value) if hasattr(value, "dtype") else self.buffer.value(value)
        if held is not None:
            self.values.setdefault(len(self.spans) - 1, []).append((position, held))


@dataclass(frozen=True)
class _StepName:
    """What a step is called in the file."""

    name: str
    instruction: int
    delegate_part: str | None
    metadata: bytes | None
    is_delegate: bool
    is_fused: bool


class _Plan:
    """The names of a method's instructions and steps."""

    def __init__(self, program: Program, method: str) -> None:
        self._program = program
        self._calls = describe(program).methods[method].calls
        self._method = method
        self._known: dict[int, _StepName] = {}
        self._description: MethodDescription | None = None

    def events(self, watch: _Watch) -> Iterator[Event]:
        """The events of one run, in the order in which they end."""
        delegate: ProfileEvent | None = None
        for index, span in enumerate(watch.spans):
            named = self._name(span.step)
            if delegate is not None and (
                named.delegate_part is None or named.instruction != delegate.instruction_id
            ):
                yield Event(delegate)
                delegate = None
            yield from _values(named, watch.values.get(index, ()))
            if named.delegate_part is not None:
                yield Event(_part(named, span))
                if delegate is None:
                    delegate = _span_event("DELEGATE_CALL", named, span.outer_start, span.outer_end)
                delegate.end_time = span.outer_end
                continue
            for part in watch.parts.get(index, ()):
                part.instruction_id = named.instruction
                yield Event(part)
            yield Event(_span_event(named.name, named, span.start, span.end, named.metadata))
            if not named.is_delegate:
                yield Event(_span_event("OPERATOR_CALL", named, span.outer_start, span.outer_end))
        if delegate is not None:
            yield Event(delegate)

    def _name(self, step: TracedStep) -> _StepName:
        if step.index not in self._known:
            self._known[step.index] = self._named(step)
        return self._known[step.index]

    def _named(self, step: TracedStep) -> _StepName:
        instructions = list(step.instructions)
        last = max(instructions, default=-1)
        calls = [self._calls[at] for at in instructions if at < len(self._calls)]
        parts = list(step.parts)
        if parts:
            handles = json.dumps({_HANDLES: [handle for _, _, handle in parts]}).encode()
            return _StepName("", last, self._part_name(step), handles, False, len(parts) > 1)
        if any(call.delegate is not None for call in calls):
            return _StepName("DELEGATE_CALL", last, None, None, True, False)
        operators = [call.operator.rpartition("::")[2] for call in calls if call.operator is not None]
        name = f"native_call_{'+'.join(operators)}" if operators else step.name
        is_fused = len(instructions) > 1
        metadata = json.dumps({_INSTRUCTIONS: instructions}).encode() if is_fused else None
        return _StepName(name, last, None, metadata, False, is_fused)

    def _part_name(self, step: TracedStep) -> str:
        """Operators of a step that load made of nodes of a delegate, with the last node's number."""
        if self._description is None:
            self._description = describe_plan(self._program, self._method)
        plan = self._description
        calls = [plan.calls[at] for at in plan.steps[step.index].calls]
        names = [call.operator.rpartition("::")[2] for call in calls if call.operator is not None]
        return f"{'+'.join(names) or step.name} #{step.parts[-1][1]}"


def _span_event(
    name: str, named: _StepName, start: int, end: int, metadata: bytes | None = None
) -> ProfileEvent:
    return ProfileEvent(
        name,
        instruction_id=named.instruction,
        delegate_debug_metadata=metadata,
        start_time=start,
        end_time=end,
    )


def _part(named: _StepName, span: _Span) -> ProfileEvent:
    return ProfileEvent(
        instruction_id=named.instruction,
        delegate_debug_id_str=named.delegate_part,
        delegate_debug_metadata=named.metadata,
        start_time=span.start,
        end_time=span.end,
    )


def _values(named: _StepName, found: Iterable[tuple[int, Value | Tensor]]) -> Iterator[Event]:
    """The values of a step; tensors of one argument are a list."""
    by_position: dict[int, list[Value | Tensor]] = {}
    for position, value in found:
        by_position.setdefault(position, []).append(value)
    for ordinal, members in enumerate(by_position.values()):
        if named.is_fused and ordinal:
            return  # nobody says which of its instructions wrote a further result
        tensors = [each for each in members if isinstance(each, Tensor)]
        if len(members) > 1:
            entry = Value("TensorList", tensor_list=TensorList(tensors))
        else:
            (only,) = members
            entry = Value("Tensor", tensor=only) if isinstance(only, Tensor) else only
        yield Event(
            debug_event=DebugEvent(
                instruction_id=named.instruction,
                debug_entry=entry,
                delegate_debug_id_str=named.delegate_part,
            )
        )


def record_etdump(
    program: Program,
    inputs: Iterable[Any],
    method: str = "forward",
    *,
    runs: int = 1,
    debug_buffer_size: int = 0,
    num_threads: int | None = None,
    backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None,
) -> EtdumpRecorder:
    """Loads a method, calls it `runs` times, and gives what was recorded.

    Raises:
        LimitExceeded: the values do not fit into the debug buffer.
        PteronError: those of loading and calling the method.
    """
    recorder = EtdumpRecorder(program, debug_buffer_size=debug_buffer_size)
    session = recorder.load_method(method, num_threads=num_threads, backend_options=backend_options)
    arguments = list(inputs)
    for _ in range(runs):
        recorder.execute(session, arguments)
    return recorder
