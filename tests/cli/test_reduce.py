"""Parts of programs compute what the whole does, and `pteron reduce` finds the smallest that fails."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.cli.inputs import read_inputs
from pteron.devtools.description import describe_plan
from pteron.devtools.recorded_run import RecordedRun
from pteron.devtools.reduction import reduce_units
from pteron.devtools.sources import Sources
from pteron.devtools.sub_program import SubPrograms
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "corpus" / "seeds"
PROGRAMS = [
    *(
        SEEDS / f"{name}.pte"
        for name in ("loops", "cache", "everything", "convolutional", "quantized_dynamic")
    ),
    *sorted((ROOT / "rust" / "pteron-xnnpack" / "tests").rglob("block.pte")),
]


class _Results:
    """The last value that an instruction wrote, by index: what a part must give."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self.found: dict[tuple[int, int], np.ndarray] = {}
        self._at = -1

    def step_begin(self, step: pteron.TracedStep) -> None:
        self._at = step.instructions[-1] if step.instructions else -1
        self._seen: list[int] = []

    def value(self, step: pteron.TracedStep, position: int, value: object) -> None:
        at = self._run.tensor_of(step, position, self._seen.count(position))
        self._seen.append(position)
        if at is not None:
            self.found[self._at, at] = np.array(value)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_parts_give_the_values_of_the_whole(path: Path) -> None:
    program = pteron.load(path)
    inputs = read_inputs([], program.inputs("forward"), 0)
    parts = SubPrograms(path.read_bytes(), program, "forward", inputs)
    whole = _Results(parts.run)
    parts.run.trace(whole)
    count = len(parts.units)
    order = random.Random(0)
    choices = [list(range(count)), *([at] for at in range(count))]
    choices += [sorted(order.sample(range(count), order.randint(1, count))) for _ in range(8)]
    made = 0
    for units in choices:
        part = parts.cut(units)
        if part is None:
            continue
        made += 1
        loaded = pteron.load(part.content)
        values = [
            value.item() if spec.kind != "tensor" else value
            for spec, value in zip(loaded.inputs(), part.inputs.values(), strict=True)
        ]
        for spec, result in zip(loaded.outputs(), loaded.load_method().execute(values), strict=True):
            at = int(spec.name.removeprefix("value"))
            writer = max(i for i, written in whole.found if written == at and i in part.instructions)
            np.testing.assert_allclose(result, whole.found[writer, at], rtol=1e-4, atol=1e-5)
    assert made > len(choices) / 3


def test_a_part_keeps_its_source_lines(model_file: Path) -> None:
    program = pteron.load(model_file)
    parts = SubPrograms(model_file.read_bytes(), program, "forward", read_inputs([], program.inputs(), 0))
    part = parts.cut(parts.units_of([2]))
    assert part is not None
    assert part.instructions == (2,)
    small = pteron.load(part.content)
    (step,) = describe_plan(small).steps
    assert Sources(small, "forward").of(step)[0].module == "head"
    assert [spec.name for spec in small.inputs()] == list(part.inputs)
    assert len(part.content) < model_file.stat().st_size


def test_reduction_finds_what_is_needed() -> None:
    asked = []

    def fails(part: tuple[int, ...]) -> bool:
        asked.append(part)
        return {3, 17} <= set(part)

    assert reduce_units(40, fails) == (3, 17)
    assert len(asked) == len(set(asked)) < 40
    assert reduce_units(1, lambda part: True) == (0,)
    with pytest.raises(ValueError, match="does not fail"):
        reduce_units(3, lambda part: False)


def test_reduce_with_a_command_goes_on_where_it_was(
    model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "check.py"
    script.write_text(
        "import sys; content = open(sys.argv[1], 'rb').read(); open(sys.argv[3], 'a').write('x');"
        "sys.exit(b'aten::addmm' in content and bool(open(sys.argv[2], 'rb').read()))"
    )
    calls = tmp_path / "calls"
    check = f"{sys.executable} {script} {{program}} {{inputs}} {calls}"
    out = tmp_path / "small.pte"
    words = ["reduce", model_file, "--command", check, "-o", out]
    from pteron.cli import reduce

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reduce, "_write", interrupted)
        assert command(*words).code == 130
    before = len(calls.read_text())
    assert not out.exists()
    found = command(*words, "--json")
    assert len(calls.read_text()) == before > 2
    assert found.json["instructions"] == [2]
    assert found.json["operators"] == ["aten::addmm.out"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls", "check.py", "small.npz", "small.pte"]
    assert command("run", out, "-i", tmp_path / "small.npz").code == 0


def test_reduce_a_difference_and_an_error(model_file: Path, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "small.pte"
    done = command("reduce", model_file, "--against", "isa=portable", "--rtol", "1e-30", "-o", out)
    assert done.code == 0, done.err
    assert "1 instructions are left" in done.out
    assert command("compare", out, "-i", tmp_path / "small.npz", "--against", "isa=portable").code in (0, 1)
    done = command("reduce", model_file, "-o", out)
    assert done.code == 2
    assert "does not fail" in done.err
    both = ["--against", "rules=all", "--command", "true"]
    assert command("reduce", model_file, *both, "-o", out).code == 2
