"""Which value of a run is the same operator's as which value of the reference, by their debug handles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pteron.devtools.inspector.comparators import DebugHandle, IntermediateOutputMapping
from pteron.devtools.inspector.event_block import EventBlock, handles_as_tuple

#: Spans that the runtime lays around each operator.
_AROUND_OPERATORS = "OPERATOR_CALL"


def runtime_outputs(
    blocks: Sequence[EventBlock],
) -> tuple[dict[DebugHandle, tuple[Any, int]], dict[DebugHandle, list[str]]]:
    """(handles → values and number of results, handles → name of the event) of all events with operators.

    Of several instructions with the same handles the last one counts; where handles overlap they become one
    key, in the order of the instructions.
    """
    covered = _inside_delegates(blocks)
    found: dict[DebugHandle, tuple[int, Any, int]] = {}
    names: dict[DebugHandle, list[str]] = {}
    for event in (event for block in blocks for event in block.events):
        handles = handles_as_tuple(event.debug_handles)
        if event.name == _AROUND_OPERATORS or not event.op_types or not handles:
            continue
        inside = covered.get(event.delegate_backend_name, set())
        if event.name == "DELEGATE_CALL" and inside & set(handles):
            continue  # its parts have reported what they wrote
        instruction = event._instruction_id if event._instruction_id is not None else -1
        if handles not in found or instruction > found[handles][0]:
            found[handles] = instruction, event.debug_data, event.num_outputs
            names[handles] = [event.name]
    return {key: (data, count) for key, (_, data, count) in _merged(found).items()}, names


def _inside_delegates(blocks: Sequence[EventBlock]) -> dict[str | None, set[int]]:
    """Backend → the handles of parts that have reported values."""
    covered: dict[str | None, set[int]] = {}
    for event in (event for block in blocks for event in block.events):
        if event.is_delegated_op and event.op_types and event.debug_data:
            covered.setdefault(event.delegate_backend_name, set()).update(
                handles_as_tuple(event.debug_handles)
            )
    return covered


def _merged(
    found: dict[DebugHandle, tuple[int, Any, int]],
) -> dict[DebugHandle, tuple[int, Any, int]]:
    merged: dict[DebugHandle, tuple[int, Any, int]] = {}
    for handles, value in found.items():
        key, kept = handles, value
        for other in [each for each in merged if set(each) & set(handles)]:
            known = merged.pop(other)
            if known[0] < kept[0]:
                key = _joined(other, key)
            else:
                key, kept = _joined(key, other), known
        merged[key] = kept
    return merged


def _joined(earlier: DebugHandle, later: DebugHandle) -> DebugHandle:
    """Both, each handle once and those of the later last."""
    return *(each for each in earlier if each not in later), *dict.fromkeys(later)


def paired(
    reference: dict[DebugHandle, Any], run: dict[DebugHandle, tuple[Any, int]]
) -> IntermediateOutputMapping:
    """The outputs of the reference beside those of the run.

    An event that stands for several operators is compared with the last of them. An event with a handle
    outside of which an operator of the reference lies too is not compared.
    """
    pairs: dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]] = {}
    for handles, (values, count) in run.items():
        own = {key: value for key, value in reference.items() if set(key) & set(handles)}
        if not own or any(not set(key) <= set(handles) for key in own):
            continue
        for position in range(1, count + 1):
            if position > len(handles) or position > len(values) or (handles[-position],) not in own:
                continue
            expected = own[(handles[-position],)]
            value = _value_of(expected, values, count, position)
            key = handles, tuple(expected) if isinstance(expected, list) else expected
            pairs[key] = handles, value
    return pairs


def _value_of(expected: Any, values: Sequence[Any], count: int, position: int) -> Any:
    """The value of the run that belongs to an output of the reference."""
    chosen = values[-position]
    if isinstance(expected, list):
        return tuple(chosen) if isinstance(chosen, list) else tuple(values)
    if count > 1 or len(values) == 1 or not hasattr(expected, "shape"):
        return chosen
    # The run has all results of the operator, the reference the first alone.
    alike = [each for each in values if getattr(each, "shape", None) == expected.shape]
    if len(alike) > 1:
        alike = [each for each in alike if each.dtype == expected.dtype]
    return alike[0] if len(alike) == 1 else chosen
