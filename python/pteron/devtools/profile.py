"""Where the time of a call goes: by step, operator, module, source line, kernel or backend."""

from __future__ import annotations

import csv
import io
import json
import statistics
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any

from pteron._native import Method, Program, StepTimer
from pteron.devtools.callable_module import make_callable
from pteron.devtools.ceiling import Ceiling, MachineCeiling
from pteron.devtools.chrome_trace import chrome_trace
from pteron.devtools.data_frames import pandas_or_error
from pteron.devtools.description import MethodDescription, describe, describe_plan
from pteron.devtools.lifetimes import flow_of, step_accesses
from pteron.devtools.sources import Source, Sources
from pteron.devtools.step_profile import StepProfile, step_profiles

#: What a profile can be grouped by.
GROUPS = ("step", "operator", "module", "line", "kernel", "backend")


@dataclass(frozen=True)
class DelegateEvent:
    """A report of a delegate on one of its parts: times in nanoseconds of the delegate's clock.

    `start` counts from the first report of the same call, `interval` is that call's place in the timeline.
    """

    step: int
    backend: str
    identifier: int | str
    nanoseconds: int
    sources: tuple[Source, ...]
    start: int = 0
    interval: int = 0


@dataclass(frozen=True)
class Row:
    """One group of steps: `nanoseconds`, `calls`, `flops` and `nbytes` are per call of the method.

    `ceiling` is the share of what the machine can do at most: the least time that the work of each step takes
    there, by the time that the steps took. None where that is not known.
    """

    name: str
    nanoseconds: float
    share: float
    calls: float
    flops: float
    nbytes: float
    ceiling: float | None = None

    @property
    def gflops(self) -> float:
        """Operations per nanosecond."""
        return self.flops / self.nanoseconds if self.nanoseconds else 0.0

    @property
    def gigabytes(self) -> float:
        """Bytes per nanosecond."""
        return self.nbytes / self.nanoseconds if self.nanoseconds else 0.0


@dataclass(frozen=True)
class Interval:
    """One run of a step: nanoseconds since the first measured call began."""

    step: int
    start: int
    end: int


@dataclass(frozen=True)
class HelperInterval(Interval):
    """A stretch in which thread number `thread` (1 and more; the caller is 0) helped with a step."""

    thread: int


