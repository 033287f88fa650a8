"""What each optimising pass of the exporter is worth, since load has rewrites of its own.

    python benches/passes_left_out.py [--models resnet mobilenet minilm vit lstm]

Exports a model with all passes, without each one, and with none, and prints for each file: bytes,
instructions, bytes of the arena, and processor time of a load and of a call on one thread (the least of
several, files taking turns).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from count_instructions import MODELS as COUNTED
from count_instructions import Logits
from torch.export import ExportedProgram, export

import pteron
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from pteron.exir.passes import OPTIMIZATIONS, ExportedProgramPassBase

LOADS = 7
CALLS = 25


def mobilenet() -> ExportedProgram:
    """MobileNetV2 as in transformers."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    model = Logits(MobileNetV2ForImageClassification(MobileNetV2Config())).eval()
    return export(model, (torch.randn(1, 3, 224, 224),))


MODELS: dict[str, Callable[[], ExportedProgram]] = {**COUNTED, "mobilenet": mobilenet}
SHAPES = {
    "resnet": (1, 3, 224, 224),
    "mobilenet": (1, 3, 224, 224),
    "vit": (1, 3, 96, 96),
    "lstm": (1, 16, 32),
}


def inputs(name: str) -> list[np.ndarray]:
    """One call's."""
    random = np.random.default_rng(0)
    if name == "minilm":
        return [random.integers(0, 30000, (1, 32)), np.ones((1, 32), np.int64)]
    return [random.random(SHAPES[name], np.float32)]


def choices() -> dict[str, bool | Sequence[ExportedProgramPassBase]]:
    """Label → `ExecutorchBackendConfig(optimize=...)`."""
    default = ExecutorchBackendConfig().optimizations
    found: dict[str, bool | Sequence[ExportedProgramPassBase]] = {"all": True}
    for left_out, each in zip(OPTIMIZATIONS, default, strict=True):
        name = getattr(left_out, "__name__", type(left_out).__name__)
        found[f"without {name}"] = [other for other in default if other is not each]
    return {**found, "none": False}


def times(files: dict[str, bytes], arguments: list[np.ndarray]) -> dict[str, tuple[float, float]]:
    """Label → milliseconds of a load and of a call."""
    runtime = pteron.Runtime(num_threads=1)
    load, call = dict.fromkeys(files, float("inf")), dict.fromkeys(files, float("inf"))
    methods = {}
    for _ in range(LOADS):
        for label, file in files.items():
            start = time.process_time()
            methods[label] = pteron.load(file, runtime=runtime).load_method()
            load[label] = min(load[label], time.process_time() - start)
    for _ in range(CALLS):
        for label, method in methods.items():
            start = time.process_time()
            method.execute(arguments)
            call[label] = min(call[label], time.process_time() - start)
    return {label: (load[label] * 1e3, call[label] * 1e3) for label in files}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.models:
        torch.manual_seed(0)
        with torch.no_grad():
            edge = to_edge(MODELS[name]())
            made: dict[str, ExecutorchProgramManager] = {
                label: edge.to_executorch(ExecutorchBackendConfig(optimize=chosen))
                for label, chosen in choices().items()
            }
        measured = times({label: program.buffer for label, program in made.items()}, inputs(name))
        print(f"{name:37} {'bytes':>12} {'instructions':>13} {'arena':>11} {'load, ms':>9} {'call, ms':>9}")
        for label, program in made.items():
            plan = program.executorch_program.execution_plan[0]
            print(
                f"  {label:35} {len(program.buffer):12,} {len(plan.chains[0].instructions):13} "
                f"{sum(plan.non_const_buffer_sizes):11,} {measured[label][0]:9.2f} {measured[label][1]:9.3f}"
            )


if __name__ == "__main__":
    main()
