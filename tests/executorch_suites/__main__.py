"""Runs ExecuTorch's suites through `pteron.compat` and checks the outcome against what is kept.

    python -m tests.executorch_suites [--theirs] [--write] [SUITE...]

Fails where a test that passes in ExecuTorch fails here and is not listed in
docs/reference/executorch-suites.md, where a listed test passes, and where a row has no reason. `--write`
writes the tally into the page and adds rows without a reason for new failures; `--theirs` runs the suites
in ExecuTorch and writes `in_executorch.txt`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.executorch_suites.suites import (
    EVERY,
    IN_EXECUTORCH,
    PAGE,
    ROOT,
    SUITES,
    Listed,
    in_executorch,
    listed,
    modules,
)

Outcomes = dict[str, str]
SECONDS = 900
_NO_REASON = "?"
_TALLY = ("<!-- tally -->", "<!-- end of tally -->")


def run_module(side: str, module: str) -> Outcomes | str:
    """Test → outcome, in a process of its own; why there are none where the module cannot be imported."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "outcomes.json")
        command = [
            sys.executable,
            "-m",
            "tests.executorch_suites.run_file",
            side,
            f"executorch.{module}",
            str(out),
        ]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'python'}"}
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {SECONDS} seconds"
        if not out.exists():
            return f"the process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
        found = json.loads(out.read_text())
    return found["import"] if "import" in found else found["tests"]


def run_theirs(names: list[str]) -> None:
    """Writes what becomes of each test in ExecuTorch itself."""
    kept = in_executorch() if IN_EXECUTORCH.exists() else {}
    for folder in _folders(names):
        for module in modules(folder):
            outcomes = run_module("theirs", module)
            print(module, outcomes if isinstance(outcomes, str) else len(outcomes), flush=True)
            kept[module] = (
                {}
                if isinstance(outcomes, str)
                else {test: outcome.partition(":")[0] for test, outcome in outcomes.items()}
            )
    lines = [
        f"{kept[module][test]} {module} {test}" for module in sorted(kept) for test in sorted(kept[module])
    ]
    IN_EXECUTORCH.write_text("\n".join(lines) + "\n")


def _folders(names: list[str]) -> list[str]:
    return [folder for folder, name in SUITES.items() if not names or name in names]


def compare(
    theirs: dict[str, Outcomes], ours: dict[str, Outcomes | str], rows: list[Listed]
) -> tuple[list[str], list[Listed]]:
    """(what is wrong with the page, failures that it does not list)."""
    problems, unlisted = [], []
    expected = {(row.module, row.test): row for row in rows}
    for module, found in ours.items():
        outcomes = {} if isinstance(found, str) else found
        passing = {test for test in theirs.get(module, {}) if outcomes.get(test) == "pass"}
        whole = (module, EVERY) in expected
        if whole and passing:
            problems.append(f"{module}: listed as a whole, but {sorted(passing)[0]} passes")
        for test, outcome in theirs.get(module, {}).items():
            is_listed = (module, test) in expected
            if is_listed and test in passing:
                problems.append(f"{module} {test}: listed, but it passes: take its row out")
            if outcome == "pass" and test not in passing and not is_listed and not whole:
                said = found if isinstance(found, str) else outcomes.get(test, "it did not run")
                problems.append(f"{module} {test}: not listed: {said}")
                unlisted.append(Listed(module, test, _NO_REASON))
    for row in rows:
        if row.reason == _NO_REASON:
            problems.append(f"{row.module} {row.test}: its row has no reason")
        known = theirs.get(row.module)
        if known is None or (row.test != EVERY and known.get(row.test) != "pass"):
            problems.append(f"{row.module} {row.test}: listed, but no test that passes in ExecuTorch")
    return problems, unlisted


def passes(found: Outcomes | str, test: str) -> bool:
    """Whether a test of a module passed here."""
    return not isinstance(found, str) and found.get(test) == "pass"


def tally(theirs: dict[str, Outcomes], ours: dict[str, Outcomes | str], names: list[str]) -> list[str]:
    """The table of counts by suite: passing in ExecuTorch, of these here, all that pass here, all tests."""
    lines = [
        "| suite | folder | pass in ExecuTorch | of these pass here | all that pass here | tests |",
        "|---|---|---|---|---|---|",
    ]
    for folder in _folders(names):
        known = [
            (module, test, outcome) for module in modules(folder) for test, outcome in theirs[module].items()
        ]
        passing = [(module, test) for module, test, _ in known if passes(ours[module], test)]
        there = {(module, test) for module, test, outcome in known if outcome == "pass"}
        both = len(there.intersection(passing))
        lines.append(
            f"| {SUITES[folder]} | `{folder}` | {len(there)} | {both} | {len(passing)} | {len(known)} |"
        )
    return lines


def write_page(lines: list[str], unlisted: list[Listed]) -> None:
    """Puts the tally into the page, and rows for new failures at its end."""
    before, rest = PAGE.read_text().split(_TALLY[0])
    after = rest.split(_TALLY[1])[1].rstrip("\n")
    rows = [f"| `{row.module}` | `{row.test}` | {row.reason} |" for row in unlisted]
    PAGE.write_text("\n".join([f"{before}{_TALLY[0]}", *lines, f"{_TALLY[1]}{after}", *rows]) + "\n")


def main(arguments: list[str]) -> int:
    """1 where the page and the outcome differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.executorch_suites", description=__doc__)
    parser.add_argument("--theirs", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES.values()))
    asked = parser.parse_args(arguments)
    if asked.theirs:
        run_theirs(asked.suites)
        return 0
    theirs = {module: {} for folder in SUITES for module in modules(folder)} | in_executorch()
    ours: dict[str, Outcomes | str] = {}
    for folder in _folders(asked.suites):
        for module in modules(folder):
            ours[module] = run_module("ours", module)
            print(".", end="", flush=True)
    print()
    counts = tally(theirs, ours, asked.suites)
    rows = [row for row in listed() if row.module in ours]
    problems, unlisted = compare(theirs, ours, rows)
    if asked.write:
        write_page(counts, unlisted)
    print("\n".join([*counts, *problems]))
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
