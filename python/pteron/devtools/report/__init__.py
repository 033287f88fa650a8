"""A report on programs and their runs: one HTML file that opens without a network and without a server.

The same input makes the same bytes: a report of programs and saved profiles can be compared and reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from pteron._native import Program
from pteron.devtools.callable_module import make_callable
from pteron.devtools.ceiling import Ceiling
from pteron.devtools.profile import Profile
from pteron.devtools.report import advice
from pteron.devtools.report.page import page
from pteron.devtools.report.program_data import Texts, gather
from pteron.devtools.report.times import MeasurementError, run_data, step_errors

__all__ = ["Ceiling", "MeasurementError", "Report", "Subject", "report"]

#: Version of the data in the page.
VERSION = 1
_UNMEASURED: Mapping[str, None] = {"": None}


@dataclass(frozen=True)
class Subject:
    """A program for a report, with what was measured of one method.

    `content` is the program's file. `profiles` are profiles, or what `Profile.to_dict` returns, by label;
    `errors` is what `pteron compare --json` prints, for the steps of this program. A value of it that differs
    by more than `rtol` of the largest element counts as different.
    """

    name: str
    program: Program
    content: bytes = field(repr=False)
    method: str = "forward"
    profiles: Mapping[str, Profile | Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, Any] | None = None
    rtol: float = 1e-5


@dataclass(frozen=True)
class Report:
    """A page. In a notebook it shows itself, apart from the notebook's own page."""

    html: str = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Writes the page.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        return (
            '<iframe sandbox="allow-scripts allow-downloads" width="100%" height="800" title="pteron report"'
            f' srcdoc="{escape(self.html)}"></iframe>'
        )


def report(subjects: Sequence[Subject], ceiling: Ceiling | None = None) -> Report:
    """A report on the subjects. With several programs, or several profiles of one, it compares them.

    Steps of two programs are the same where they have the same module, operator and order. Shares of a
    ceiling are of `ceiling`, or, without it, of what a profile says of its machine.

    Raises:
        MeasurementError: a profile or comparison is damaged, or of another program.
        PteronError: a method cannot be loaded.
        ValueError: there is no subject.
    """
    if not subjects:
        raise ValueError("a report needs one program at least")
    texts = Texts()
    programs, runs = [], []
    for at, subject in enumerate(subjects):
        found = gather(subject.name, subject.program, subject.content, subject.method, texts)
        programs.append(found.data)
        errors = None
        said: list[str] = []
        if subject.errors is not None:
            errors = step_errors(found.plan.method, subject.errors)
            said = list(advice.of_errors(found.plan, errors, subject.rtol))
        for label, profile in (subject.profiles or _UNMEASURED).items():
            run: dict[str, Any] = {"program": at, "label": label, "errors": errors, "advice": said}
            if profile is not None:
                saved = profile.to_dict() if isinstance(profile, Profile) else profile
                times = run_data(found.plan.method, saved)
                own = times.pop("ceiling")
                most = ceiling or own
                run |= times | {"advice": [*said, *advice.of_run(found.plan, times, most)]}
                run["ceiling"] = None if most is None else [most.gflops, most.gigabytes]
                run["kernels"] = [texts.number(name) for name in times["kernels"]]
            runs.append(run)
    return Report(
        page(
            {
                "version": VERSION,
                "texts": texts.all(),
                "programs": programs,
                "runs": runs,
            }
        )
    )


make_callable(__name__)
