"""Whole models here and in every engine of the field, each alone in its process, alternating.

    python benches/field_speed.py --prepare [ROW ...]      writes the files (hours for all rows, once)
    python benches/field_speed.py [ROW ...]                takes figures and stores them
    python benches/field_speed.py --write                  writes the page from what is stored
    python benches/field_speed.py --compare [ROW ...]      fails where a stored ratio is missed by 5 %, twice
    python benches/field_speed.py --list                   the rows, and architectures without one

Rows are those of `field_rows.py`; engines those of `field_engines.py`: pteron, ONNX Runtime and OpenVINO from
one ONNX file, AOTInductor (compiled ahead, weights frozen), ExecuTorch with XNNPACK, and eager PyTorch.
`--isa avx2` holds pteron to its AVX2 kernels, and runs the peers that can be held to AVX2, too.
`--clock processor` compares the time of the processors, for machines that others use; it says nothing with
several threads, which may wait busily.

What an engine cannot make or run has no figure, and the reason is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import field_table
from field_engines import ENGINES, file_of
from field_rows import ARCHITECTURES, BY_NAME, ROWS, TOO_LARGE, Row
from results import commit, machine
from timing import cpu_model

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: Largest difference of our result from eager PyTorch, relative to the largest output.
MOST_DIFFERENCE = 1e-4


def environment(engine: str, isa: str) -> dict[str, str]:
    """The variables of a process of the engine."""
    held = dict(ENGINES[engine].avx2 or ()) if isa == "avx2" else {}
    return {**os.environ, **held, "PYTHONPATH": str(HERE)}


def engines_for(names: list[str], isa: str) -> list[str]:
    """Those of the engines that can be held to an instruction set."""
    is_native = isa == native_isa()
    return [name for name in names if is_native or ENGINES[name].avx2 is not None]


def native_isa() -> str:
    """The class of this machine."""
    info = Path("/proc/cpuinfo")
    return "avx512" if info.is_file() and "avx512f" in info.read_text() else "avx2"


def run(options: argparse.Namespace, engine: str, row: Row, *given: str, is_made: bool = False) -> str:
    """A process of an engine: what it printed last; raises `RuntimeError` with its last line of errors."""
    is_apart = ENGINES[engine].is_apart and not is_made
    python = options.peers if is_apart else sys.executable
    command = [python, str(HERE / "field_engines.py"), engine, row.name, str(options.files / row.name)]
    done = subprocess.run(
        [*command, "--isa", options.isa, *given],
        capture_output=True,
        text=True,
        env=environment(engine, options.isa),
        check=False,
        timeout=options.timeout,
    )
    if done.returncode:
        raise RuntimeError(
            next(iter(reversed(done.stderr.strip().splitlines())), f"exit {done.returncode}")[:200]
        )
    return next(iter(reversed(done.stdout.strip().splitlines())), "")


def prepare(options: argparse.Namespace, row: Row) -> list[str]:
    """Writes what is missing of a row; the engines that have a file. A failure is kept beside the files."""
    folder = options.files / row.name
    folder.mkdir(parents=True, exist_ok=True)
    usable = []
    for engine in ["eager", *(each for each in engines_for(options.engines, options.isa) if each != "eager")]:
        target = folder / "work.json" if engine == "eager" else file_of(engine, folder, options.isa)
        reason = target.with_suffix(".failed")
        if not target.exists() and not reason.exists():
            try:
                run(options, engine, row, "--make", is_made=True)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                target.unlink(missing_ok=True)
                reason.write_text(f"{error}\n")
        if target.exists():
            usable.append(engine)
            continue
        print(f"{row.name}: {engine} makes no file: {reason.read_text().strip()}", flush=True)
        if engine == "eager":
            break
    return [engine for engine in options.engines if engine in usable]


def take(options: argparse.Namespace, row: Row, threads: int, ceilings: dict[str, Any]) -> dict[str, Any]:
    """One row: `pairs` processes of each engine in turns."""
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in prepare(options, row)}
    for _ in range(options.pairs):
        for engine in list(runs):
            try:
                given = ["--threads", str(threads), "--seconds", str(options.seconds)]
                runs[engine].append(json.loads(run(options, engine, row, *given)))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{row.name}: {engine} does not run: {error}", flush=True)
                del runs[engine]
    engines = {engine: field_table.rounded(field_table.medians(each)) for engine, each in runs.items()}
    if "pteron" in engines and not engines["pteron"]["difference"] < MOST_DIFFERENCE:
        raise SystemExit(
            f"{row.name}: the result differs from eager by {engines['pteron']['difference']:.1e}"
        )
    work = json.loads((options.files / row.name / "work.json").read_text())
    limit, bound = field_table.limit_ms(work, ceilings, threads)
    taken = {"engines": engines, "clock": options.clock, "limit": float(f"{limit:.4g}"), "bound": bound}
    found = field_table.ratio(engines, options.clock)
    texts = [f"{engine} {each[options.clock]:.2f}" for engine, each in engines.items()]
    summary = f"{found.value:.2f}x of {found.peer}" if found else "no ratio"
    print(
        f"{row.name} {threads} | {', '.join(texts)} ms | {summary} | limit {limit:.2f} ms ({bound})",
        flush=True,
    )
    return taken


def ceilings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The ceilings of this machine, measured now, or as a file has them."""
    if options.ceilings is not None:
        stored: dict[str, Any] = json.loads(options.ceilings.read_text())
        return stored
    command = ["cargo", "bench", "-q", "-p", "pteron-core", "--bench", "ceilings", "--", options.isa]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(options: argparse.Namespace, rows: list[Row], path: Path) -> None:
    """Takes rows and stores each at once."""
    ceilings = ceilings_of(options)
    for row in rows:
        for threads in options.threads:
            taken = take(options, row, threads, ceilings)
            store = field_table.load_store(path)
            head = {"machine": machine(), "commit": commit(), "load": round(os.getloadavg()[0], 1)}
            store |= {**head, "ceilings": ceilings, "note": options.note}
            store["rows"].setdefault(row.name, {})[str(threads)] = taken
            field_table.save_store(path, store)


