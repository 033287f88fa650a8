"""Takes the figures of `benches/README.md` and writes the page: one command, one machine, one build.

    python python/tools/bench_page.py                  takes all figures (two hours) and writes the page
    python python/tools/bench_page.py --only ops loops takes these again, and writes the page from all
    python python/tools/bench_page.py --write-only     writes the page from what `target/bench-page` holds
    python python/tools/bench_page.py --quick          a small run of everything, in `target/bench-page-quick`

Each benchmark saves its tables as JSON with the machine and the build. Results of two machines or two builds
do not make a page: the command says which differ. A section without results names its command alone. Older
figures, and what was learnt from them, are in `benches/HISTORY.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches"))

from results import save  # noqa: E402

PAGE = ROOT / "benches" / "README.md"
LIST = Path(__file__).with_suffix(".toml")
FULL, QUICK = ROOT / "target" / "bench-page", ROOT / "target" / "bench-page-quick"

HEAD = """# Benchmarks

Written by `make bench-page` from one run on one machine. Ratios to a peer in the same run mean more than
absolute times; below 1 is faster here. Commands are run in the root of the repository. Older figures, other
machines, and the reasons behind rows that stand out are in [HISTORY.md](HISTORY.md).
"""


@dataclass(frozen=True)
class Section:
    """One benchmark: its place on the page and its commands, as `bench_page.toml` says."""

    key: str
    title: str
    says: str
    full: list[str]
    quick: list[str]
    keep: str = ""


SECTIONS = [Section(**section) for section in tomllib.loads(LIST.read_text())["section"]]


def shown_command(command: list[str]) -> str:
    """A command as a reader would type it."""
    head = {"cargo": [], "pytest": ["python", "-m"]}.get(command[0])
    return " ".join(["python", f"benches/{command[0]}", *command[1:]] if head is None else [*head, *command])


def take(section: Section, command: list[str], file: Path) -> None:
    """Runs one benchmark; its results are in `file` afterwards."""
    print(f"{section.key}: {shown_command(command)}", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    if command[0] not in ("cargo", "pytest"):
        script = [sys.executable, str(ROOT / "benches" / command[0]), *command[1:]]
        subprocess.run([*script, "--json", str(file)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return
    timings = file.with_suffix(".pytest.json")
    run = (
        [sys.executable, "-m", *command, f"--benchmark-json={timings}"] if command[0] == "pytest" else command
    )
    done = subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    lines = [line.rstrip() for line in done.stdout.splitlines() if re.search(section.keep, line)]
    tables = [pytest_table(json.loads(timings.read_text()))] if command[0] == "pytest" else []
    if not lines:
        raise SystemExit(f"{section.key}: no line of its output is a figure ({section.keep})")
    save(file, {"tables": tables, "text": "\n".join(lines)})


def pytest_table(timings: dict[str, Any]) -> dict[str, Any]:
    """What pytest-benchmark saved, as a table."""
    rows = [
        [case["name"].removeprefix("test_").replace("_", " "), f"{case['stats']['median'] * 1e6:.2f} us"]
        for case in timings["benchmarks"]
    ]
    return {"title": "", "columns": ["what", "median"], "rows": rows}


def markdown(table: dict[str, Any]) -> list[str]:
    """A table in Markdown, with its title."""
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines[1] = "|" + "---|" * len(table["columns"])
    return [*([f"{table['title']}:", ""] if table["title"] else []), *lines, ""]


def check_one_machine(results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Machine and build of all results; ends the program where two differ."""
    first: dict[str, str] = {}
    for key, result in results.items():
        first = first or result["machine"]
        differing = [name for name in first if result["machine"].get(name) != first[name]]
        if differing:
            names = ", ".join(f"{n}: {first[n]!r} and {result['machine'].get(n)!r}" for n in differing)
            raise SystemExit(
                f"results of two machines or builds do not make a page: {key} differs in {names}"
            )
    return first


def page(folder: Path) -> str:
    """The whole page, from the results that are there."""
    results = {s.key: json.loads(f.read_text()) for s in SECTIONS if (f := folder / f"{s.key}.json").exists()}
    machine = check_one_machine(results)
    lines = [HEAD]
    if machine:
        loads = sorted(result["load"] for result in results.values())
        lines += ["| machine and build | |", "|---|---|", *(f"| {k} | {v} |" for k, v in machine.items())]
        commits = ", ".join(sorted({result["commit"] for result in results.values()}))
        lines += [f"| commit | {commits} |"]
        lines += [f"| load average after each benchmark | {loads[0]} to {loads[-1]} |", ""]
    else:
        lines += [
            "No figures have been taken with this command yet; those in HISTORY.md were taken before it.",
            "",
        ]
    for section in SECTIONS:
        result = results.get(section.key)
        lines += [f"## {section.title}", "", section.says.strip(), ""]
        command = shown_command(section.full)
        if result is None:
            lines += [f"No figures of this run: `{command}`.", ""]
            continue
        lines += [f"`{command}`", ""]
        for table in result.get("tables", []):
            lines += markdown(table)
        if result.get("text"):
            lines += ["```text", result["text"], "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    keys = [section.key for section in SECTIONS]
    parser.add_argument("--quick", action="store_true", help="small runs, and the page beside their results")
    parser.add_argument("--write-only", action="store_true", help="take nothing")
    parser.add_argument("--only", nargs="+", choices=keys, default=keys, help="take these")
    options = parser.parse_args()
    folder = QUICK if options.quick else FULL
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT / "benches"), os.environ.get("PYTHONPATH")])
    )
    for section in SECTIONS:
        if section.key in options.only and not options.write_only:
            command = section.quick if options.quick else section.full
            take(section, command, folder / f"{section.key}.json")
    target = folder / "README.md" if options.quick else PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(folder))
    print(f"written: {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
