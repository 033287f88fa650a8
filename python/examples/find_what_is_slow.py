"""Shows where the time of a program goes: by operator and by module of the model it was made of.

    python find_what_is_slow.py model.pte --report report.html              # no torch

Inputs are made up at their largest sizes. The report is one HTML file with graph, memory and
times of every step.
``--demo model.pte`` writes a small model with a slow layer to try it on (torch).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import pteron
from pteron.devtools.profile import profile
from pteron.devtools.report import Subject, report


def demo(output: str) -> None:
    """An image network whose middle layer has far more to do than the others."""
    import torch
    from torch import nn

    layers = {
        "stem": nn.Conv2d(3, 16, 3, stride=2, padding=1),
        "wide": nn.Conv2d(16, 64, 7, padding=3),
        "act": nn.GELU(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "head": nn.Linear(64, 10),
    }
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    pteron.export(model.eval(), (torch.randn(1, 3, 96, 96),), report=False).save(output)


def made_up(program: pteron.Program) -> list[np.ndarray]:
    """Numbers of 0 to 1 for every input; ones for integers."""
    found = []
    for spec in program.inputs("forward"):
        shape = [extent if isinstance(extent, int) else extent.max for extent in spec.shape]
        numbers = np.random.default_rng(0).random(shape)
        found.append((numbers if spec.dtype.startswith("float") else np.ones(shape)).astype(spec.dtype))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=20, help="calls to measure")
    parser.add_argument("--report", help="HTML file to write")
    parser.add_argument("--demo", action="store_true", help="write the program instead of reading it (torch)")
    options = parser.parse_args()
    if options.demo:
        demo(options.program)
        return
    program = pteron.load(options.program)
    found = profile(program, made_up(program), runs=options.runs)
    for by in ("operator", "module"):
        print(found.table(by))
    if options.report:
        content = Path(options.program).read_bytes()
        report([Subject(options.program, program, content, profiles={"here": found})]).save(options.report)
        print(f"{options.report} has the graph, the memory and the times of every step")


if __name__ == "__main__":
    main()
