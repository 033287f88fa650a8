"""A file of a model opened in this process by pteron or a peer: what the benches of whole models call.

Each imports its engine when it is called, so that a process holds one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[], Any]


def pteron(file: Path, arrays: list[Any], threads: int) -> Call:
    """The method `forward`; a call gives its first output."""
    import pteron

    method = pteron.load(file).load_method("forward", num_threads=threads)
    return lambda: method.execute(arrays)[0]


def onnxruntime(file: Path, arrays: list[Any], threads: int) -> Call:
    """An ONNX file on ONNX Runtime's own kernels."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    feeds = dict(zip([each.name for each in session.get_inputs()], arrays, strict=True))
    return lambda: session.run(None, feeds)[0]


def openvino(file: Path, arrays: list[Any], threads: int, **settings: str) -> Call:
    """A file that OpenVINO reads, for the latency of one call; `settings` are the plugin's."""
    import openvino

    whole = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, **settings}
    request = openvino.Core().compile_model(file, "CPU", whole).create_infer_request()
    return lambda: next(iter(request.infer(arrays, share_inputs=True, share_outputs=True).values()))


def executorch(file: Path, arrays: list[Any]) -> Call:
    """The method `forward` in ExecuTorch's runtime, whose threads the affinity of the process bounds."""
    import torch
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(file).load_method("forward")
    assert method is not None
    tensors = [torch.from_numpy(each) for each in arrays]
    return lambda: method.execute(tensors)[0]
