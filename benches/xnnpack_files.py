"""Files that ExecuTorch lowered to XNNPACK, run here and in ExecuTorch: alternating processes, medians.

    python benches/xnnpack_files.py [MODEL ...] [--threads 1 2] [--pairs 5] [--int8 | --four-bits]
        [--plain] [--processor]

Both engines run the same file, each in a fresh process on `threads` processors with no other import.
Printed per model and threads: the time of a call, of loading the program and its method from the page cache,
and the most memory that the process had beyond what was resident after its imports, until then and with
calls. Every process reads the file before it measures, so that none of them finds it cold. `--int8` quantises
the models statically, per channel, first; `--four-bits` the weights of linear layers in groups of 32, and
their inputs by rows to 8 bits (torchao's `Int8DynamicActivationIntxWeightConfig`). `--plain` adds our run of
the same model lowered without a partitioner. `--processor` measures the time that processors worked for the
process, which says more on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import math
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

COLUMNS = [
    "model",
    "threads",
    "run, ms",
    "peer",
    "ratio",
    "load, ms",
    "peer",
    "ratio",
    "loading, MiB",
    "peer",
    "ratio",
    "memory, MiB",
    "peer",
    "ratio",
]


def session(engine: str, path: Path, threads: int) -> Callable[[list[Any]], Any]:
    """Opens a file in this process."""
    if engine == "executorch":
        from executorch.runtime import Runtime

        method = Runtime.get().load_program(path).load_method("forward")
        assert method is not None
        return lambda tensors: method.execute(tensors)[0]
    import pteron

    ours = pteron.load(path).load_method("forward", num_threads=threads)
    return lambda tensors: ours.execute(tensors)[0]


def warm(path: Path) -> None:
    """Has the system hold the file in its page cache."""
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def processor_ms(call: Callable[[], object], seconds: float) -> float:
    """The processor time of a call, all threads together, in milliseconds."""
    call()
    calls, start, end = 0, time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end or calls < 3:
        call()
        calls += 1
    return (time.process_time() - start) * 1e3 / calls


def worker(
    engine: str, folder: Path, name: str, threads: int, seconds: float, is_processor: bool
) -> dict[str, float]:
    """Times one engine in this process."""
    import numpy as np

    # ExecuTorch's pool has a thread for each processor that the process may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    arrays: list[Any] = [np.load(path) for path in sorted(folder.glob(f"{name}.input*.npy"))]
    if engine == "executorch":
        import torch

        __import__("executorch.runtime")
        arrays = [torch.from_numpy(array) for array in arrays]
    else:
        __import__("pteron")
    path = folder / f"{name}{'.plain' if engine == 'plain' else ''}.pte"
    warm(path)
    clock = time.process_time if is_processor else time.perf_counter
    memory = Memory()
    start = clock()
    call = session(engine, path, threads)
    created = (clock() - start) * 1e3
    loaded = memory.most()
    result = np.asarray(call(arrays))
    np.save(folder / f"{name}.{engine}.npy", result)
    run = (processor_ms if is_processor else median_ms)(lambda: call(arrays), seconds)
    return {"run": run, "load": created, "load memory": loaded, "memory": memory.most()}


def make_files(folder: Path, name: str, options: argparse.Namespace) -> None:
    """Writes the program with and without XNNPACK, and the inputs, with ExecuTorch alone."""
    import numpy as np
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from published_models import PUBLISHED

    torch.manual_seed(0)
    model = PUBLISHED[name]()
    module = model.module
    if options.four_bits:
        with_four_bits(module)
    if options.int8:
        import executorch.kernels.quantized  # noqa: F401  (out variants of what the plain file calls)

        module = quantized(module, model.arguments)
    for i, argument in enumerate(model.arguments):
        np.save(folder / f"{name}.input{i}.npy", argument.numpy())
    forms = [("", [XnnpackPartitioner()]), *([(".plain", None)] if options.plain else [])]
    for suffix, partitioner in forms:
        exported = torch.export.export(module, model.arguments, dynamic_shapes=model.dynamic_shapes)
        edge = to_edge_transform_and_lower(exported, partitioner=partitioner)
        (folder / f"{name}{suffix}.pte").write_bytes(edge.to_executorch().buffer)


def with_four_bits(module: Any) -> None:
    """Quantises linear layers in place."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    four_bits = getattr(torch, "int4")  # noqa: B009 -- torch's stubs do not know it
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=four_bits, weight_granularity=PerGroup(32))
    linear = torch.nn.Linear
    quantize_(module, config, lambda part, _: isinstance(part, linear) and part.in_features % 32 == 0)


