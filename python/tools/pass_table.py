"""Writes the tables of `docs/reference/passes.md`: every pass of every stage, when it runs and what it does.

    python python/tools/pass_table.py           writes the tables
    python python/tools/pass_table.py --check   fails where the page is not what the lists say

Order and conditions are those of `pteron.exir.pass_order`, what a pass does is the first sentence of its
docstring, its example the `Before: ... After: ...` there. The prose around the tables is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from pteron.exir.pass_order import STAGES
from pteron.exir.passes.exported_program_pass import EachGraphPass
from pteron.exir.passes.optimizations import OPTIMIZATIONS
from pteron.exir.passes.pass_list import Row, Scope, Stage

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "passes.md"
SENTENCE = re.compile(r"(.+?)\.(?= [A-Z`]|$)")
EXAMPLE = re.compile(r"Before: (`.+?)\. After: (.+?)\.(?= [A-Z`]|$)")


def described(documented: Any) -> str:
    """The docstring of a pass on one line."""
    text = " ".join((documented.__doc__ or "").split())
    if not text:
        raise SystemExit(f"{documented!r} has no docstring")
    return text


def sentence(documented: Any) -> str:
    """What a pass does: the first sentence of its docstring."""
    found = SENTENCE.match(described(documented))
    if found is None:
        raise SystemExit(f"the docstring of {documented!r} has no first sentence")
    return found[1].replace(", in place", "")


def graphs(row: Row[Any]) -> str:
    """What one call of the pass is given."""
    if row.scope is Scope.FILE:
        return "all methods"
    return "each graph" if isinstance(row.run, EachGraphPass) else "a method"


def stage_table(stage: Stage[Any]) -> list[str]:
    """The section of a stage."""
    lines = [f"### {stage.name}", "", f"Leaves {stage.leaves}.", ""]
    lines += ["| pass | over | runs | what it does |", "|---|---|---|---|"]
    for row in stage.rows:
        when = "always" if row.when is None else row.when.text
        lines.append(f"| `{row.name}` | {graphs(row)} | {when} | {sentence(row.run)} |")
    return [*lines, ""]


def optimization_table() -> list[str]:
    """The optimisations in order, each with its example."""
    lines = ["| pass | before | after |", "|---|---|---|"]
    for each in OPTIMIZATIONS:
        name = getattr(each, "__name__", type(each).__name__)
        example = EXAMPLE.search(described(each))
        if example is None:
            raise SystemExit(f"the docstring of {name} has no `Before: ... After: ...`")
        lines.append(f"| `{name}` | {example[1]} | {example[2]} |")
    return lines


def with_tables(text: str) -> str:
    """The page `text` with its tables made anew."""
    tables = {
        "stages": [line for stage in STAGES for line in stage_table(stage)][:-1],
        "optimisations": optimization_table(),
    }
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: written by make passes -->", f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"{PAGE.name} has no place for the table of {name}: {begin} ... {end}")
        head, rest = text.split(begin)
        text = head + "\n".join([begin, "", *lines, "", end]) + rest.split(end)[1]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the tables of docs/reference/passes.md.")
    parser.add_argument("--check", action="store_true", help="compare only")
    is_check = parser.parse_args().check
    known = PAGE.read_text()
    text = with_tables(known)
    if not is_check:
        PAGE.write_text(text)
        return 0
    if known == text:
        return 0
    differing = sorted(set(text.splitlines()) ^ set(known.splitlines()))
    print("docs/reference/passes.md is not what the lists of passes say; run `make passes`")
    print("\n".join(differing[:20]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
