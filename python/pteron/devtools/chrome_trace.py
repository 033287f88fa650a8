"""A profile's timeline in the trace event format of Chrome, which Perfetto opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron.devtools.profile import Interval, Profile

#: The track of the thread that calls; those of its helpers follow, then those of delegates.
CALLER = 1
_PROCESS = 1


def chrome_trace(profile: Profile) -> str:
    """The trace as JSON; times in microseconds from the first measured call on."""
    backends = list(dict.fromkeys(event.backend for event in profile.events))
    threads = max((one.thread for one in profile.helpers), default=0)
    tracks = {backend: CALLER + threads + 1 + at for at, backend in enumerate(backends)}
    events = [
        _named("process_name", CALLER, f"pteron {profile.method}"),
        _named("thread_name", CALLER, "steps"),
        *(_named("thread_name", CALLER + at, f"helper {at}") for at in range(1, threads + 1)),
        *(_named("thread_name", track, f"delegate {backend}") for backend, track in tracks.items()),
        *_steps(profile),
        *_helpers(profile),
        *_memory(profile),
        *_delegates(profile, tracks),
        *_flows(profile),
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": what, "args": {"name": name}}


def _steps(profile: Profile) -> Iterator[dict[str, Any]]:
    for interval in profile.timeline:
        step = profile.steps[interval.step]
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": CALLER,
            "name": step.operator,
            "cat": step.backend or "kernel",
            "ts": interval.start / 1e3,
            "dur": (interval.end - interval.start) / 1e3,
            "args": {
                "step": step.step.index,
                "kernel": step.step.name,
                "module": step.source.module,
                "line": step.source.line,
                "instructions": list(step.step.instructions),
                "flops": step.flops,
                "bytes": step.nbytes,
            },
        }


def _helpers(profile: Profile) -> Iterator[dict[str, Any]]:
    for interval in profile.helpers:
        step = profile.steps[interval.step]
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": CALLER + interval.thread,
            "name": step.operator,
            "cat": "helper",
            "ts": interval.start / 1e3,
            "dur": (interval.end - interval.start) / 1e3,
            "args": {"step": step.step.index, "kernel": step.step.name},
        }


def _memory(profile: Profile) -> Iterator[dict[str, Any]]:
    for interval in profile.timeline:
        yield {
            "ph": "C",
            "pid": _PROCESS,
            "name": "live planned memory",
            "ts": interval.start / 1e3,
            "args": {"bytes": profile.steps[interval.step].live_bytes},
        }


def _delegates(profile: Profile, tracks: dict[str, int]) -> Iterator[dict[str, Any]]:
    """A delegate's clock need not be ours: its first report begins with the step."""
    for event in profile.events:
        begin = profile.timeline[event.interval].start if profile.timeline else 0
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": tracks[event.backend],
            "name": str(event.identifier),
            "cat": event.backend,
            "ts": (begin + event.start) / 1e3,
            "dur": event.nanoseconds / 1e3,
            "args": {
                "step": event.step,
                "modules": [source.module for source in event.sources],
                "lines": [source.line for source in event.sources],
            },
        }


def _flows(profile: Profile) -> Iterator[dict[str, Any]]:
    """From the step that writes a tensor to those that read it, in the first measured call."""
    first: dict[int, Interval] = {}
    for interval in profile.timeline:
        first.setdefault(interval.step, interval)
    number = 0
    for source, target in profile.flows:
        if source not in first or target not in first or first[target].start < first[source].end:
            continue
        number += 1
        common = {"pid": _PROCESS, "tid": CALLER, "id": number, "name": "tensor", "cat": "tensor"}
        # Inside the slices that they join: Perfetto binds a flow to the slice around its time.
        yield {**common, "ph": "s", "ts": (first[source].start + first[source].end) / 2e3}
        yield {**common, "ph": "f", "bp": "e", "ts": (first[target].start + first[target].end) / 2e3}