def quantized(module: Any, arguments: tuple[Any, ...]) -> Any:
    """The model in static int8, per channel."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(module, arguments).module(), quantizer)
    prepared(*arguments)
    return convert_pt2e(prepared)


def spawn(arguments: list[str]) -> str:
    """Runs this script in a fresh process and returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def compare(
    options: argparse.Namespace, folder: Path, name: str, threads: int, tables: Tables
) -> dict[str, float]:
    """Prints and notes one row; our figures in those of the peer."""
    import numpy as np

    engines = ["pteron", "executorch", *(["plain"] if options.plain else [])]
    rows: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    for _ in range(options.pairs):
        for engine in engines:
            arguments = [name, "--worker", engine, "--files", str(folder), "--threads", str(threads)]
            measure = ["--processor"] if options.processor else []
            text = spawn([*arguments, *measure, "--seconds", str(options.seconds)])
            rows[engine].append(json.loads(text.splitlines()[-1]))
    medians = {
        engine: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for engine, runs in rows.items()
    }
    ours, peer = medians["pteron"], medians["executorch"]
    mine, theirs = (np.load(folder / f"{name}.{engine}.npy") for engine in ("pteron", "executorch"))
    difference = float(np.abs(mine - theirs).max() / np.abs(theirs).max())
    plain = f" | without a partitioner {medians['plain']['run']:.2f} ms" if options.plain else ""
    print(
        f"{name:16} {threads}"
        f" | run {ours['run']:8.2f} {peer['run']:8.2f} ms {ours['run'] / peer['run']:5.2f}x"
        f" | load {ours['load']:7.1f} {peer['load']:7.1f} ms {ours['load'] / peer['load']:5.2f}x"
        f" | loading {ours['load memory']:5.0f} {peer['load memory']:5.0f} MiB"
        f" {ours['load memory'] / peer['load memory']:5.2f}x"
        f" | memory {ours['memory']:6.0f} {peer['memory']:6.0f} MiB {ours['memory'] / peer['memory']:5.2f}x"
        f" | difference {difference:.1e}{plain}",
        flush=True,
    )
    cells: list[object] = [name, threads]
    for key, form in (("run", ".2f"), ("load", ".1f"), ("load memory", ".0f"), ("memory", ".0f")):
        cells += [f"{ours[key]:{form}}", f"{peer[key]:{form}}", f"{ours[key] / peer[key]:.2f}x"]
    tables.row(*cells)
    return {key: ours[key] / peer[key] for key in ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--four-bits", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--worker")
    parser.add_argument("--make", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        files, name, threads = options.files, options.models[0], options.threads[0]
        row = worker(options.worker, files, name, threads, options.seconds, options.processor)
        print(json.dumps(row))
        return
    if options.make:
        make_files(options.files, options.models[0], options)
        return
    from published_models import PUBLISHED

    folder = options.files or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    print(
        f"{cpu_model()}, load {load:.1f}; ExecuTorch beside pteron, median of {options.pairs} processes each"
    )
    tables = Tables()
    tables.begin(COLUMNS)
    ratios: dict[int, list[dict[str, float]]] = {threads: [] for threads in options.threads}
    for name in options.models or list(PUBLISHED):
        if not (folder / f"{name}{'.plain' if options.plain else ''}.pte").exists():
            flags = {"--int8": options.int8, "--four-bits": options.four_bits, "--plain": options.plain}
            wanted = [flag for flag, is_on in flags.items() if is_on]
            spawn([name, "--make", "--files", str(folder), *wanted])
        for threads in options.threads:
            ratios[threads].append(compare(options, folder, name, threads, tables))
    for threads, found in ratios.items():
        means = {key: math.exp(statistics.fmean(math.log(row[key]) for row in found)) for key in found[0]}
        text = ", ".join(f"{key} {mean:.2f}x" for key, mean in means.items())
        print(f"geometric means, {threads} threads: {text}")
    tables.save(options)


if __name__ == "__main__":
    main()