@dataclass(frozen=True, repr=False)
class Profile:
    """Times of a method's steps.

    `calls` are the nanoseconds of each measured call without a tracer, `traced_calls` those with it: the
    difference is what measuring costs. Times of steps are without it: with `outside` they make up a call.
    `flows` are pairs of steps: one writes a tensor that the other reads.
    `ceiling` is what the machine can do at most, if it is known. `helpers` is the timeline of the threads of
    the pool, `timeline` that of the thread that calls.
    """

    method: str
    num_threads: int
    calls: tuple[int, ...]
    traced_calls: tuple[int, ...]
    steps: tuple[StepProfile, ...]
    events: tuple[DelegateEvent, ...]
    timeline: tuple[Interval, ...]
    flows: tuple[tuple[int, int], ...] = ()
    ceiling: Ceiling | None = None
    helpers: tuple[HelperInterval, ...] = ()

    @property
    def nanoseconds(self) -> float:
        """Median of the calls without a tracer."""
        return statistics.median(self.calls)

    @property
    def overhead(self) -> float:
        """What tracing adds to a call, as a share of it."""
        return statistics.median(self.traced_calls) / self.nanoseconds - 1.0

    @property
    def outside(self) -> float:
        """The nanoseconds of a call that are no step's: checking and binding what it is given, giving out
        what it returns.
        """
        steps = sum(sum(step.nanoseconds) for step in self.steps) / len(self.traced_calls)
        return max(self.nanoseconds - steps, 0.0)

    def by(self, group: str) -> list[Row]:
        """The steps in groups, the longest first. The times of all groups together are those of all steps.

        Raises:
            ValueError: `group` is not one of `GROUPS`.
        """
        name = _NAMES.get(group)
        if name is None:
            raise ValueError(f"no group {group!r}; there are {', '.join(GROUPS)}")
        total = sum(sum(step.nanoseconds) for step in self.steps) or 1
        runs = len(self.traced_calls)
        found: dict[str, list[StepProfile]] = {}
        for step in self.steps:
            found.setdefault(name(step), []).append(step)
        rows = []
        for key, members in found.items():
            spent = sum(sum(step.nanoseconds) for step in members)
            least = self._least(members)
            rows.append(
                Row(
                    key,
                    spent / runs,
                    spent / total,
                    sum(len(step.nanoseconds) for step in members) / runs,
                    sum(step.flops * len(step.nanoseconds) for step in members) / runs,
                    sum(step.nbytes * len(step.nanoseconds) for step in members) / runs,
                    least / spent if least is not None and spent else None,
                )
            )
        return sorted(rows, key=lambda row: -row.nanoseconds)

    @property
    def least(self) -> float | None:
        """The least nanoseconds that the work of a call takes under the ceiling; None without one."""
        work = self._least(self.steps)
        return None if work is None else work / len(self.traced_calls)

    def _least(self, steps: Sequence[StepProfile]) -> float | None:
        """The least nanoseconds of all runs of some steps."""
        if self.ceiling is None:
            return None
        return sum(self.ceiling.least(step.flops, step.nbytes) * len(step.nanoseconds) for step in steps)

    def table(self, group: str = "step", most: int | None = None) -> str:
        """The groups as text, at most so many."""
        from pteron.devtools.text_table import text_table

        return text_table(*cells(self.by(group), most))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "method": self.method,
            "num_threads": self.num_threads,
            "call_ns": list(self.calls),
            "traced_call_ns": list(self.traced_calls),
            "overhead": self.overhead,
            "outside_ns": self.outside,
            "ceiling": None if self.ceiling is None else self.ceiling.to_dict(),
            "steps": [_step_dict(step) for step in self.steps],
            "delegate_events": [
                {
                    "step": event.step,
                    "backend": event.backend,
                    "id": event.identifier,
                    "ns": event.nanoseconds,
                    "modules": [source.module for source in event.sources],
                    "start": event.start,
                    "interval": event.interval,
                }
                for event in self.events
            ],
            "timeline": [[one.step, one.start, one.end] for one in self.timeline],
            "helpers": [[one.step, one.thread, one.start, one.end] for one in self.helpers],
        }

    def to_csv(self, group: str = "step") -> str:
        """The groups as comma-separated values; times in nanoseconds per call."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", "ns", "share", "cumulated", "calls", "flops", "bytes", "ceiling"])
        rows = self.by(group)
        for row, cumulated in zip(rows, accumulate(row.share for row in rows), strict=True):
            shares = f"{row.share:.6f}", f"{cumulated:.6f}"
            most = "" if row.ceiling is None else f"{row.ceiling:.6f}"
            work = row.calls, row.flops, row.nbytes, most
            writer.writerow([row.name, f"{row.nanoseconds:.0f}", *shares, *work])
        return out.getvalue()

    def to_json_lines(self, group: str = "step") -> str:
        """The groups as JSON lines, named as columns of `to_csv`; "ceiling" is null where not known."""
        rows = self.by(group)
        return "".join(
            json.dumps(
                {
                    "name": row.name,
                    "ns": row.nanoseconds,
                    "share": row.share,
                    "cumulated": cumulated,
                    "calls": row.calls,
                    "flops": row.flops,
                    "bytes": row.nbytes,
                    "ceiling": row.ceiling,
                }
            )
            + "\n"
            for row, cumulated in zip(rows, accumulate(row.share for row in rows), strict=True)
        )

    def to_chrome_trace(self) -> str:
        """The timeline in the trace event format: opens in Perfetto and in Chrome's `about:tracing`.

        Steps are on the thread of the call, the parts of them that other threads did on tracks of theirs,
        what delegates report on a track for each backend; memory is a counter, and flows lead from the step
        that writes a tensor to those that read it, in the first measured call.
        """
        return chrome_trace(self)

    def to_speedscope(self) -> str:
        """The timeline as speedscope reads it: module paths as stacks above the steps."""
        names: dict[str, int] = {}
        events: list[dict[str, Any]] = []

        def frame(name: str) -> int:
            return names.setdefault(name, len(names))

        for interval in self.timeline:
            step = self.steps[interval.step]
            stack = [*_modules(step.source.module), f"{step.operator} [{step.step.name}]"]
            events += [{"type": "O", "frame": frame(name), "at": interval.start} for name in stack]
            events += [{"type": "C", "frame": frame(name), "at": interval.end} for name in reversed(stack)]
        return json.dumps(
            {
                "$schema": "https://www.speedscope.app/file-format-schema.json",
                "shared": {"frames": [{"name": name} for name in names]},
                "profiles": [
                    {
                        "type": "evented",
                        "name": self.method,
                        "unit": "nanoseconds",
                        "startValue": 0,
                        "endValue": max((interval.end for interval in self.timeline), default=0),
                        "events": events,
                    }
                ],
            }
        )

    def to_dataframe(self, group: str = "step") -> Any:
        """The groups as a pandas data frame.

        Raises:
            ImportError: pandas is not installed.
        """
        pd = pandas_or_error("Profile.to_dataframe")
        return pd.DataFrame([{**row.__dict__, "gflops": row.gflops} for row in self.by(group)])

    def __repr__(self) -> str:
        return (
            f"<Profile of {self.method}: {len(self.steps)} steps, {self.nanoseconds / 1e3:.1f} us per call "
            f"in {self.num_threads} threads, median of {len(self.calls)}>"
        )

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        from pteron.devtools.html_table import html_table

        measured = (
            f"<p>{escape(self.method)}, {self.num_threads} threads, median of {len(self.calls)} calls:"
            f" {self.nanoseconds / 1e3:.1f} us; tracing adds {self.overhead:.1%}</p>"
        )
        tables = []
        for group in ("module", "operator", "step"):
            rows = self.by(group)
            shares = [row.share for row in rows]
            is_open = group == "module"
            tables.append(html_table(f"by {group}", *cells(rows), shares, is_open=is_open))
        return measured + "".join(tables)


HEADINGS = ("name", "us", "share", "cumulated", "calls", "MB", "GB/s", "GFLOP/s")


def cells(rows: Sequence[Row], most: int | None = None) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, and rows as text with the share of all up to each; at most so many."""
    has_ceiling = any(row.ceiling is not None for row in rows)
    found = [
        (
            row.name,
            f"{row.nanoseconds / 1e3:.1f}",
            f"{row.share:.1%}",
            f"{cumulated:.1%}",
            f"{row.calls:g}",
            f"{row.nbytes / 1e6:.3f}",
            f"{row.gigabytes:.1f}",
            f"{row.gflops:.1f}",
            *([f"{row.ceiling or 0.0:.0%}"] if has_ceiling else []),
        )
        for row, cumulated in zip(rows, accumulate(row.share for row in rows), strict=True)
    ]
    return (*HEADINGS, *(["of ceiling"] if has_ceiling else [])), found[:most]


