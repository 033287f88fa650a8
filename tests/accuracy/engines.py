"""Int8 models of a task, each engine with the quantisation of its own users; what each computes."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.accuracy.tasks import Inputs, Outputs, Task

Engine = Callable[[Task], Sequence[Outputs]]


def in_eager(model: Callable[..., Any], batches: Sequence[Inputs]) -> list[Outputs]:
    """What PyTorch computes."""
    with torch.no_grad():
        return [model(*inputs).numpy() for inputs in batches]


def quantised(task: Task) -> nn.Module:
    """By `pteron.quant`, static int8."""
    from pteron.quant import quantize

    return quantize(task.model, task.batches[0], task.calibration, "int8")


def in_pteron(model: nn.Module, batches: Sequence[Inputs]) -> list[Outputs]:
    """What the exported program computes."""
    import pteron
    from pteron.exir import to_edge

    program = pteron.load(to_edge(torch.export.export(model, batches[0])).to_executorch().buffer)
    method = program.load_method("forward")
    return [np.asarray(method.execute(list(inputs))[0]) for inputs in batches]


def in_executorch(task: Task) -> list[Outputs]:
    """PT2E with XNNPACK's quantizer, per channel, lowered to XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(task.model, task.batches[0]).module(), quantizer)
    for inputs in task.calibration:
        prepared(*inputs)
    exported = torch.export.export(convert_pt2e(prepared), task.batches[0])
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        path.write_bytes(edge.to_executorch().buffer)
        method = Runtime.get().load_program(path).load_method("forward")
        assert method is not None
        return [method.execute(list(inputs))[0].numpy().copy() for inputs in task.batches]


def in_onnxruntime(task: Task) -> list[Outputs]:
    """Static QDQ, unsigned activations, weights per channel."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        floats, prepared, target = (
            str(Path(folder) / f"{name}.onnx") for name in ("f32", "prepared", "int8")
        )
        torch.onnx.export(
            task.model, task.batches[0], floats, dynamo=True, external_data=False, verbose=False
        )
        names = [each.name for each in onnxruntime.InferenceSession(floats).get_inputs()]

        def feeds(batches: Sequence[Inputs]) -> list[dict[str, Any]]:
            return [dict(zip(names, [each.numpy() for each in inputs], strict=True)) for inputs in batches]

        class Reader(CalibrationDataReader):
            def __init__(self) -> None:
                self.left = iter(feeds(task.calibration))

            def get_next(self) -> Any:
                return next(self.left, None)

        quant_pre_process(floats, prepared, skip_symbolic_shape=True)
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(prepared, target, Reader(), per_channel=True, **types)
        session = onnxruntime.InferenceSession(target)
        return [session.run(None, feed)[0] for feed in feeds(task.batches)]
