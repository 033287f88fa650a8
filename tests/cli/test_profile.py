"""Profiles: the accounts add up, and every format is what its readers expect."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron._native import StepTimer
from pteron.cli.inputs import read_inputs
from pteron.devtools.ceiling import Ceiling
from pteron.devtools.description import describe, describe_plan
from pteron.devtools.flops import flops
from pteron.devtools.profile import GROUPS, Profile, _excess, profile, step_times
from pteron.exir import to_edge
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "loops": ROOT / "tests" / "corpus" / "seeds" / "loops.pte",
    "state": ROOT / "tests" / "corpus" / "seeds" / "cache.pte",
    "xnnpack": ROOT / "rust" / "pteron-xnnpack" / "tests" / "programs" / "block.pte",
}


@pytest.fixture(scope="module")
def found(model_file: Path) -> Profile:
    program = pteron.load(model_file)
    return profile(program, [np.ones((1, 3, 8, 8), np.float32)], runs=5, num_threads=1)


def test_every_projection_has_the_same_total(found: Profile) -> None:
    total = sum(sum(step.nanoseconds) for step in found.steps) / 5
    assert total > 0
    for group in GROUPS:
        rows = found.by(group)
        assert sum(row.nanoseconds for row in rows) == pytest.approx(total)
        assert sum(row.share for row in rows) == pytest.approx(1.0)
        assert sum(row.flops for row in rows) == sum(step.flops for step in found.steps)
        assert sum(row.calls for row in rows) == len(found.steps)


def test_steps_do_not_take_longer_than_calls_without_a_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepTimer, "clock_cost", staticmethod(lambda: 20))
    calls = [(0, 1000), (2000, 3000), (4000, 9000)]
    intervals = [
        (step, begin + 400 * step, begin + 400 * step + 320) for begin, _ in calls for step in (0, 1)
    ]
    # The steps of a call take 2 x 300 ns, which is no longer than the call without a tracer.
    assert _excess(intervals, calls, 700) == 20
    # Here they take 100 ns too much, 50 in each.
    assert _excess(intervals, calls, 500) == 70
    assert _excess([], calls, 500) == 20
    # So much is not what watching adds: the machine was busy.
    slow = [(0, begin, begin + 9_000) for begin in (0, 10_000, 20_000)]
    assert _excess(slow, [(begin, end) for _, begin, end in slow], 500) == 1020


def test_a_traced_call_in_which_the_machine_did_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepTimer, "clock_cost", staticmethod(lambda: 0))
    calls = [(at * 10_000, at * 10_000 + 9_000) for at in range(5)]
    # Two steps of 100 and 300 ns; in the last call another 3,600 ns pass in the second one.
    intervals = [
        one for begin, _ in calls for one in ((0, begin, begin + 100), (1, begin + 100, begin + 400))
    ]
    intervals[-1] = 1, intervals[-1][1], intervals[-1][2] + 3_600
    assert step_times(intervals, calls, 500) == {0: [100] * 4 + [10], 1: [300] * 4 + [390]}
    # A call of fewer steps is shorter than the others.
    assert step_times(intervals[1:], calls, 500)[1][0] == 300
    assert step_times([], calls, 500) == {}


@pytest.mark.parametrize("name", ["network", *PROGRAMS])
def test_steps_and_what_is_outside_of_them_make_up_a_call(name: str, found: Profile) -> None:
    if name != "network":
        program = pteron.load(PROGRAMS[name])
        found = profile(program, read_inputs([], program.inputs(), 0), runs=5, num_threads=1)
    steps = sum(sum(step.nanoseconds) for step in found.steps) / 5
    assert 0 < steps <= found.nanoseconds
    assert steps + found.outside == pytest.approx(found.nanoseconds)
    assert found.to_dict()["outside_ns"] == found.outside


def test_threads_that_help_have_a_timeline_of_their_own() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(768, 768) for _ in range(8)])
    exported = torch.export.export(model.eval(), (torch.randn(256, 768),))
    runtime = pteron.Runtime(num_threads=2)
    program = pteron.load(to_edge(exported).to_executorch().buffer, runtime=runtime)
    found = profile(program, [np.ones((256, 768), np.float32)], runs=5, num_threads=2)
    assert {one.thread for one in found.helpers} == {1}
    for one in found.helpers:
        # Inside of the step that it helped with.
        same = [of for of in found.timeline if of.step == one.step]
        assert any(of.start <= one.start <= one.end <= of.end for of in same)
    trace = json.loads(found.to_chrome_trace())["traceEvents"]
    assert len([event for event in trace if event.get("cat") == "helper"]) == len(found.helpers)
    assert "helper 1" in [event["args"]["name"] for event in trace if event["name"] == "thread_name"]
    alone = profile(program, [np.ones((256, 768), np.float32)], runs=1, num_threads=1)
    assert not alone.helpers


@pytest.mark.parametrize("name", ["loops", "state", "xnnpack"])
def test_every_form_has_the_total_of_the_steps(name: str) -> None:
    path = PROGRAMS[name]
    program = pteron.load(path)
    values = read_inputs([], program.inputs(), 0)
    found = profile(program, values, runs=3, warmup=0, num_threads=1, ceiling=Ceiling(100.0, 10.0))
    total = sum(sum(step.nanoseconds) for step in found.steps) / 3
    calls = sum(len(step.nanoseconds) for step in found.steps) / 3
    assert total > 0
    least = []
    for group in GROUPS:
        lines = [json.loads(line) for line in found.to_json_lines(group).splitlines()]
        table = list(csv.DictReader(io.StringIO(found.to_csv(group))))
        for one, nanoseconds in (
            (found.by(group), sum(row.nanoseconds for row in found.by(group))),
            (lines, sum(row["ns"] for row in lines)),
        ):
            assert len(one) == len(table)
            assert nanoseconds == pytest.approx(total)
        assert sum(float(row["ns"]) for row in table) == pytest.approx(total, abs=len(table))
        assert sum(row["calls"] for row in lines) == pytest.approx(calls)
        least.append(sum(row["ceiling"] * row["ns"] for row in lines))
    assert least == pytest.approx([found.least] * len(GROUPS))
    whole = found.to_dict()
    assert sum(sum(step["ns"]) for step in whole["steps"]) / 3 == pytest.approx(total)
    # Intervals of traces hold one reading of the clock each, which is no time of the step.
    traced = sum(end - start for _, start, end in whole["timeline"]) / 3
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    steps = [event["dur"] for event in events if event["ph"] == "X" and "kernel" in event["args"]]
    assert sum(steps) * 1e3 / 3 == pytest.approx(traced)
    (scope,) = json.loads(found.to_speedscope())["profiles"]
    spent, stack = 0.0, []
    for event in scope["events"]:
        if event["type"] == "O":
            stack.append(event["at"])
        else:
            start = stack.pop()
            spent += 0.0 if stack else event["at"] - start
    assert spent / 3 == pytest.approx(traced)
    # Steps are those of the median call, which may be above the mean.
    assert total <= max(found.traced_calls)


def test_steps_know_their_modules_and_lines(found: Profile) -> None:
    modules = {row.name for row in found.by("module")}
    assert {"first.0", "head"} <= modules
    assert any("conftest.py:" in row.name for row in found.by("line"))
    assert {row.name for row in found.by("kernel")} == {step.step.name for step in found.steps}


def test_operations_of_products(model_file: Path) -> None:
    found = profile(pteron.load(model_file), [np.ones((1, 3, 8, 8), np.float32)], runs=1)
    counts = {step.operator: step.flops for step in found.steps}
    assert counts["aten::convolution.out"] == 2 * 8 * 6 * 6 * 3 * 3 * 3 + 8 * 6 * 6
    assert counts["aten::addmm.out"] == 2 * 4 * 288
    assert counts["aten::_softmax.out"] == 4
    file = describe(pteron.load(model_file)).methods["forward"]
    assert sum(flops(file, call) for call in file.calls) == sum(counts.values())


def test_a_loop_counts_each_round(tmp_path: Path) -> None:
    class Loop(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch._higher_order_ops.while_loop import while_loop

            def more(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return i < 5

            def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return i + 1, (y * 2).sin()

            return while_loop(more, body, (torch.zeros((), dtype=torch.int64), x))[1]

    exported = torch.export.export(Loop(), (torch.randn(4),))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    profiled = profile(program, [np.ones(4, np.float32)], runs=2)
    assert max(len(step.nanoseconds) for step in profiled.steps) >= 2 * 5


def test_formats(model_file: Path, found: Profile, command: Command, tmp_path: Path) -> None:
    text = command("profile", model_file, "--by", "module", "--runs", 2).out
    assert "tracing adds" in text
    assert "head" in text
    rows = list(
        csv.DictReader(io.StringIO(command("profile", model_file, "--runs", 2, "--format", "csv").out))
    )
    assert len(rows) == len(found.steps)
    assert float(rows[0]["ns"]) > 0
    assert float(rows[-1]["cumulated"]) == pytest.approx(1.0)
    lines = command(
        "profile", model_file, "--runs", 2, "--by", "module", "--format", "jsonl"
    ).out.splitlines()
    objects = [json.loads(line) for line in lines]
    assert [one["cumulated"] for one in objects] == pytest.approx(
        list(itertools.accumulate(one["share"] for one in objects))
    )
    assert {one["name"] for one in objects} == {row.name for row in found.by("module")}
    assert objects[0].keys() == rows[0].keys()
    data = command("profile", model_file, "--runs", 2, "--json").json
    assert [len(step["ns"]) for step in data["steps"]] == [2] * len(found.steps)
    trace = tmp_path / "trace.json"
    assert command("profile", model_file, "--runs", 2, "--format", "chrome", "-o", trace).code == 0
    everything = json.loads(trace.read_text())["traceEvents"]
    events = [event for event in everything if event["ph"] == "X"]
    assert len(events) == 2 * len(found.steps)
    assert min(event["ts"] for event in events) == 0
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(events))
    memory = [event["args"]["bytes"] for event in everything if event["ph"] == "C"]
    assert memory == [step.live_bytes for step in found.steps] * 2
    assert max(memory) <= describe_plan(pteron.load(model_file)).session_bytes
    starts = {event["id"]: event["ts"] for event in everything if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in everything if event["ph"] == "f"}
    assert len(found.flows) == len(starts) == len(found.steps) - 1
    assert all(starts[number] < ends[number] for number in ends)
    assert {event["args"]["name"] for event in everything if event["ph"] == "M"} == {
        "pteron forward",
        "steps",
    }
    scope = json.loads(found.to_speedscope())
    (timeline,) = scope["profiles"]
    depth = 0
    for event in timeline["events"]:
        depth += 1 if event["type"] == "O" else -1
        assert depth >= 0
        assert event["frame"] < len(scope["shared"]["frames"])
    assert depth == 0
    assert "<table>" in found._repr_html_()


class _Reporting:
    """A delegate that reports two parts, by a clock of its own."""

    num_outputs = 1

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        outputs[0].numpy()[...] = inputs[0].numpy()
        ctx.event("first", 7_000, 9_000)
        ctx.event("second", 9_000, 9_500)


def test_reports_of_delegates_have_a_track(tmp_path: Path) -> None:
    path = next(ROOT.glob("tests/corpus/seeds/delegates.pte"))
    program_file = pteron.load(path)
    (name,) = program_file.backends()

    class Backend:
        def init(self, ctx: Any, processed: Any, specs: Any) -> _Reporting:
            return _Reporting()

    runtime = pteron.Runtime()
    pteron.register_backend(name, Backend(), runtime=runtime)
    program = pteron.load(path, runtime=runtime)
    shape = [n if isinstance(n, int) else n.max for n in program.inputs()[0].shape or ()]
    values = [np.ones(shape, np.float32) for _ in program.inputs()]
    found = profile(program, values, runs=2, warmup=0)
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    tracks = {event["args"]["name"]: event["tid"] for event in events if event["ph"] == "M"}
    reports = [event for event in events if event["ph"] == "X" and event["tid"] == tracks[f"delegate {name}"]]
    steps = {event["ts"] for event in events if event["ph"] == "X" and event["tid"] == tracks["steps"]}
    assert {event["name"]: event["dur"] for event in reports} == {"first": 2.0, "second": 0.5}
    assert all(event["ts"] in steps for event in reports if event["name"] == "first")
    assert len({event["ts"] for event in reports}) == len(reports)


def test_wrong_use(model_file: Path, found: Profile, command: Command) -> None:
    with pytest.raises(ValueError, match="no group 'colour'"):
        found.by("colour")
    with pytest.raises(ValueError, match="one run at least"):
        profile(pteron.load(model_file), [], runs=0)
    assert command("profile", model_file, "--runs", 0).code == 2
