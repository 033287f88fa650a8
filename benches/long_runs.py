"""Memory over many calls of varying shape, and start-up from a cold and a warm file, against ONNX Runtime.

    python benches/long_runs.py [--calls 10000] [--starts 7] [--peer PYTHON]

A text encoder (8 million weights; 1 to 4 rows of 1 to 16 tokens), exported for both from one model. Memory:
resident megabytes of a process, one thread, after 100 calls, in the middle and at the end; every call has a
shape drawn at random. Start-up: milliseconds of a fresh process from before the load to the end of a call,
imports not counted; cold: the pages of the file are dropped before (`posix_fadvise`). Median of processes in
turn; processor time beside it, which does not depend on what else the machine does.
`make bench-long-runs` has the peer.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resident import status
from results import Tables, add_json_option
from timing import cpu_model

FILES: dict[str, Callable[[Path], Path]] = {
    "pteron": lambda folder: folder / "plain.pte",
    "pteron packed": lambda folder: folder / "packed.pte",
    "onnxruntime": lambda folder: folder / "model.onnx",
}
ENGINES = tuple(FILES)
ROWS, LENGTH = 4, 16


def encoder() -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """The model, an example and its shapes."""
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(8000, 512)
            parts = [
                torch.nn.Linear(512, 2048),
                torch.nn.GELU(),
                torch.nn.Linear(2048, 512),
                torch.nn.LayerNorm(512),
            ]
            self.layers = torch.nn.Sequential(*parts, torch.nn.Linear(512, 2048), torch.nn.GELU())
            self.head = torch.nn.Linear(2048, 512)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(self.words(ids)).mean(1))

    torch.manual_seed(0)
    model, example = Encoder().eval(), (torch.zeros(2, 16, dtype=torch.int64),)
    rows, length = torch.export.Dim("rows", min=1, max=ROWS), torch.export.Dim("length", min=1, max=LENGTH)
    return model, example, ({0: rows, 1: length},)


def export(folder: Path) -> None:
    """The model as a program, as one with packed weights, and as an ONNX file."""
    import torch

    import pteron

    model, example, shapes = encoder()
    for name, packed in (("pteron", False), ("pteron packed", True)):
        program = pteron.export(model, example, dynamic_shapes=shapes, packed_weights=packed, report=False)
        program.save(FILES[name](folder))
    exported = torch.onnx.export(model, example, dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert exported is not None
    exported.save(FILES["onnxruntime"](folder))


def loaded(engine: str, file: str) -> Callable[[Any], Any]:
    """A call of an engine, ready; one thread."""
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda ids: session.run(None, {name: ids})
    import pteron

    method = pteron.load(file).load_method(num_threads=1)
    return lambda ids: method.execute([ids])


def memory(engine: str, file: str, calls: int) -> list[float]:
    """Resident MB after 100 calls, in the middle, at the end."""
    import numpy as np

    call, chance, found = loaded(engine, file), random.Random(0), []
    for n in range(1, calls + 1):
        call(np.ones((chance.randint(1, ROWS), chance.randint(1, LENGTH)), np.int64))
        if n in (100, calls // 2, calls):
            found.append(status("VmRSS"))
    return found


def start(engine: str, file: str) -> list[float]:
    """Milliseconds from before the load to the end of a call, by the clock and of the processor."""
    import numpy as np

    if engine == "onnxruntime":
        import onnxruntime  # noqa: F401
    else:
        import pteron  # noqa: F401
    ids = np.ones((1, 16), np.int64)
    begun, used = time.perf_counter(), time.process_time()
    loaded(engine, file)(ids)
    return [(time.perf_counter() - begun) * 1e3, (time.process_time() - used) * 1e3]


def drop(file: Path) -> None:
    """Takes a file out of the page cache."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ask(python: str, engine: str, file: Path, what: str, calls: int) -> list[float]:
    """What a process of its own measures."""
    command = [python, __file__, "--worker", engine, str(file), what, "--calls", str(calls)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument(
        "--peer", default=sys.executable, help="a Python with onnxruntime (default: this one)"
    )
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        engine, file, what = options.worker
        print(json.dumps(memory(engine, file, options.calls) if what == "memory" else start(engine, file)))
        return
    tables = Tables()
    print(f"{cpu_model()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(folder)
        files = {engine: file(folder) for engine, file in FILES.items()}
        pythons = {engine: options.peer if engine == "onnxruntime" else sys.executable for engine in ENGINES}
        tables.begin(["engine", "after 100 calls", "in the middle", "at the end", "growth"])
        for engine in ENGINES:
            found = ask(pythons[engine], engine, files[engine], "memory", options.calls)
            cells = [f"{value:.1f} MB" for value in (*found, found[-1] - found[0])]
            print(f"{engine:14} memory {cells}")
            tables.row(engine, *cells)
        tables.begin(["engine", "file", "cold", "cold, processor", "warm", "warm, processor"])
        for engine in ENGINES:
            times: dict[str, list[list[float]]] = {"cold": [], "warm": []}
            for _ in range(options.starts):
                for state, measured in times.items():
                    if state == "cold":
                        drop(files[engine])
                    measured.append(ask(pythons[engine], engine, files[engine], "start", options.calls))
            cells = [f"{statistics.median(one[k] for one in times[s]):.1f} ms" for s in times for k in (0, 1)]
            size = f"{files[engine].stat().st_size / 1e6:.0f} MB"
            print(f"{engine:14} start {size} {cells}")
            tables.row(engine, size, *cells)
    tables.save(options)


if __name__ == "__main__":
    main()
