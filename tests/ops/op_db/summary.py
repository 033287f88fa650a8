"""What a run over recorded calls found: counts by operator and dtype, differences by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.ops.op_db.judging import Outcome, Verdict, case_of
from tests.ops.op_db.known_differences import reason_for
from tests.ops.op_db.recording import RecordedCall
from tests.ops.op_db.samples import first_dtype


@dataclass
class Summary:
    """Counts of calls, and those that did not agree."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    known: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unexplained: list[str] = field(default_factory=list)

    def add(self, call: RecordedCall, verdict: Verdict) -> None:
        """Counts a call."""
        operator, dtype = str(call.op), first_dtype(call.args)
        self.calls[operator, dtype] += 1
        if verdict.outcome is Outcome.AGREES:
            return
        line = f"{case_of(call)}: {verdict.outcome.value}: {verdict.detail or call.error}"
        reason = reason_for(operator, dtype, verdict.outcome, verdict.detail or call.error)
        if reason is None:
            self.unexplained.append(line)
        else:
            self.known[reason].append(line)

    def text(self) -> str:
        """The summary as a page."""
        by_operator: dict[str, dict[str, int]] = defaultdict(dict)
        for (operator, dtype), count in sorted(self.calls.items()):
            by_operator[operator][dtype] = count
        lines = [f"{sum(self.calls.values())} calls of {len(by_operator)} operators", ""]
        for operator, dtypes in by_operator.items():
            shown = ", ".join(f"{dtype} {count}" for dtype, count in dtypes.items())
            lines.append(f"{operator}: {sum(dtypes.values())} ({shown})")
        for reason, differing in self.known.items():
            lines += ["", f"known: {reason} ({len(differing)})", *(f"  {line}" for line in differing)]
        lines += ["", f"unexplained ({len(self.unexplained)})", *(f"  {line}" for line in self.unexplained)]
        return "\n".join(lines) + "\n"
