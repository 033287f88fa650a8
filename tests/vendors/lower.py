"""Lowers a model with a vendor's compiler: `python -m tests.vendors.lower ours|theirs BACKEND MODEL OUT`.

OUT is a JSON object: the nodes, size and digest of each delegate's blob, and the size of the program file.
The process imports nothing of the other side.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn


class ConvolutionNet(nn.Module):
    """A convolution with batch norm, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.norm(self.convolution(x)))
        return self.head(nn.functional.max_pool2d(features, 2).flatten(1))


class Sum(nn.Module):
    """One addition."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class TwoLinears(nn.Module):
    """Two layers with an activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def mobilenet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """MobileNetV2 of transformers, at half its width."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(image_size=96, depth_multiplier=0.5, num_labels=10, return_dict=False)
    return MobileNetV2ForImageClassification(config).eval(), (torch.randn(1, 3, 96, 96),)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "linear": lambda: (nn.Linear(4, 3), (torch.randn(2, 4),)),
    "two linears": lambda: (TwoLinears(), (torch.randn(2, 16),)),
    "sum": lambda: (Sum(), (torch.randn(2, 4), torch.randn(2, 4))),
    "convolution net": lambda: (ConvolutionNet().eval(), (torch.randn(1, 3, 8, 8),)),
    "mobilenet": mobilenet,
}


def _xnnpack() -> Any:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return XnnpackPartitioner()


def _native() -> Any:
    from executorch.backends.native.partitioner import NativePartitioner

    return NativePartitioner()


def _vulkan() -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    return VulkanPartitioner()


def _webgpu() -> Any:
    from executorch.backends.webgpu.partitioner.partitioner import WebGPUPartitioner

    return WebGPUPartitioner()


def _coreml() -> Any:
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    return CoreMLPartitioner()


PARTITIONERS: dict[str, Callable[[], Any]] = {
    "xnnpack": _xnnpack,
    "xnnpack int8": _xnnpack,
    "xnnpack dynamic int8": _xnnpack,
    "native": _native,
    "vulkan": _vulkan,
    "webgpu": _webgpu,
    "coreml": _coreml,
}


def _quantized(
    program: torch.export.ExportedProgram, inputs: tuple[torch.Tensor, ...], *, is_dynamic: bool
) -> torch.export.ExportedProgram:
    """PT2E quantisation with XNNPACK's quantizer, calibrated on the inputs."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer()
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=is_dynamic))
    prepared = prepare_pt2e(program.module(), quantizer)
    prepared(*inputs)
    return torch.export.export(convert_pt2e(prepared), inputs)


def lower(backend: str, model: str) -> dict[str, Any]:
    """What the vendor's compiler makes of the model."""
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    torch.manual_seed(0)
    module, inputs = MODELS[model]()
    program = torch.export.export(module, inputs)
    if "int8" in backend:
        program = _quantized(program, inputs, is_dynamic="dynamic" in backend)
    # The quantised graphs have operators that are no core ATen.
    config = EdgeCompileConfig(_check_ir_validity="int8" not in backend)
    edge = to_edge_transform_and_lower(program, partitioner=[PARTITIONERS[backend]()], compile_config=config)
    graph = edge.exported_program().graph_module
    delegates = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    named = [each.named_data_store_output for each in delegates]
    found = [
        {
            "nodes": sum(node.op == "call_function" for node in each.original_module.graph.nodes),
            "bytes": len(each.processed_bytes),
            "digest": hashlib.sha256(each.processed_bytes).hexdigest(),
            "named data": sorted(store.pte_data) if store is not None else [],
        }
        for each, store in zip(delegates, named, strict=True)
    ]
    assert len(edge.to_executorch().buffer) > 0
    return {"delegates": found}


def main(arguments: list[str]) -> None:
    """Writes the outcome of one lowering."""
    side, backend, model, out = arguments
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if side == "ours":
        from pteron import compat

        compat.install()
    Path(out).write_text(json.dumps(lower(backend, model)))


if __name__ == "__main__":
    main(sys.argv[1:])
