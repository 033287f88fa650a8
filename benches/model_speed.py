"""Whole undelegated models here and in ONNX Runtime: alternating processes, medians.

    python benches/model_speed.py [MODEL ...] [--threads 1 2] [--pairs 7] [--files FOLDER] [--eager]

Each engine runs alone in a fresh process that has imported nothing else. Printed per model and threads:
the time of a call (median over processes of each process's median), of creating the session from a file in
the page cache, and the most memory that the process had beyond what was resident after its imports. Both
results are compared with those of eager PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resident import Memory
from results import Tables, add_json_option
from timing import cpu_model, median_ms

# Largest difference between an engine and eager PyTorch, relative to the largest output.
MOST_DIFFERENCE = 1e-4
COLUMNS = [
    "model",
    "threads",
    "run, ms",
    "peer",
    "ratio",
    "create, ms",
    "peer",
    "ratio",
    "memory, MiB",
    "peer",
    "ratio",
]
COLUMNS += ["difference", "peer"]


def session(engine: str, folder: Path, name: str, threads: int) -> Callable[[list[Any]], Any]:
    """Opens the model's file in this process."""
    if engine == "pteron":
        import pteron

        method = pteron.load(folder / f"{name}.pte").load_method("forward", num_threads=threads)
        return lambda arrays: method.execute(arrays)[0]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    peer = onnxruntime.InferenceSession(
        str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in peer.get_inputs()]
    return lambda arrays: peer.run(None, dict(zip(names, arrays, strict=True)))[0]


def worker(engine: str, folder: Path, name: str, threads: int, seconds: float) -> dict[str, float]:
    """Times one engine in this process."""
    import numpy as np

    arrays = [np.load(path) for path in sorted(folder.glob(f"{name}.input*.npy"))]
    if engine == "eager":
        return eager_worker(name, arrays, threads, seconds)
    __import__("pteron" if engine == "pteron" else "onnxruntime")
    memory = Memory()
    start = time.perf_counter()
    call = session(engine, folder, name, threads)
    created = (time.perf_counter() - start) * 1e3
    result = call(arrays)
    expected = np.load(folder / f"{name}.expected.npy")
    difference = float(np.abs(result - expected).max() / np.abs(expected).max())
    if not difference < MOST_DIFFERENCE:
        raise SystemExit(f"{engine} differs from eager on {name} by {difference:.2e}")
    run = median_ms(lambda: call(arrays), seconds)
    return {"run": run, "create": created, "memory": memory.most(), "difference": difference}


def eager_worker(name: str, arrays: list[Any], threads: int, seconds: float) -> dict[str, float]:
    """Times eager PyTorch in this process."""
    import torch
    from whole_models import MODELS

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = MODELS[name]()
    tensors = [torch.from_numpy(a) for a in arrays]
    with torch.inference_mode():
        run = median_ms(lambda: model.module(*tensors), seconds)
    return {"run": run, "create": 0.0, "memory": 0.0, "difference": 0.0}


def make_files(folder: Path, name: str) -> None:
    """Writes the model for both engines, its inputs and what eager PyTorch gives."""
    import numpy as np
    import torch
    from whole_models import MODELS

    from pteron.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.inference_mode():
        expected = model.module(*model.arguments)
    for i, argument in enumerate(model.arguments):
        np.save(folder / f"{name}.input{i}.npy", argument.numpy())
    np.save(folder / f"{name}.expected.npy", expected.numpy())
    exported = torch.export.export(model.module, model.arguments, dynamic_shapes=model.dynamic_shapes)
    torch.onnx.export(
        model.module,
        model.arguments,
        folder / f"{name}.onnx",
        dynamo=True,
        external_data=False,
        dynamic_shapes=model.dynamic_shapes,
        verbose=False,
    )
    to_edge_transform_and_lower(exported).to_executorch().save(folder / f"{name}.pte")


def spawn(arguments: list[str]) -> str:
    """Runs this script in a fresh process and returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def compare(options: argparse.Namespace, folder: Path, name: str, threads: int, tables: Tables) -> None:
    """Prints and notes one row."""
    engines = ["pteron", "onnxruntime"] + (["eager"] if options.eager else [])
    rows: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    for _ in range(options.pairs):
        for engine in engines:
            arguments = [name, "--worker", engine, "--files", str(folder), "--threads", str(threads)]
            text = spawn([*arguments, "--seconds", str(options.seconds)])
            rows[engine].append(json.loads(text.splitlines()[-1]))
    medians = {
        engine: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for engine, runs in rows.items()
    }
    ours, peer = medians["pteron"], medians["onnxruntime"]
    eager = f" | eager {medians['eager']['run']:8.2f} ms" if options.eager else ""
    print(
        f"{name:16} {threads}"
        f" | run {ours['run']:8.2f} {peer['run']:8.2f} ms {ours['run'] / peer['run']:5.2f}x"
        f" | create {ours['create']:7.1f} {peer['create']:7.1f} ms {ours['create'] / peer['create']:5.2f}x"
        f" | memory {ours['memory']:6.0f} {peer['memory']:6.0f} MiB {ours['memory'] / peer['memory']:5.2f}x"
        f" | difference {ours['difference']:.1e} {peer['difference']:.1e}{eager}",
        flush=True,
    )
    cells: list[object] = [name, threads]
    for key, form in (("run", ".2f"), ("create", ".1f"), ("memory", ".0f")):
        cells += [f"{ours[key]:{form}}", f"{peer[key]:{form}}", f"{ours[key] / peer[key]:.2f}x"]
    cells += [f"{ours['difference']:.1e}", f"{peer['difference']:.1e}"]
    tables.row(*cells, *([f"{medians['eager']['run']:.2f}"] if options.eager else []))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--worker")
    parser.add_argument("--make", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        row = worker(options.worker, options.files, options.models[0], options.threads[0], options.seconds)
        print(json.dumps(row))
        return
    if options.make:
        make_files(options.files, options.models[0])
        return
    from whole_models import MODELS

    folder = options.files or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    names = options.models or list(MODELS)
    print(f"{cpu_model()}; ONNX Runtime beside pteron, median of {options.pairs} processes each")
    tables = Tables()
    tables.begin([*COLUMNS, *(["eager, ms"] if options.eager else [])])
    for name in names:
        if not (folder / f"{name}.pte").exists():
            spawn([name, "--make", "--files", str(folder)])
        for threads in options.threads:
            compare(options, folder, name, threads, tables)
    tables.save(options)


if __name__ == "__main__":
    main()
