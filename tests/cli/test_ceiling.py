"""The ceiling of the machine: measured once and kept, and the shares of it that commands show."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch

import pteron
from pteron.devtools import ceiling as module
from pteron.devtools.ceiling import READ_BYTES, Ceiling, MachineCeiling, machine_ceiling, working_set
from pteron.devtools.description import describe_plan
from pteron.devtools.profile import GROUPS, profile
from pteron.exir import to_edge
from tests.cli.conftest import Command

KNOWN = MachineCeiling(100.0, dict(zip(READ_BYTES, (80.0, 40.0, 20.0, 10.0), strict=True)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, int]]:
    """What was measured, each time, with an empty cache."""
    found: list[tuple[str, int]] = []

    def measure(runtime: pteron.Runtime, num_threads: int) -> MachineCeiling:
        found.append((runtime.isa, num_threads))
        return KNOWN

    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def test_the_measured_programs_compute_products() -> None:
    for times in (1, 3):
        content, value = module._product(2, 64, 32, times)
        found = pteron.load(content).run("forward", value)
        outputs = found if isinstance(found, (list, tuple)) else [found]
        assert len(outputs) == times
        assert all(np.array_equal(output, np.full((2, 32), 64.0)) for output in outputs)


def test_a_real_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    found = module.measure(pteron.Runtime.shared(), 1)
    assert list(found.reads) == list(READ_BYTES)
    # A processor of this century, in 10^9 a second.
    assert found.gflops > 0.5
    assert min(found.reads.values()) > 0.2


def test_measured_once_for_threads_and_instruction_sets(measured: list[tuple[str, int]]) -> None:
    best = pteron.Runtime.shared().isa
    for _ in range(2):
        assert machine_ceiling(1) == KNOWN
    assert measured == [(best, 1)]
    machine_ceiling(2)
    machine_ceiling(1, "portable")
    assert measured[1:] == [(best, 2), ("portable", 1)]
    for threads, isa in ((1, None), (2, None), (1, "portable")):
        machine_ceiling(threads, isa)
    assert len(measured) == 3
    machine_ceiling(1, is_fresh=True)
    assert len(measured) == 4
    with pytest.raises(ValueError, match="pentium"):
        machine_ceiling(1, "pentium")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{", "["),
        ('"version": 1', '"version": 0'),
        ('"machines"', '"others"'),
        ('"gflops": 100.0', '"gflops": NaN'),
        ('"gflops": 100.0', '"gflops": "fast"'),
        ("10.0", "-10.0"),
        (f'"{READ_BYTES[0]}"', '"7"'),
        ('"reads"', '"read"'),
    ],
)
def test_a_damaged_cache_is_measured_again(
    old: str, new: str, measured: list[tuple[str, int]], tmp_path: Path
) -> None:
    machine_ceiling(1)
    path = tmp_path / "cache" / "pteron" / "ceilings.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert machine_ceiling(1) == KNOWN
    assert len(measured) == 2
    assert machine_ceiling(1) == KNOWN
    assert len(measured) == 2
    assert [path.name for path in path.parent.iterdir()] == ["ceilings.json"]


def test_a_cache_that_cannot_be_written(
    measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert machine_ceiling(1) == machine_ceiling(1) == KNOWN
    assert len(measured) == 2


def test_reads_are_as_fast_as_for_so_many_bytes(model_file: Path) -> None:
    plan = describe_plan(pteron.load(model_file))
    weights = 4 * (8 * 3 * 3 * 3 + 8 + 4 * 288 + 4)
    assert working_set(plan) == plan.session_bytes + weights
    assert KNOWN.of(plan) == Ceiling(100.0, 80.0)
    assert MachineCeiling(1.0, {16: 9.0, 64: 8.0}).of(plan) == Ceiling(1.0, 8.0)


def test_shares_of_groups_add_up(model_file: Path) -> None:
    values = [np.ones((1, 3, 8, 8), np.float32)]
    found = profile(pteron.load(model_file), values, runs=3, num_threads=1, ceiling=KNOWN)
    least = sum(max(step.flops / 100.0, step.nbytes / 80.0) for step in found.steps)
    assert found.least == pytest.approx(least)
    for group in GROUPS:
        rows = found.by(group)
        assert sum((row.ceiling or 0.0) * row.nanoseconds for row in rows) == pytest.approx(least)
    without = profile(pteron.load(model_file), values, runs=1, num_threads=1)
    assert without.least is None
    assert {row.ceiling for row in without.by("step")} == {None}


def test_operations_of_products_that_load_folds_and_fuses() -> None:
    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Large enough that the exporter leaves the transposition to load.
            self.large = torch.nn.Linear(512, 1024)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = (x @ x.transpose(-1, -2)).softmax(-1)
            return self.large(scores @ x)

    exported = torch.export.export(Layers().eval(), (torch.randn(2, 16, 512),))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    found = profile(program, [np.ones((2, 16, 512), np.float32)], runs=1)
    products = 2 * (2 * 2 * 16 * 16 * 512) + 2 * 2 * 16 * 512 * 1024
    assert products < sum(step.flops for step in found.steps) < 1.02 * products


def test_commands_show_shares(model_file: Path, command: Command) -> None:
    words = ["profile", model_file, "--runs", 1]
    text = command(*words, "--ceiling", "100,10").out
    assert "of ceiling" in text
    assert "of the ceiling of this machine, 100 GFLOP/s and 10 GB/s" in text
    assert "ceiling" not in command(*words, "--ceiling", "off").out
    (row, *_) = csv.DictReader(io.StringIO(command(*words, "--format", "csv", "--ceiling", "100,10").out))
    assert float(row["ceiling"]) > 0
    assert command(*words, "--json", "--ceiling", "off").json["ceiling"] is None
    measured = command(*words, "--json", "--ceiling", "measure").json["ceiling"]
    assert command(*words, "--json").json["ceiling"] == measured
    words = ["bench", model_file, "--duration", "0.02"]
    (row,) = command(*words, "--json", "--ceiling", "100,10").json["rows"]
    assert row["ceiling"] == {"gflops": 100.0, "gigabytes": 10.0}
    assert row["of_ceiling"] > 0
    assert "of the ceiling of this machine" in command(*words).out
    assert "ceiling of" not in command(*words, "--ceiling", "off").out


@pytest.mark.parametrize("given", ["", "1", "1,2,3", "a,b", "-1,2", "1,0", "inf,1", "measured"])
@pytest.mark.parametrize("name", ["profile", "bench"])
def test_wrong_ceilings(name: str, given: str, model_file: Path, command: Command) -> None:
    done = command(name, model_file, f"--ceiling={given}")
    assert done.code == 2
    assert "--ceiling" in done.err
    assert done.err.count("\n") == 1