def compare(options: argparse.Namespace, rows: list[Row], path: Path) -> None:
    """Takes the rows that are stored; an error where one misses its ratio twice."""
    store = field_table.load_store(path)
    if not store["rows"]:
        raise SystemExit(f"nothing is stored in {path}: take figures first, without --compare")
    failed = []
    for row in rows:
        for threads in options.threads:
            stored = store["rows"].get(row.name, {}).get(str(threads))
            if stored is None:
                continue
            options.clock = stored["clock"]
            for _ in range(2):
                reason = field_table.slower(
                    stored, take(options, row, threads, store["ceilings"]), stored["clock"]
                )
                if not reason:
                    break
            else:
                failed.append(f"{row.name}, {threads} threads: {reason}")
    if failed:
        raise SystemExit("slower than what is stored, twice:\n" + "\n".join(failed))


def print_rows() -> None:
    """The rows, and the architectures that have none."""
    for row in ROWS:
        print(row.name)
    for name, why in TOO_LARGE.items():
        print(f"no row: {name} ({why})")
    print(f"{len(ROWS)} rows of {len(ARCHITECTURES)} architectures and others")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one process")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--isa", choices=list(field_table.CLASSES), default=native_isa())
    parser.add_argument("--peers", default=sys.executable, help="Python of ONNX Runtime and OpenVINO")
    parser.add_argument("--files", type=Path, default=ROOT / "target" / "bench-field")
    parser.add_argument("--store", type=Path, default=field_table.STORE)
    parser.add_argument("--ceilings", type=Path, help="what the bench of them printed, instead of running it")
    parser.add_argument("--note", default="", help="a sentence that the page says about this machine")
    mode = parser.add_mutually_exclusive_group()
    for name in ("prepare", "compare", "write", "list"):
        mode.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; --list names them")
    rows = [BY_NAME[name] for name in options.rows] or list(ROWS)
    path = options.store / f"{options.isa}.json"
    if options.list:
        print_rows()
    elif options.write:
        field_table.write_page(field_table.PAGE, options.store)
    elif options.prepare:
        for row in rows:
            print(f"{row.name}: {', '.join(prepare(options, row))}", flush=True)
    else:
        print(f"{cpu_model()}, {options.isa}, load {os.getloadavg()[0]:.1f}; {options.pairs} processes each")
        (compare if options.compare else measure)(options, rows, path)


if __name__ == "__main__":
    main()
