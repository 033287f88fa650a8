"""Time a method: load, first call and steady calls apart, each setting in a process of its own.

Streams are sessions that run at once, each in a thread. Percentiles are over the calls of all streams, in
microseconds. With --compare the ratio of the medians to those of an earlier --json file is printed, with a
95 % interval from resampling the calls; a setting whose whole interval lies above 1 counts as found.
The share of the ceiling is that of calls a second: 100 % is what the machine does at most in as many threads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from pteron import Program
from pteron.cli.arguments import (
    add_method,
    add_program,
    add_runtime,
    load,
    method_of,
    print_json,
    runtime_arguments,
)
from pteron.cli.ceiling import add_ceiling, ceiling_of, given_ceiling
from pteron.cli.failure import UsageError
from pteron.cli.inputs import add_inputs, read_inputs
from pteron.cli.numbers import count, count_or_zero, seconds
from pteron.cli.progress import progress
from pteron.cli.tables import table
from pteron.devtools.ceiling import Ceiling
from pteron.devtools.profile import profile

EXAMPLE = "pteron bench model.pte --threads 1 2 --streams 1 --duration 2"
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
#: Calls that are kept of a setting: of more, evenly spread ones.
MOST_CALLS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_inputs(parser)
    add_runtime(parser)
    parser.add_argument("--threads", type=count, nargs="+", default=[1], help="threads of a session")
    parser.add_argument("--streams", type=count, nargs="+", default=[1], help="sessions that run at once")
    parser.add_argument(
        "--duration", type=seconds, default=2.0, help="seconds of steady calls for each setting"
    )
    parser.add_argument("--warmup", type=count_or_zero, default=5, help="calls before them")
    add_ceiling(parser)
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="an earlier --json output")
    parser.add_argument(
        "--assert-deterministic", action="store_true", help="exit with 1 where two calls give other bytes"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)


def execute(options: argparse.Namespace) -> int:
    """1 where a setting became slower, or results are not the same."""
    given_ceiling(options)
    if options.worker:
        print(json.dumps(_measure(options)))
        return 0
    old = None if options.compare is None else _read(options.compare)
    settings = [(threads, streams) for threads in options.threads for streams in options.streams]
    rows = []
    with progress("bench") as shown:
        for at, (threads, streams) in enumerate(settings):
            shown.show(f"{threads} threads, {streams} streams", at / len(settings))
            rows.append(_spawn(options, threads, streams))
    compared = [] if old is None else [_compare(row, old) for row in rows]
    if options.json:
        print_json({"rows": rows, "compared": [one for one in compared if one is not None]})
    else:
        print(_table(rows), end="")
        for one in compared:
            print("no such setting in the earlier file" if one is None else one["text"])
        for line in _advice(rows):
            print(line)
    slower = any(one is not None and one["is_slower"] for one in compared)
    varies = options.assert_deterministic and _vary(rows)
    if varies and not options.json:
        print(varies)
    return 1 if slower or varies else 0


def _vary(rows: list[dict[str, Any]]) -> str | None:
    """Where the same inputs give other bytes: from call to call, or from setting to setting."""
    for row in rows:
        if not row["is_deterministic"]:
            return f"{row['threads']} threads, {row['streams']} streams: two calls gave other bytes"
        if row["outputs"] != rows[0]["outputs"]:
            return f"{row['threads']} threads, {row['streams']} streams: other bytes than the first setting"
    return None


def _spawn(options: argparse.Namespace, threads: int, streams: int) -> dict[str, Any]:
    """One setting, in a fresh process."""
    arguments = [
        str(options.program.absolute()),
        "--worker",
        "--threads",
        str(threads),
        "--streams",
        str(streams),
    ]
    arguments += ["--duration", str(options.duration), "--warmup", str(options.warmup)]
    arguments += ["--seed", str(options.seed)]
    arguments += runtime_arguments(options)
    if options.ceiling is not None:
        arguments += ["--ceiling", options.ceiling]
    for name, values in (("--data", options.data), ("--input", options.input)):
        for value in values:
            arguments += [name, str(value)]
    if options.method is not None:
        arguments += ["--method", options.method]
    done = subprocess.run(
        [sys.executable, "-m", "pteron", "bench", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        text = done.stderr.strip().splitlines()
        raise UsageError(
            text[-1].removeprefix("pteron: ") if text else f"the run ended with {done.returncode}"
        )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    (threads,), (streams,) = options.threads, options.streams
    before = _most_resident()
    start = time.perf_counter()
    program = load(options)
    method = method_of(program, options.method)
    sessions = [program.load_method(method, num_threads=threads) for _ in range(streams)]
    loaded = time.perf_counter() - start
    values = read_inputs(options.input, program.inputs(method), options.seed)
    start = time.perf_counter()
    first = sessions[0].execute(values)
    first_call = time.perf_counter() - start
    bytes_of = [np.asarray(value).tobytes() for value in first if value is not None]
    again = [np.asarray(value).tobytes() for value in sessions[0].execute(values) if value is not None]
    is_deterministic = bytes_of == again
    for session in sessions:
        for _ in range(options.warmup):
            session.execute(values)
    times: list[list[int]] = [[] for _ in sessions]
    gate = threading.Barrier(streams + 1)
    end = [0.0]

    def work(at: int) -> None:
        session, found = sessions[at], times[at]
        gate.wait()
        while (now := time.perf_counter_ns()) < end[0]:
            session.execute(values)
            found.append(time.perf_counter_ns() - now)

    workers = [threading.Thread(target=work, args=(at,)) for at in range(streams)]
    for worker in workers:
        worker.start()
    start_ns = time.perf_counter_ns()
    end[0] = start_ns + options.duration * 1e9
    gate.wait()
    for worker in workers:
        worker.join()
    seconds = (time.perf_counter_ns() - start_ns) / 1e9
    calls = np.sort(np.concatenate([np.asarray(one, np.float64) for one in times]))
    if calls.size == 0:
        calls = np.asarray([first_call * 1e9])
    per_second = calls.size / seconds
    memory = _most_resident() - before
    most, share = _of_ceiling(options, program, method, values, per_second)
    kept = calls[np.linspace(0, calls.size - 1, min(calls.size, MOST_CALLS)).astype(int)]
    return {
        "threads": threads,
        "streams": streams,
        "load_ms": loaded * 1e3,
        "first_ms": first_call * 1e3,
        "calls": int(calls.size),
        "us": {f"p{p:g}": float(np.percentile(calls, p)) / 1e3 for p in PERCENTILES},
        "per_second": per_second,
        "memory_mb": memory,
        "ceiling": None if most is None else most.to_dict(),
        "of_ceiling": share,
        "is_deterministic": is_deterministic,
        "outputs": hashlib.sha256(b"".join(bytes_of)).hexdigest(),
        "processors": _processors(),
        "call_us": [round(float(value) / 1e3, 3) for value in kept],
    }


def _of_ceiling(
    options: argparse.Namespace, program: Program, method: str, values: list[Any], per_second: float
) -> tuple[Ceiling | None, float | None]:
    """The ceiling of all threads that run at once, and the share of it that so many calls a second reach.

    One call with a tracer says how often each step runs.
    """
    (threads,), (streams,) = options.threads, options.streams
    at_once = min(threads * streams, _processors())
    ceiling = ceiling_of(options, at_once)
    found = profile(program, values, method, runs=1, warmup=0, num_threads=threads, ceiling=ceiling)
    least = found.least
    return found.ceiling, None if least is None else least * per_second / 1e9


def _most_resident() -> float:
    """The most resident memory that this process had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Linux counts what the parent had when this process began into `ru_maxrss`, but not here.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
        for row in rows:
            _ = row["threads"], row["streams"], row["us"]["p50"], row["call_us"][0]
    except (ValueError, KeyError, TypeError, IndexError):
        raise UsageError(f"{path}: not the output of pteron bench --json") from None
    return rows


