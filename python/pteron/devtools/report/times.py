"""Measured runs of a program: profiles and comparisons as `--json` writes them, checked against the plan."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pteron.devtools.ceiling import Ceiling
from pteron.devtools.description import MethodDescription

#: Threads that a saved profile may have.
MOST_THREADS = 1024
#: Intervals of the timeline that a report holds; whole calls, one at least.
MOST_INTERVALS = 20_000


class MeasurementError(ValueError):
    """Saved measurements that are damaged, or of another program."""


def run_data(plan: MethodDescription, saved: Mapping[str, Any]) -> dict[str, Any]:
    """What a report holds of a profile: medians per step and call in nanoseconds, and a timeline.

    Raises:
        MeasurementError: it is no profile, or one of another program or with other rewrites.
    """
    try:
        steps = saved["steps"]
        same = [tuple(step["instructions"]) for step in steps] == [step.instructions for step in plan.steps]
        if saved["method"] != plan.name or not same:
            raise MeasurementError(
                f"the profile of method {saved['method']!r} has {len(steps)} steps that are not those of"
                f" {plan.name!r} here, which has {len(plan.steps)}: it is of another program, or was taken"
                " with other rewrites or another instruction set"
            )
        calls = [_whole(value) for value in saved["call_ns"]]
        traced = [_whole(value) for value in saved["traced_call_ns"]]
        timeline = _timeline(saved.get("timeline", ()), len(steps), len(traced))
        times = [[_whole(value) for value in step["ns"]] for step in steps]
        return {
            "threads": _whole(saved["num_threads"]),
            "calls": calls,
            "traced": traced,
            "overhead": statistics.median(traced) / max(statistics.median(calls), 1) - 1.0,
            "kernels": [str(step["kernel"]) for step in steps],
            "ns": [_per_call(values, len(traced)) for values in times],
            "least": [min(values, default=0) for values in times],
            "times": [len(values) / len(traced) for values in times],
            "events": [
                [_whole(event["step"]), str(event["id"]), _whole(event["ns"]), _module(event)]
                for event in saved.get("delegate_events", ())
            ],
            "timeline": timeline,
            "helpers": list(_helpers(saved.get("helpers", ()), timeline, len(steps))),
            "ceiling": _ceiling(saved.get("ceiling")),
            "inside": list(_inside(saved.get("delegate_events", ()), timeline)),
        }
    except MeasurementError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as e:
        raise MeasurementError(f"not the output of pteron profile --json ({e})") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def _ceiling(saved: Any) -> Ceiling | None:
    if saved is None:
        return None
    found = Ceiling(float(saved["gflops"]), float(saved["gigabytes"]))
    if not all(0 < value < float("inf") for value in (found.gflops, found.gigabytes)):
        raise TypeError("a ceiling is no positive number")
    return found


def _module(event: Mapping[str, Any]) -> str:
    modules = event.get("modules", ())
    return str(modules[0]) if modules else ""


def _per_call(values: Sequence[int], calls: int) -> float:
    """The median time of a step in one call; of a step that ran in rounds, the mean."""
    if len(values) == calls:
        return float(statistics.median(values))
    return sum(values) / calls


def _timeline(intervals: Sequence[Any], steps: int, calls: int) -> list[list[int]]:
    """The intervals of the first calls: step, start, end."""
    known = [[_whole(value) for value in interval] for interval in intervals]
    if any(len(one) != 3 or one[0] >= steps for one in known):
        raise TypeError("an interval of the timeline is of no step")
    whole = max(len(known) // max(calls, 1), 1)
    return known[: max(MOST_INTERVALS // whole, 1) * whole]


def _helpers(intervals: Sequence[Any], timeline: Sequence[Sequence[int]], steps: int) -> Iterator[list[int]]:
    """What other threads did in the calls of the timeline: step, thread, start, end."""
    last = max((end for _, _, end in timeline), default=0)
    for interval in intervals:
        known = [_whole(value) for value in interval]
        if len(known) != 4 or known[0] >= steps or not 0 < known[1] <= MOST_THREADS:
            raise TypeError("an interval of a helper is of no step or thread")
        if known[2] <= last:
            yield known


def _inside(events: Sequence[Any], timeline: Sequence[Sequence[int]]) -> Iterator[list[Any]]:
    """What delegates report, at its place in the timeline: step, start, end, what it is called."""
    for event in events:
        at = _whole(event.get("interval", len(timeline)))
        if at < len(timeline):
            step, start, _ = timeline[at]
            begin = start + _whole(event["start"])
            yield [step, begin, begin + _whole(event["ns"]), f"{event['id']} {_module(event)}".strip()]


def step_errors(plan: MethodDescription, saved: Mapping[str, Any]) -> list[float | None]:
    """The largest relative error of each step; None where none was compared.

    Raises:
        MeasurementError: it is no comparison, or names steps that the plan has not.
    """
    out: list[float | None] = [None] * len(plan.steps)
    try:
        for value in saved["values"]:
            at, error = _whole(value["step"]), float(value["errors"]["relative"])
            if at >= len(out):
                raise MeasurementError(
                    f"the comparison has a step {at}, {plan.name!r} has {len(out)}: it is of another program"
                )
            # JSON has no infinities: a colour needs a number.
            out[at] = max(out[at] or 0.0, min(error, 1e30) if error == error else 1e30)
    except (KeyError, TypeError) as e:
        raise MeasurementError(f"not the output of pteron compare --json ({e})") from None
    return out
