"""Memory of sessions, against the memory plan and the weights of the file.

    python benches/session_memory.py [--models vit lstm resnet] [--sessions 9]

In a fresh process, one thread per session, after two calls of each: anonymous memory and the resident part of
the mapped file. "first" is what the program and its first session take, against weights and plan together:
the aim is 1.05x of the larger of the file's plan and our own, plus the weights once. "further" is what each
other session adds, against the plan alone. The difference is scratch, the records of values and steps, and
the program's table.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from results import Tables, add_json_option


def resident(file: str) -> int:
    """Bytes of anonymous memory of this process and of its mapping of `file`."""
    status = Path("/proc/self/status").read_text()
    anonymous = int(status.split("RssAnon:")[1].split()[0])
    maps = Path("/proc/self/smaps").read_text()
    mapped = sum(int(n) for n in re.findall(rf"{re.escape(file)}\n(?:\w.*\n)*?Rss: +(\d+) kB", maps))
    return (anonymous + mapped) * 1024


def worker(file: str, count: int) -> tuple[int, int]:
    """Bytes that the program and its first session take, and that each of `count` others adds."""
    import gc

    import numpy as np

    import pteron

    def arrays(specs: tuple[pteron.ValueSpec, ...]) -> list[object]:
        shapes = [[getattr(n, "max", n) for n in spec.shape or ()] for spec in specs]
        return [np.ones(shape, spec.dtype) for shape, spec in zip(shapes, specs, strict=True)]

    def session(program: pteron.Program) -> pteron.Method:
        method = program.load_method(num_threads=1)
        for _ in range(2):
            method.execute(inputs, outputs=outputs)
        return method

    small = pteron.load(file)  # what the process needs once, whatever it runs
    inputs, outputs = arrays(small.inputs()), arrays(small.outputs())
    session(small)
    del small
    gc.collect()
    start = resident(file)
    program = pteron.load(file)
    sessions = [session(program)]
    first = resident(file)
    sessions += [session(program) for _ in range(count)]
    return first - start, (resident(file) - first) // count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["vit", "lstm", "resnet"])
    parser.add_argument("--sessions", type=int, default=9)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker, options.sessions)))
        return
    import torch
    from count_instructions import MODELS
    from whole_models import MODELS as WHOLE_MODELS

    from pteron.exir import to_edge

    def exported(name: str) -> torch.export.ExportedProgram:
        if name in MODELS:
            return MODELS[name]()
        model = WHOLE_MODELS[name]()
        return torch.export.export(model.module, model.arguments, dynamic_shapes=model.dynamic_shapes)

    warnings.simplefilter("ignore")
    print(f"{'KiB':14} {'weights':>8} {'plan':>8} {'first':>8} {'ratio':>6} {'further':>8} {'ratio':>6}")
    tables = Tables()
    tables.begin(["model", "weights, KiB", "plan", "first", "ratio", "further", "ratio"])
    for name in options.models:
        torch.manual_seed(0)
        with torch.no_grad():
            program = to_edge(exported(name)).to_executorch()
        plan = sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)
        weights = sum(len(buffer.storage) for buffer in program.executorch_program.constant_buffer)
        with tempfile.NamedTemporaryFile(suffix=".pte") as file:
            program.save(file.name)
            command = [sys.executable, __file__, "--worker", file.name, "--sessions", str(options.sessions)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        first, further = json.loads(done.stdout)
        sizes = f"{weights / 1024:8.0f} {plan / 1024:8.0f} {first / 1024:8.0f}"
        ratios = f"{first / (weights + plan):5.2f}x {further / 1024:8.0f} {further / plan:5.2f}x"
        print(f"{name:14} {sizes} {ratios}", flush=True)
        tables.row(name, *sizes.split(), *ratios.split())
    tables.save(options)


if __name__ == "__main__":
    main()