def _compare(row: dict[str, Any], old: list[dict[str, Any]]) -> dict[str, Any] | None:
    same = [one for one in old if (one["threads"], one["streams"]) == (row["threads"], row["streams"])]
    if not same:
        return None
    random = np.random.default_rng(0)
    ours, theirs = np.asarray(row["call_us"]), np.asarray(same[0]["call_us"])

    def medians(calls: Any) -> Any:
        return np.median(random.choice(calls, (1000, min(calls.size, 500))), axis=1)

    low, high = np.percentile(medians(ours) / medians(theirs), [2.5, 97.5])
    ratio = row["us"]["p50"] / same[0]["us"]["p50"]
    text = (
        f"{row['threads']} threads, {row['streams']} streams: {ratio:.3f}x of the earlier median"
        f" (95 %: {low:.3f} to {high:.3f})"
    )
    return {
        "threads": row["threads"],
        "streams": row["streams"],
        "ratio": ratio,
        "low": float(low),
        "high": float(high),
        "is_slower": bool(low > 1.0),
        "text": text,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    heads = (
        "threads",
        "streams",
        "load ms",
        "first ms",
        *(f"p{p:g} us" for p in PERCENTILES),
        "calls/s",
        "of ceiling",
        "MB",
    )
    cells = [
        (
            str(row["threads"]),
            str(row["streams"]),
            f"{row['load_ms']:.1f}",
            f"{row['first_ms']:.2f}",
            *(f"{row['us'][f'p{p:g}']:.1f}" for p in PERCENTILES),
            f"{row['per_second']:.1f}",
            "" if row["of_ceiling"] is None else f"{row['of_ceiling']:.0%}",
            f"{row['memory_mb']:.0f}",
        )
        for row in rows
    ]
    return table(heads, cells)


def _advice(rows: list[dict[str, Any]]) -> list[str]:
    """What follows from the figures."""
    out = []
    best = max(rows, key=lambda row: row["per_second"])
    fastest = min(rows, key=lambda row: row["us"]["p50"])
    if len(rows) > 1:
        out.append(
            f"shortest calls: {fastest['threads']} threads, {fastest['streams']} streams;"
            f" most calls a second: {best['threads']} threads, {best['streams']} streams"
        )
    if best["of_ceiling"] is not None:
        most = best["ceiling"]
        out.append(
            f"{best['of_ceiling']:.0%} of the ceiling of this machine, {most['gflops']:.0f} GFLOP/s and"
            f" {most['gigabytes']:.0f} GB/s, are reached: pteron profile shows which steps reach less"
        )
    crowded = [row for row in rows if row["threads"] * row["streams"] > row["processors"]]
    if crowded:
        out.append(f"more threads than the {crowded[0]['processors']} processors of this process: calls wait")
    if fastest["us"]["p99"] > 2 * fastest["us"]["p50"]:
        out.append(
            "the slowest hundredth takes more than twice the median: the machine is busy, or calls are short"
        )
    return out