def profile(
    program: Program,
    inputs: Iterable[Any],
    method: str = "forward",
    *,
    runs: int = 20,
    warmup: int = 3,
    num_threads: int | None = None,
    ceiling: Ceiling | MachineCeiling | None = None,
    backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None,
) -> Profile:
    """Runs a method `runs` times without and `runs` times with a tracer, in turn, after `warmup` calls.

    `inputs` are those of `Method.execute`. State of the method advances with every call. With `ceiling`, as
    `pteron.devtools.ceiling.machine_ceiling` measures it or of other figures, rows say what share they reach.

    Raises:
        PteronError: those of loading and calling the method.
        ValueError: `runs` is not positive.
    """
    if runs < 1:
        raise ValueError(f"a profile needs one run at least, not {runs}")
    session = program.load_method(method, num_threads=num_threads, backend_options=backend_options)
    plan = describe_plan(program, method)
    sources = Sources(program, method)
    arguments = list(inputs)
    for _ in range(warmup):
        session.execute(arguments)
    plain, traced, timer = [], [], StepTimer()
    for _ in range(runs):
        plain.append(_length(_time(session, arguments, None)))
        traced.append(_time(session, arguments, timer))
    file = describe(program).methods[method]
    found = timer.intervals()
    origin = found[0][1] if found else 0
    steps = step_profiles(plan, file, sources, step_times(found, traced, statistics.median(plain)))
    events = tuple(_events(plan, sources, timer.delegate_events()))
    intervals = tuple(Interval(step, start - origin, end - origin) for step, start, end in found)
    threads = num_threads if num_threads is not None else _default_threads()
    flows = tuple(_flows(plan))
    most = ceiling.of(plan) if isinstance(ceiling, MachineCeiling) else ceiling
    traced_calls = tuple(map(_length, traced))
    helpers = tuple(
        HelperInterval(step, start - origin, end - origin, thread)
        for step, thread, start, end in timer.helpers()
    )
    times_of_calls = tuple(plain), traced_calls
    return Profile(method, threads, *times_of_calls, steps, events, intervals, flows, most, helpers)


def _flows(plan: MethodDescription) -> Iterator[tuple[int, int]]:
    """Pairs of steps, the first of which writes what the second reads."""
    flow = flow_of(plan, step_accesses(plan))
    for at, edges in enumerate(flow.edges):
        writers = dict.fromkeys(flow.lifetimes[edge].writer for edge in edges)
        yield from ((writer, at) for writer in writers if writer is not None)


