"""The runs of an ETDump that did the same, as one block of events."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pteron.devtools.data_frames import pandas_or_error
from pteron.devtools.etdump.flatbuffer import EtdumpError
from pteron.devtools.etdump.recorder import stated_handles, step_instructions
from pteron.devtools.etdump.schema import DebugEvent, ETDump, ProfileEvent, RunData
from pteron.devtools.inspector.debug_values import inflate_value
from pteron.devtools.inspector.event import Event, PerfData
from pteron.devtools.inspector.time_scale import TimeScale

_WRAPS_AT = 2**32 - 1
#: What is known of an event before its runs: name, instruction, identifiers of a part of a delegate.
Signature = tuple[str, int, int, str]


@dataclass
class EventBlock:
    """Runs with the same events. `run_output`: the outputs of the first; `reference_output`: those that the
    ETRecord has for the bundled input.
    """

    name: str
    events: list[Event] = field(default_factory=list)
    source_time_scale: TimeScale = TimeScale.NS
    target_time_scale: TimeScale = TimeScale.MS
    bundled_input_index: int | None = None
    run_output: list[Any] | None = None
    reference_output: list[Any] | None = None

    def to_dataframe(self, include_units: bool = False, include_delegate_debug_data: bool = False) -> Any:
        """The events as a pandas data frame, one row each, with the metadata of delegates where asked for.

        Raises:
            ImportError: pandas is not installed.
            ValueError: the parser of metadata gives neither a list nor a dict.
        """
        pd = pandas_or_error("EventBlock.to_dataframe")
        units = f" ({self.target_time_scale.value})" if include_units else ""
        if not self.events:
            return pd.DataFrame()
        frame = pd.concat([event.to_dataframe(units) for event in self.events], ignore_index=True)
        frame.insert(0, "event_block_name", np.asarray([self.name] * len(self.events)), allow_duplicates=True)
        if include_delegate_debug_data:
            rows = [_metadata_columns(event) for event in self.events]
            if any(rows):
                frame = pd.concat([frame, pd.DataFrame(rows)], axis=1)
        return frame


def _metadata_columns(event: Event) -> dict[str, Any]:
    found = event.delegate_debug_metadatas
    if isinstance(found, dict):
        return found
    if isinstance(found, list):
        return {"delegate_debug_metadata": found} if found else {}
    raise ValueError(f"Unexpected type for delegate_debug_metadata: {type(found)}")


@dataclass
class _Entry:
    """One event of one run: spans of the same signature, and the values that were written with it."""

    signature: Signature
    spans: list[ProfileEvent] = field(default_factory=list)
    values: list[DebugEvent] = field(default_factory=list)


@dataclass(frozen=True)
class Reading:
    """How an ETDump is read: units, the bytes of values, and what callers know of delegates' metadata and
    clocks.
    """

    source: TimeScale
    target: TimeScale
    factor: float
    buffer: bytes | None = None
    metadata_parser: Callable[[list[Any]], Any] | None = None
    time_converter: Callable[[Any, Any], Any] | None = None


def event_blocks(dump: ETDump, reading: Reading) -> list[EventBlock]:
    """The blocks of a file, in the order of their first runs.

    Raises:
        EtdumpError: an event without contents, a value that cannot be read, times that go backwards.
    """
    groups: dict[tuple[Any, ...], list[tuple[RunData, list[_Entry]]]] = {}
    for run in dump.run_data:
        if run.events is None:
            continue
        entries = _entries(run)
        key = (
            run.name or "",
            run.bundled_input_index,
            *((each.signature, bool(each.values)) for each in entries),
        )
        groups.setdefault(key, []).append((run, entries))
    return [_block(runs, reading) for runs in groups.values()]


def _entries(run: RunData) -> list[_Entry]:
    """The events of a run in their order. Values belong to every span of their instruction."""
    spans: dict[tuple[int, int, int, str], dict[Signature, _Entry]] = {}
    values: dict[tuple[int, int, int, str], list[DebugEvent]] = {}
    for event in run.events or ():
        found: ProfileEvent | DebugEvent | None = event.profile_event or event.debug_event
        if found is None:
            if event.allocation_event is None:
                raise EtdumpError("the ETDump file is damaged: an event without contents")
            continue
        if isinstance(found, DebugEvent):
            if found.debug_entry is None:
                raise EtdumpError("the ETDump file is damaged: an event without its value")
            if _is_output(found):
                continue
        identifier = found.delegate_debug_id_int, found.delegate_debug_id_str or ""
        # A chain is signed in one table and unsigned in the other.
        key = found.instruction_id, found.chain_index % 2**32, *identifier
        own = spans.setdefault(key, {})
        if isinstance(found, DebugEvent):
            values.setdefault(key, []).append(found)
        else:
            signature = found.name or "", found.instruction_id, *identifier
            own.setdefault(signature, _Entry(signature)).spans.append(found)
    entries = []
    for key, own in spans.items():
        held = values.get(key, [])
        if not own and held:
            name = held[0].name or ""
            own[name, key[0], key[2], key[3]] = _Entry((name, key[0], key[2], key[3]))
        for entry in own.values():
            entry.values = held
            entries.append(entry)
    return entries


def _is_output(event: DebugEvent) -> bool:
    entry = event.debug_entry
    return entry is not None and entry.output is not None and entry.output.bool_val


def _block(runs: Sequence[tuple[RunData, list[_Entry]]], reading: Reading) -> EventBlock:
    first = runs[0][0]
    outputs = [
        inflate_value(event.debug_event.debug_entry, reading.buffer)
        for event in first.events or ()
        if event.debug_event is not None
        and event.debug_event.debug_entry is not None
        and _is_output(event.debug_event)
    ]
    return EventBlock(
        name=first.name or "",
        events=[_event(over_runs, reading) for over_runs in zip(*(found for _, found in runs), strict=True)],
        source_time_scale=reading.source,
        target_time_scale=reading.target,
        bundled_input_index=first.bundled_input_index if first.bundled_input_index >= 0 else None,
        run_output=outputs,
    )


def _event(over_runs: Sequence[_Entry], reading: Reading) -> Event:
    name, instruction, number, text = over_runs[0].signature
    identifier: int | str | None = number if number != -1 else text or None
    is_delegated = identifier is not None
    event = Event(
        name=str(identifier) if is_delegated else name,
        delegate_debug_identifier=identifier,
        is_delegated_op=is_delegated,
        _instruction_id=instruction,
        _delegate_metadata_parser=reading.metadata_parser,
        _delegate_time_scale_converter=reading.time_converter,
    )
    if over_runs[0].spans:
        _add_times(event, over_runs, reading)
    _add_values(event, over_runs, reading.buffer)
    return event


def _add_times(event: Event, over_runs: Sequence[_Entry], reading: Reading) -> None:
    """One number for each run: of a step in a loop the time of all its turns."""
    event.perf_data = PerfData(
        [sum(_elapsed(event, span, reading) for span in entry.spans) for entry in over_runs]
    )
    event._start_time = [entry.spans[0].start_time for entry in over_runs]
    metadata = [entry.spans[0].delegate_debug_metadata or b"" for entry in over_runs]
    event._instructions = tuple(step_instructions(metadata[0]))
    event._stated_handles = tuple(stated_handles(metadata[0]))
    if any(metadata) and not event._instructions and not event._stated_handles:
        event._delegate_debug_metadatas = [each or "" for each in metadata]


def _elapsed(event: Event, span: ProfileEvent, reading: Reading) -> float:
    convert = reading.time_converter
    if event.is_delegated_op and convert is not None:
        begin, end = (convert(event.name, time) for time in (span.start_time, span.end_time))
        return float(_difference(begin, end))
    return float(_difference(span.start_time, span.end_time)) / reading.factor


def _difference(start: float, end: float) -> float:
    """The time between two readings; a clock of 32 bits may have begun anew."""
    if start <= end:
        return end - start
    if start > _WRAPS_AT:
        raise EtdumpError(
            "a span of the ETDump ends before it begins", got=f"start_time {start}, end_time {end}"
        )
    return _WRAPS_AT - start + end


def _add_values(event: Event, over_runs: Sequence[_Entry], buffer: bytes | None) -> None:
    found = [_inflated(entry.values, buffer) for entry in over_runs if entry.values]
    if not found:
        return
    event.debug_data = found[0]
    if any(not _are_same(found[0], other) for other in found[1:]):
        warnings.warn(
            f"event {event.name!r} wrote other values in later runs; those of the first are kept",
            stacklevel=5,
        )


def _inflated(values: Sequence[DebugEvent], buffer: bytes | None) -> list[Any]:
    return [inflate_value(each.debug_entry, buffer) for each in values if each.debug_entry is not None]


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_same, one, other))
    if hasattr(one, "shape") and hasattr(other, "shape"):
        if hasattr(one, "equal"):
            return bool(one.equal(other))
        return bool(np.array_equal(one, other))
    return bool(one == other)


def handles_as_tuple(handles: Any) -> tuple[int, ...]:
    """Debug handles, one or several, as a tuple."""
    return (handles,) if isinstance(handles, int) else tuple(handles or ())


def resolved(
    blocks: Sequence[EventBlock], handle_map: Any, delegate_map: Any, num_outputs: Any
) -> Iterator[Event]:
    """Gives events the debug handles of their instruction, or of their part of a delegate."""
    handles_of, delegates = _by_number(handle_map), _by_number(delegate_map)
    counts = _by_number(num_outputs)
    for block in blocks:
        for event in block.events:
            instruction = event._instruction_id
            if instruction is None or instruction not in handles_of:
                continue
            event.num_outputs = counts.get(instruction, 1)
            delegate = delegates.get(instruction)
            if event.delegate_debug_identifier is None:
                event.debug_handles = _union(handles_of, event)
                if event.name == "DELEGATE_CALL" and delegate is not None:
                    event.delegate_backend_name = delegate.get("name", "")
            elif delegate is None:
                event.debug_handles = event._stated_handles or handles_of[instruction]
            else:
                event.delegate_backend_name = delegate.get("name", "")
                event.debug_handles = event._stated_handles or _of_part(
                    delegate.get("delegate_map") or {}, event.delegate_debug_identifier
                )
            yield event


def _union(handles_of: dict[int, Any], event: Event) -> Any:
    if len(event._instructions) < 2:
        return handles_of[event._instruction_id or 0]
    found = [handle for each in event._instructions for handle in handles_as_tuple(handles_of.get(each))]
    return list(dict.fromkeys(found))


def _of_part(handles: dict[Any, Any], identifier: int | str) -> Any:
    """The handles of a part, by its identifier, or by one that is in it."""
    for key in (identifier, str(identifier)):
        if key in handles:
            return handles[key]
    inside = [key for key in handles if isinstance(key, str) and key in str(identifier)]
    return handles[max(inside, key=len)] if inside else None


def _by_number(given: Any) -> dict[int, Any]:
    """A map by instruction; a record that was read has text for keys."""
    return {int(key): value for key, value in (given or {}).items()}
