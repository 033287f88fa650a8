"""Language models here and in three peers: decode, prefill, load, memory; alternating processes.

    python benches/llm_speed.py [MODEL ...] [--schemes int4] [--threads 1 2] [--pairs 3] [--engines ...]

Llamas of true shapes (`llm_models.SHAPES`) with random weights, in 32, 16, 8 and 4 bits. Each engine runs
alone in a fresh process, `pairs` times in turns, pinned to as many processors as it has threads. Printed for
each model, scheme and number of threads:

- load cold, warm: seconds from the path to a generator that may be called; cold is the first process, whose
  files the system was told to forget, warm the median of the others;
- first token: seconds from the path to the first token behind 128, in a process that has computed nothing;
- prefill: tokens of a prompt of 128 and of 1,024 by the seconds to their first token, the cache empty before;
- decode: tokens a second behind a prompt of 128;
- bandwidth: the weights that these tokens read (`bytes_of_a_token`), as a part of the read bandwidth that
  processes between the engines' measured with as many threads;
- peak: MiB of the process beyond its imports, beside the size of its files.

"pteron dynamic" has schemes whose linear layers multiply bytes with bytes (`int4-dynamic`, `int8-dynamic`),
as the peers do in 8 and 4 bits; "pteron" multiplies floats.

Medians of processes; the ratio is that of decode times to the fastest peer's. First tokens of f32 are equal
in all engines, or the run ends. Libraries of the peers are in an environment of
their own (`make bench-llm` makes it); `--peers` names its Python. An engine that has no such scheme, or
cannot make the model, has no row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from llm_models import SHAPES, bytes_of_a_token
from results import Tables, add_json_option
from timing import cpu_model

SCHEMES = ("f32", "bf16", "int8", "int4")


class Engine(NamedTuple):
    """What makes the files of an engine, whose Python makes and runs them, and the schemes that it has."""

    maker: str
    made_by_peers: bool
    run_by_peers: bool
    schemes: tuple[str, ...]


ENGINES = {
    "pteron": Engine("pteron", False, False, SCHEMES),
    "pteron packed": Engine("pteron packed", False, False, SCHEMES),
    "pteron dynamic": Engine("pteron dynamic", False, False, ("int8", "int4")),
    "llama.cpp": Engine("gguf", True, True, SCHEMES),
    "onnxruntime": Engine("onnxruntime", False, True, ("f32", "int8", "int4")),
    "openvino": Engine("gguf", True, True, ("int8", "int4")),
}
#: What an engine imports, so that neither load nor memory counts it.
MODULES = {
    "pteron": "pteron.llm",
    "pteron packed": "pteron.llm",
    "pteron dynamic": "pteron.llm",
    "llama.cpp": "llama_cpp",
    "onnxruntime": "onnxruntime_genai",
    "openvino": "openvino_genai",
}
COLUMNS = (
    "model", "scheme", "threads", "engine", "load cold, s", "load warm, s", "first token, s",
    "prefill 128, tok/s", "prefill 1024, tok/s", "decode, tok/s", "of bandwidth", "ratio", "peak, MiB",
    "files, MiB", "load of the machine",
)  # fmt: skip
_SHORT, _LONG = 128, 1024
_READ_BYTES = 1 << 30


def prompt(length: int, number: int) -> list[int]:
    """The same tokens for every engine; prompts of different numbers begin differently."""
    source = random.Random(number)
    return [2 + number, *(source.randrange(300, 30000) for _ in range(length - 1))]


def resident(field: str) -> float:
    """MiB of this process by a field of its status: VmRSS or VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(field)


def worker(engine: str, folder: Path, threads: int, tokens: int) -> dict[str, object]:
    """Times one engine in this process."""
    import llm_engines

    pin(threads)
    import_module("numpy")
    import_module(MODULES[engine])
    before = resident("VmRSS")
    begin = time.perf_counter()
    generate = llm_engines.OPEN[engine](folder, threads)
    load = time.perf_counter() - begin
    cold = generate(prompt(_SHORT, 0), 2)
    first = load + cold.first
    warm = [generate(prompt(_SHORT, number), tokens) for number in (1, 2)]
    long = [generate(prompt(_LONG, number), 2).first for number in (3, 4)]
    return {
        "load": load,
        "first": first,
        "short": _SHORT / min(each.first for each in warm),
        "long": _LONG / min(long),
        "decode": (tokens - 1) / min(each.others for each in warm),
        "peak": resident("VmHWM") - before,
        "token": cold.tokens[0],
    }


def pin(threads: int) -> None:
    """To as many processors as threads: pools of some peers take all that the process may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def read_bandwidth(threads: int) -> float:
    """Bytes a second that threads read from memory: the C library's search for a byte that is not there."""
    import ctypes
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    pin(threads)
    search = ctypes.CDLL(None).memchr
    search.argtypes, search.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p
    memory = np.ones(_READ_BYTES, np.uint8)
    part = _READ_BYTES // threads
    places = [memory.ctypes.data + part * number for number in range(threads)]
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(6):
            begin = time.perf_counter()
            assert list(pool.map(lambda place: search(place, 0, part), places)) == [None] * threads
            times.append(time.perf_counter() - begin)
    return part * threads / min(times)