def _time(session: Method, arguments: Sequence[Any], tracer: StepTimer | None) -> tuple[int, int]:
    start = time.perf_counter_ns()
    session.execute(arguments, tracer=tracer)
    return start, time.perf_counter_ns()


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


#: Nanoseconds that watching adds to a step at most: more is a machine that was busy.
_MOST_WATCHED = 1000.0


def _excess(
    intervals: Sequence[tuple[int, int, int]], traced: Sequence[tuple[int, int]], plain: float
) -> float:
    """What each interval has too much, in nanoseconds: a reading of the clock at least. The steps of a traced
    call that take longer together than a call without tracer do so since they are watched (a reading of the
    clock ends the overlap of a step with its neighbours), each by as much as the others.
    """
    cost = StepTimer.clock_cost()
    sums, counts = [], []
    for own in _by_call(intervals, traced):
        sums.append(sum(max(stop - start - cost, 0) for _, start, stop in own))
        counts.append(len(own))
    watched = max(statistics.median(sums) - plain, 0) / max(statistics.median(counts), 1)
    return cost + min(watched, _MOST_WATCHED)


def step_times(
    intervals: Sequence[tuple[int, int, int]], traced: Sequence[tuple[int, int]], plain: float
) -> dict[int, list[int]]:
    """The nanoseconds of each step, a number for each time that it ran, without what watching adds.

    Those of one call are together the median of all calls, and at most `plain`, what a call without tracer
    takes: where the machine did something else, all steps of the call change in proportion. So steps and what
    is outside of them make up a call, on a busy machine too. Calls of fewer steps are not stretched.
    """
    cost, times = _excess(intervals, traced, plain), defaultdict[int, list[int]](list)
    calls = list(_by_call(intervals, traced))
    lengths_of = [[max(end - start - cost, 0.0) for _, start, end in own] for own in calls]
    typical = min(statistics.median(map(sum, lengths_of)), plain)
    most = max(map(len, calls))
    for own, lengths in zip(calls, lengths_of, strict=True):
        scale = typical / (sum(lengths) or 1.0)
        if len(own) < most:
            scale = min(scale, 1.0)
        for (step, _, _), length in zip(own, lengths, strict=True):
            times[step].append(int(length * scale))
    return times


def _by_call(
    intervals: Sequence[tuple[int, int, int]], traced: Sequence[tuple[int, int]]
) -> Iterator[Sequence[tuple[int, int, int]]]:
    """The intervals of each traced call: those that ended before it did, but behind the end of the last one.

    The clock of intervals is set by Python's, as well as a call of it allows.
    """
    ends = [end for _, _, end in intervals]
    first = 0
    for _, end in traced:
        last = bisect_right(ends, end)
        yield intervals[first:last]
        first = last


def _default_threads() -> int:
    from pteron._native import Runtime

    return Runtime.shared().num_threads


def _events(
    plan: MethodDescription, sources: Sources, found: Sequence[tuple[int, str, int | str, int, int, int]]
) -> Iterator[DelegateEvent]:
    first: dict[int, int] = {}
    for _, _, _, start, _, interval in found:
        first[interval] = min(first.get(interval, start), start)
    for index, backend, identifier, start, end, interval in found:
        calls = [plan.calls[at] for at in plan.steps[index].calls]
        delegate = next((call.delegate for call in calls if call.delegate is not None), None)
        places = [] if delegate is None else sources.event(delegate, identifier)
        begin = start - first[interval]
        yield DelegateEvent(index, backend, identifier, end - start, tuple(places), begin, interval)


def _modules(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[: length + 1]) for length in range(len(parts))]


def _step_dict(step: StepProfile) -> dict[str, Any]:
    return {
        "index": step.step.index,
        "kernel": step.step.name,
        "operator": step.operator,
        "backend": step.backend,
        "instructions": list(step.step.instructions),
        "module": step.source.module,
        "line": step.source.line,
        "modules": sorted({source.module for source in step.sources if source.module}),
        "ns": list(step.nanoseconds),
        "flops": step.flops,
        "bytes": step.nbytes,
        "live_bytes": step.live_bytes,
    }


def _step_name(step: StepProfile) -> str:
    where = step.source.module or step.source.line
    return f"{step.step.index} {step.operator}{f' ({where})' if where else ''}"


_NAMES: dict[str, Callable[[StepProfile], str]] = {
    "step": _step_name,
    "operator": lambda step: step.operator,
    "module": lambda step: step.source.module or "(not known)",
    "line": lambda step: step.source.line or "(not known)",
    "kernel": lambda step: step.step.name,
    "backend": lambda step: step.backend or "(none)",
}


make_callable(__name__)
