"""What each pass and each partition did on the way to a file: nodes before and after, by operator, and time.

A stage is recorded inside `recording`; a pass that lowers something itself counts as one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from typing import Any

from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.devtools.data_frames import pandas_or_error
from pteron.devtools.html_table import html_table
from pteron.devtools.text_table import text_table
from pteron.exir.edge.control_flow import graph_modules

HEADINGS = ("stage", "pass", "method", "ms", "before", "after", "operators")
#: Passes that change nothing are shown from this share of the time.
_LEAST_SHARE = 0.02
_MOST_OPERATORS = 4

Counts = Counter[str]


@dataclass(frozen=True)
class LoweringStep:
    """One pass over one method, one partition of a method, or one call of a backend.

    `method` is empty for what sees all methods at once. `before` and `after` are calls in the graph, with
    bodies of control flow; `operators` has (before, after) of those whose number changed.
    """

    stage: str
    name: str
    method: str
    seconds: float
    before: int
    after: int
    operators: Mapping[str, tuple[int, int]]
    note: str = ""

    @property
    def is_change(self) -> bool:
        """Whether the number of calls of some operator is another one, or something is to be said."""
        return bool(self.operators or self.note)

    @property
    def text(self) -> str:
        """`-3 aten.relu.default, +1 aten.hardtanh.default`, the largest changes first."""
        changes = {name: after - before for name, (before, after) in self.operators.items()}
        ordered = sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0]))
        shown = [f"{change:+d} {name}" for name, change in ordered[:_MOST_OPERATORS]]
        if len(ordered) > _MOST_OPERATORS:
            shown.append(f"{len(ordered) - _MOST_OPERATORS} more")
        return ", ".join(filter(None, (self.note, *shown)))


class LoweringReport(Sequence[LoweringStep]):
    """The steps of a lowering in order; `str()` is a table of those that changed something or took long."""

    def __init__(self, steps: Sequence[LoweringStep]) -> None:
        self._steps = tuple(steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, at: Any) -> Any:
        return self._steps[at]

    @property
    def seconds(self) -> float:
        """The time of all steps."""
        return sum(step.seconds for step in self._steps)

    def shown(self) -> list[LoweringStep]:
        """What changed something, or took a part of the time that matters."""
        least = _LEAST_SHARE * self.seconds
        return [step for step in self._steps if step.is_change or step.seconds >= least]

    def table(self, *, is_whole: bool = False) -> str:
        """The steps as text; `is_whole`: those that changed nothing in no time, too."""
        return text_table(HEADINGS, _rows(self._steps if is_whole else self.shown())) + self._rest(is_whole)

    def _rest(self, is_whole: bool) -> str:
        hidden = 0 if is_whole else len(self._steps) - len(self.shown())
        rest = f"; {hidden} more changed no number of calls" if hidden else ""
        return f"{len(self._steps)} steps in {self.seconds:.2f} s{rest}\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {"seconds": self.seconds, "steps": [asdict(step) for step in self._steps]}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_dataframe(self) -> Any:
        """A row for each step and operator that it changed, or one without operator.

        Raises:
            ImportError: pandas is not installed.
        """
        pd = pandas_or_error("LoweringReport.to_dataframe")
        rows = []
        for at, step in enumerate(self._steps):
            given = {name: value for name, value in asdict(step).items() if name != "operators"}
            for name, (before, after) in step.operators.items() or [("", (0, 0))]:
                changed = {"operator": name, "operator_before": before, "operator_after": after}
                rows.append({"step": at, **given, **changed})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"<LoweringReport of {len(self._steps)} steps, {self.seconds:.2f} s>"

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        shown = self.shown()
        whole = self.seconds or 1.0
        # The bar of a row is behind its first cell: the pass, for notebooks.
        rows = [(row[1], row[0], *row[2:]) for row in _rows(shown)]
        heads = (HEADINGS[1], HEADINGS[0], *HEADINGS[2:])
        table = html_table("lowering", heads, rows, [step.seconds / whole for step in shown], is_open=False)
        return f"{table}<p>{escape(self._rest(False))}</p>"


class Recorder:
    """The steps of one call of the compile half, as they happen."""

    def __init__(self) -> None:
        self.steps: list[LoweringStep] = []
        #: The stage whose passes run.
        self.stage = ""

    def add(
        self,
        stage: str,
        name: str,
        method: str,
        seconds: float,
        counts: tuple[Counts, Counts],
        note: str = "",
    ) -> None:
        """One step: its time, and the calls before and after it."""
        before, after = counts
        changed = {
            operator: (before[operator], after[operator])
            for operator in sorted(before.keys() | after.keys())
            if before[operator] != after[operator]
        }
        totals = before.total(), after.total()
        self.steps.append(LoweringStep(stage, name, method, seconds, *totals, changed, note))

    @contextmanager
    def timed(self) -> Iterator[list[float]]:
        """The seconds of what is done inside, in a list; nothing inside is recorded on its own."""
        token = _active.set(None)
        found: list[float] = []
        start = time.perf_counter()
        try:
            yield found
            found.append(time.perf_counter() - start)
        finally:
            _active.reset(token)


_active: ContextVar[Recorder | None] = ContextVar("pteron_lowering", default=None)


def recorder() -> Recorder | None:
    """Where steps are to be recorded; None for nowhere."""
    return _active.get()


@contextmanager
def recording() -> Iterator[Recorder]:
    """Records the stages inside."""
    found = Recorder()
    token = _active.set(found)
    try:
        yield found
    finally:
        _active.reset(token)


class StageRecord:
    """Records passes that run one after the other; does nothing where nobody records.

    `programs` are those before the first. `stage` is its name, by default the one that runs.
    """

    def __init__(self, programs: Mapping[str, ExportedProgram], stage: str | None = None) -> None:
        self._found = recorder()
        # Between two passes nothing changes a graph: what is after one is before the next.
        self._calls: dict[str, Counts] = {}
        if self._found is not None:
            self._found.stage = stage if stage is not None else self._found.stage
            self._calls = {name: calls_of(each) for name, each in programs.items()}

    @contextmanager
    def of(self, name: str, method: str, *, is_list: bool = False) -> Iterator[dict[str, ExportedProgram]]:
        """One pass, over one method or over all; it puts what it made into the dict, by method.

        `is_list`: it records passes of its own.
        """
        done: dict[str, ExportedProgram] = {}
        if self._found is None:
            yield done
            return
        if is_list:
            yield done
            self._calls |= {each: calls_of(program) for each, program in done.items()}
            return
        with self._found.timed() as seconds:
            yield done
        before = sum((self._calls.get(each, Counter()) for each in done), Counter())
        self._calls |= {each: calls_of(program) for each, program in done.items()}
        after = sum((self._calls[each] for each in done), Counter())
        self._found.add(self._found.stage, name, method, seconds[0], (before, after))


@contextmanager
def recorded_emission(programs: Iterable[ExportedProgram]) -> Iterator[None]:
    """The step that writes values and instructions; graphs stay as they are."""
    found = recorder()
    if found is None:
        yield
        return
    with found.timed() as seconds:
        yield
    calls = sum((calls_of(program) for program in programs), Counter())
    found.add("to_executorch", "emit", "", seconds[0], (calls, calls))


def calls_of(program: ExportedProgram) -> Counts:
    """How often each operator is called, in bodies of control flow too."""
    return Counter(
        _name(node.target)
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
    )


@cache
def _name(target: Any) -> str:
    # Edge operators have the names of those that they stand for: bringing a graph there changes no operator.
    return str(target) if isinstance(target, OpOverload) else str(getattr(target, "__name__", target))


def _rows(steps: Sequence[LoweringStep]) -> list[tuple[str, ...]]:
    return [
        (
            step.stage,
            step.name,
            step.method,
            f"{step.seconds * 1e3:.1f}",
            str(step.before),
            str(step.after),
            step.text,
        )
        for step in steps
    ]