def spawn(python: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs this script in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [python, __file__, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def forget(folder: Path) -> None:
    """Tells the system to drop the files of a folder from its cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def files_mib(folder: Path) -> float:
    """Of the model that an engine opens."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / (1 << 20)


def prepared(options: argparse.Namespace, name: str, scheme: str) -> dict[str, Path]:
    """The folder of each engine that can run this, made where it is missing."""
    base: Path = options.files / name
    weights = base / "weights"
    if not (weights / "config.json").exists():
        weights.mkdir(parents=True, exist_ok=True)
        done = spawn(sys.executable, [name, "--make", "weights", "--files", str(weights)])
        if done.returncode:
            raise SystemExit(done.stderr)
    found = {}
    for engine in options.engines:
        maker = ENGINES[engine].maker
        if scheme not in ENGINES[engine].schemes:
            continue
        folder = base / f"{maker.replace(' ', '_')}-{scheme}"
        if not (folder / "made").exists():
            python = options.peers if ENGINES[engine].made_by_peers else sys.executable
            given = [
                name,
                "--make",
                maker,
                "--schemes",
                scheme,
                "--files",
                str(folder),
                "--weights",
                str(weights),
            ]
            done = spawn(python, [*given, "--peers", options.peers])
            if done.returncode:
                reason = next(iter(reversed(done.stderr.strip().splitlines())), "")
                print(f"{name} {scheme}: {engine} makes no model: {reason[:200]}", flush=True)
                continue
            (folder / "made").touch()
        found[engine] = folder
    return found


def make(options: argparse.Namespace) -> None:
    """Writes the files of one engine, in this process."""
    import llm_models

    name, target = options.models[0], options.files
    if options.make == "weights":
        llm_models.write_weights(target, name)
        return
    package = None
    if options.make == "onnxruntime":
        find = "import onnxruntime_genai as package; print(package.__path__[0])"
        package = Path(subprocess.check_output([options.peers, "-c", find], text=True).strip())
    llm_models.make(options.make, options.schemes[0], options.weights, target, name, package)


Runs = dict[str, list[dict[str, Any]]]


def run_all(options: argparse.Namespace, folders: dict[str, Path], threads: int) -> Runs:
    """Every process of one model, scheme and number of threads; the engines and the bandwidth in turns."""
    runs: Runs = {engine: [] for engine in ["bandwidth", *folders]}
    failed = set()
    for pair in range(options.pairs):
        for engine in runs:
            if engine in failed:
                continue
            python = options.peers if engine in ENGINES and ENGINES[engine].run_by_peers else sys.executable
            given = ["--worker", engine, "--threads", str(threads), "--tokens", str(options.tokens)]
            if engine != "bandwidth":
                given += ["--files", str(folders[engine])]
                if pair == 0:
                    forget(folders[engine])
            done = spawn(python, given)
            if done.returncode:
                reason = next(iter(reversed(done.stderr.strip().splitlines())), str(done.returncode))
                print(f"{engine} does not run: {reason[:300]}", flush=True)
                failed.add(engine)
                continue
            runs[engine].append(json.loads(done.stdout.splitlines()[-1]))
    return {engine: found for engine, found in runs.items() if engine not in failed}


def compare(options: argparse.Namespace, name: str, scheme: str, threads: int, tables: Tables) -> None:
    """Prints and notes the rows of one model, scheme and number of threads."""
    load = f"{os.getloadavg()[0]:.1f}"
    folders = prepared(options, name, scheme)
    runs = run_all(options, folders, threads)
    bandwidth = max(run["bytes"] for run in runs.pop("bandwidth"))
    print(f"{name} {scheme}, {threads} threads: reads {bandwidth / 1e9:.1f} GB/s", flush=True)
    middle = {
        engine: {key: statistics.median(run[key] for run in found) for key in found[0]}
        for engine, found in runs.items()
    }
    if scheme == "f32" and len({each["token"] for each in middle.values()}) > 1:
        raise SystemExit(
            f"{name}: first tokens differ: { {engine: each['token'] for engine, each in middle.items()} }"
        )
    peers = [each["decode"] for engine, each in middle.items() if not engine.startswith("pteron")]
    for engine, found in middle.items():
        warm = [run["load"] for run in runs[engine][1:]]
        cells = [
            name, scheme, threads, engine,
            f"{runs[engine][0]['load']:.2f}",
            f"{statistics.median(warm):.2f}" if warm else "-",
            f"{found['first']:.2f}",
            f"{found['short']:.0f}",
            f"{found['long']:.0f}",
            f"{found['decode']:.1f}",
            f"{found['decode'] * bytes_of_a_token(name, scheme) / bandwidth:.0%}",
            f"{max(peers) / found['decode']:.2f}x" if peers else "-",
            f"{found['peak']:.0f}",
            f"{files_mib(folders[engine]):.0f}",
            load,
        ]  # fmt: skip
        print(" | ".join(map(str, cells)), flush=True)
        tables.row(*cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(SHAPES))
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=SCHEMES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a decode")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--files", type=Path, help="where models are kept; by default nowhere")
    parser.add_argument("--weights", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.make:
        make(options)
        return
    if options.worker:
        threads = options.threads[0]
        is_read = options.worker == "bandwidth"
        found = {"bytes": read_bandwidth(threads)} if is_read else None
        print(json.dumps(found or worker(options.worker, options.files, threads, options.tokens)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        options.files = options.files or Path(temporary)
        print(f"{cpu_model()}; medians of {options.pairs} processes each")
        print(" | ".join(COLUMNS))
        tables = Tables()
        tables.begin(COLUMNS)
        for name in options.models or ("135m", "0.5b", "1.1b"):
            for scheme in options.schemes:
                for threads in options.threads:
                    compare(options, name, scheme, threads, tables)
        tables.save(options)


if __name__ == "__main__":
    main()
