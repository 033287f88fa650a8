"""What `check_backend` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "not taken"]


@dataclass(frozen=True)
class Check:
    """One check of one model. `what`: empty where it passed; else what is wrong, or why it was not made."""

    name: str
    model: str
    outcome: Outcome
    what: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:9}  {self.name}: {self.model}" + (f": {self.what}" if self.what else "")


@dataclass(frozen=True)
class BackendReport:
    """All checks, in the order in which they were made. `str()` is a line for each and a line that counts."""

    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.outcome == "failed")

    def raise_for_failures(self) -> None:
        """AssertionError, with the text of each, where checks failed or the backend took no model at all."""
        if self.failures:
            lines = "\n".join(str(check) for check in self.failures)
            raise AssertionError(f"{len(self.failures)} of {len(self.checks)} checks failed:\n{lines}")
        if not any(check.outcome == "passed" for check in self.checks):
            raise AssertionError(
                "the partitioner took no node of any model, so nothing was checked: "
                "pass models of what the backend takes as check_backend(..., models=[ModelCase(...)])"
            )

    def __str__(self) -> str:
        counts = ", ".join(
            f"{sum(check.outcome == outcome for check in self.checks)} {outcome}"
            for outcome in ("passed", "failed", "not taken")
        )
        return "\n".join([*map(str, self.checks), counts])
