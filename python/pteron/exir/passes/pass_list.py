"""What a list of passes is made of, and the one loop that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from torch.export import ExportedProgram

from pteron.exir.lowering_report import StageRecord
from pteron.exir.passes.exported_program_pass import ExportedProgramPassResult
from pteron.exir.progress import reach

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Condition(Generic[Settings]):
    """When a row runs. `text`: the setting as a caller writes it; `holds`: whether it is so."""

    text: str
    holds: Callable[[Settings], bool]


class Scope(Enum):
    """What one call of a pass is given."""

    #: The program of one method.
    METHOD = "method"
    #: The programs of all methods of the file, by name.
    FILE = "file"


@dataclass(frozen=True)
class Row(Generic[Settings]):
    """One pass of a list.

    `run`: changes the program that it is given (or the programs, see `scope`), or returns another; its
    docstring is what `docs/passes.md` says about it. `when`: None for always. `given`: what `run` gets beside
    the program, from the settings and the name of the method (empty where the scope is the file). `is_list`:
    it runs passes of its own, each of which a report names.
    """

    run: Callable[..., Any]
    when: Condition[Settings] | None = None
    given: Callable[[Settings, str], tuple[Any, ...]] | None = None
    scope: Scope = Scope.METHOD
    is_list: bool = False

    @property
    def name(self) -> str:
        """What the pass is called."""
        return str(getattr(self.run, "__name__", type(self.run).__name__))

    def arguments(self, settings: Settings, method: str) -> tuple[Any, ...]:
        """The arguments of `run` behind the program."""
        return () if self.given is None else self.given(settings, method)


@dataclass(frozen=True)
class Stage(Generic[Settings]):
    """Passes that run in order, and what they leave behind.

    `name`: the call that runs them and what they are about. `leaves`: what a program is like after them.
    """

    name: str
    leaves: str
    rows: tuple[Row[Settings], ...]


def run_stage(
    stage: Stage[Settings], programs: Mapping[str, ExportedProgram], settings: Settings
) -> dict[str, ExportedProgram]:
    """The programs, by method, after the passes of `stage` that the settings ask for.

    A pass runs over all methods before the next one does. Whether the programs given are changed depends on
    the passes.
    """
    current = dict(programs)
    steps = StageRecord(current, stage.name)
    rows = [row for row in stage.rows if row.when is None or row.when.holds(settings)]
    for at, row in enumerate(rows):
        reach(at / len(rows))
        if row.scope is Scope.FILE:
            with steps.of(row.name, "", is_list=row.is_list) as done:
                changed = row.run(current, *row.arguments(settings, ""))
                current = current if changed is None else changed
                done.update(current)
        else:
            for name, program in current.items():
                with steps.of(row.name, name) as done:
                    done[name] = _changed(row.run(program, *row.arguments(settings, name)), program)
                current = {**current, **done}
    return current


def _changed(
    result: ExportedProgram | ExportedProgramPassResult | None, given: ExportedProgram
) -> ExportedProgram:
    if result is None:
        return given
    return result.exported_program if isinstance(result, ExportedProgramPassResult) else result
