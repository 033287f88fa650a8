"""What `make bench-field` keeps of its rows, the page that it writes of them, and how it finds regressions.

A store is a JSON file for each class of processors. A row has, for each number of threads and each engine,
the median of what its processes measured; a later run replaces the rows that it took.
"""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "benches" / "field"
PAGE = ROOT / "docs" / "reference" / "speed-against-the-field.md"
CLASSES = {"avx512": "AVX-512", "avx2": "AVX2 alone"}
PEERS = ("onnxruntime", "openvino", "aotinductor", "executorch", "eager")
#: A ratio may be so much above the stored one.
TOLERANCE = 1.05
#: Rows below count for no mean: a call is then mostly what its border costs.
SHORT_MS = 1.0
BEGIN, END = "<!-- begin of what make bench-field writes -->", "<!-- end -->"


@dataclass(frozen=True)
class Ratio:
    """Our time in that of the best peer."""

    ours: float
    best: float
    peer: str

    @property
    def value(self) -> float:
        return self.ours / self.best


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over processes."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def ratio(engines: dict[str, dict[str, float]], figure: str) -> Ratio | None:
    """The ratio of a figure; `None` where one side is missing."""
    peers = {name: engines[name][figure] for name in PEERS if name in engines}
    if "pteron" not in engines or not peers:
        return None
    best = min(peers, key=peers.__getitem__)
    return Ratio(engines["pteron"][figure], peers[best], best)


def limit_ms(work: dict[str, float], ceilings: dict[str, Any], threads: int) -> tuple[float, str]:
    """The least time of a call on this machine, and what binds it: multiply-adds at the ceiling of as many
    threads, or one look at every byte at the rate of reading as many again and again (threads share that)."""
    compute = work["flops"] / ceilings["flops"] / threads
    rates = [rate for size, rate in ceilings["read"] if size <= work["bytes"]]
    memory = work["bytes"] / (rates[-1] if rates else ceilings["read"][0][1])
    return max(compute, memory) * 1e3, "compute" if compute >= memory else "memory"


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def load_store(path: Path) -> dict[str, Any]:
    """The stored rows of a class; an empty store where there is none."""
    if not path.exists():
        return {"rows": {}}
    stored: dict[str, Any] = json.loads(path.read_text())
    return stored


def save_store(path: Path, store: dict[str, Any]) -> None:
    """Writes a store, a row in each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in sorted(store.items()) if key != "rows"}
    lines = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}," for key, value in head.items()]
    rows = [
        f" {json.dumps(name)}: {json.dumps(row, sort_keys=True)}"
        for name, row in sorted(store["rows"].items())
    ]
    path.write_text("\n".join(["{", *lines, '"rows": {', ",\n".join(rows), "}", "}"]) + "\n")


def rounded(figures: dict[str, float]) -> dict[str, float]:
    """Four digits: more are noise, and make stores that differ everywhere."""
    return {key: float(f"{value:.4g}") for key, value in figures.items()}


def slower(stored: dict[str, Any], taken: dict[str, Any], figure: str) -> str:
    """Why a row is a regression, or nothing. Rows that are new, or lack a peer that was there, are none."""
    before, now = ratio(stored["engines"], figure), ratio(taken["engines"], figure)
    if before is None or now is None:
        return ""
    # Against the same peers: one that is left out may have been the best.
    if not {name for name in PEERS if name in stored["engines"]} <= taken["engines"].keys():
        return ""
    if now.value <= before.value * TOLERANCE:
        return ""
    return f"{now.value:.3f}x of {now.peer}, stored {before.value:.3f}x of {before.peer}"


def table(store: dict[str, Any], threads: int) -> list[str]:
    """The rows of one class and number of threads in Markdown."""
    columns = [
        "row",
        "ms",
        "best peer",
        "ms",
        "ratio",
        "of the limit",
        "load, ms",
        "best peer",
        "MiB",
        "best peer",
    ]
    columns += ["from eager"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    ratios = []
    for name, by_threads in store["rows"].items():
        row = by_threads.get(str(threads))
        if row is None or "pteron" not in row["engines"]:
            continue
        figure, ours = row["clock"], row["engines"]["pteron"]
        found = ratio(row["engines"], figure)
        cells = [name, f"{ours[figure]:.2f}"]
        if found is None:
            cells += ["-", "-", "-"]
        else:
            cells += [found.peer, f"{found.best:.2f}", f"{found.value:.2f}x"]
            ratios += [found.value] if ours[figure] >= SHORT_MS else []
        cells += [f"{row['limit'] / ours[figure]:.0%} ({row['bound']})"]
        # Eager PyTorch builds its model in Python, which is no load of a file.
        files = {k: v for k, v in row["engines"].items() if k != "eager"}
        load = "load" if figure == "wall" else "load processor"
        for key, form in ((load, ".1f"), ("memory", ".0f")):
            best = ratio(files, key)
            cells += [f"{ours[key]:{form}}", f"{best.best:{form}} {best.peer}" if best else "-"]
        lines.append("| " + " | ".join([*cells, f"{ours['difference']:.1e}"]) + " |")
    if len(lines) == 2:
        return []
    if ratios:
        lines += [
            "",
            f"Geometric mean of {len(ratios)} ratios above {SHORT_MS:g} ms: {geometric_mean(ratios):.2f}x.",
        ]
    return lines


def section(isa: str, store: dict[str, Any]) -> list[str]:
    """All that is stored of a class."""
    if not store["rows"]:
        return [f"### {CLASSES[isa]}", "", "No figures have been taken.", ""]
    lines = [f"### {CLASSES[isa]}", ""]
    machine, ceilings = store["machine"], store["ceilings"]
    largest, rate = ceilings["read"][-1]
    lines += [
        f"{machine['processor']}, {machine['processors']} processors, load {store['load']}; a thread does"
        f" {ceilings['flops'] / 1e9:.0f} GFLOP/s and reads {rate / 1e9:.1f} GB/s of {largest >> 20} MiB."
        f" {store['note']}".rstrip(),
        "",
    ]
    for threads in (1, 2):
        rows = table(store, threads)
        if rows:
            lines += [f"{'One thread' if threads == 1 else 'Two threads'}:", "", *rows, ""]
    return lines


def write_page(page: Path, stores: Path) -> None:
    """Puts the tables between the marks of the page."""
    text = page.read_text()
    head, found, rest = text.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{page} has no place for tables: it needs the lines {BEGIN} and {END}")
    lines = [line for isa in CLASSES for line in section(isa, load_store(stores / f"{isa}.json"))]
    page.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines).rstrip() + f"\n\n{END}{tail}")
