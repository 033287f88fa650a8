"""Models through the backend packages against their libraries called directly: what pteron adds to a call.

    python benches/backend_packages.py [MODEL ...] [--packages openvino onnxruntime] [--rounds N]

Both sides run the same model on the same settings, one thread, in one process, and take turns call by call:
the load of the machine meets both. The library is called as its own documentation has it for speed: an infer
request with tensors over the caller's arrays, an `IOBinding` over them. Printed are the medians, the median
of the ratios of neighbouring calls, and the load. `--processor` counts the processor time of all threads in
place of elapsed time, which says more on a busy machine.

It needs the environment of `make test-backends`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from results import Tables, add_json_option
from timing import cpu_model
from whole_models import MODELS

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.backend.partitioner import DelegationSpec
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass

Call = Callable[[], Any]


def lowered(name: str, backend: str) -> tuple[bytes, list[Any]]:
    """The program, all of it the backend's, and its inputs."""
    torch.manual_seed(0)
    model = MODELS[name]()
    exported = torch.export.export(model.module, model.arguments, dynamic_shapes=model.dynamic_shapes)
    manager = to_edge(exported).to_backend(DelegationSpec(backend, []))
    # Inputs and results in the caller's memory: planned ones are copied, which is the program's choice.
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    program = manager.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    return program.buffer, [argument.numpy() for argument in model.arguments]


def through_openvino(name: str) -> tuple[Call, Call]:
    """Calls of one compiled model: through pteron, and directly."""
    import openvino

    import pteron_openvino.preprocess

    backend = pteron_openvino.OpenvinoRuntime()
    pteron.register_backend(pteron_openvino.BACKEND, backend, replace=True)
    file, arrays = lowered(name, pteron_openvino.BACKEND)
    options = {pteron_openvino.BACKEND: {"INFERENCE_NUM_THREADS": 1}}
    method = pteron.load(file).load_method(backend_options=options)
    (compiled,) = backend._compiled.values()
    request = compiled.model.create_infer_request()
    for at, array in enumerate(arrays):
        request.set_input_tensor(at, openvino.Tensor(array, shared_memory=True))
    (result,) = method.execute(arrays)
    out = np.empty_like(result)
    request.set_output_tensor(0, openvino.Tensor(out, shared_memory=True))
    request.infer()
    assert np.allclose(out, result, atol=1e-4)
    # Both keep what is bound alive.
    return lambda: method.execute(arrays, outputs=[result]), lambda: (request.infer(), out)


def through_onnxruntime(name: str) -> tuple[Call, Call]:
    """Calls of one session of ONNX Runtime: through pteron, and directly."""
    import pteron_onnxruntime.preprocess

    backend = pteron_onnxruntime.OnnxRuntimeRuntime()
    pteron.register_backend(pteron_onnxruntime.BACKEND, backend, replace=True)
    file, arrays = lowered(name, pteron_onnxruntime.BACKEND)
    options = {pteron_onnxruntime.BACKEND: {"intra_op_num_threads": 1}}
    method = pteron.load(file).load_method(backend_options=options)
    (compiled,) = backend._compiled.values()
    session, (result,) = compiled.session, method.execute(arrays)
    out, binding = np.empty_like(result), compiled.session.io_binding()
    for port, array in zip(session.get_inputs(), arrays, strict=True):
        binding.bind_input(port.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    binding.bind_output(session.get_outputs()[0].name, "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    session.run_with_iobinding(binding)
    assert np.allclose(out, result, atol=1e-4)
    return (
        lambda: method.execute(arrays, outputs=[result]),
        lambda: (session.run_with_iobinding(binding), out),
    )


PACKAGES = {"openvino": through_openvino, "onnxruntime": through_onnxruntime}


def in_turns(ours: Call, theirs: Call, rounds: int, clock: Callable[[], float]) -> tuple[float, float, float]:
    """Median milliseconds of both, and the median of the ratios; which goes first alternates."""
    times: dict[Call, list[float]] = {ours: [], theirs: []}
    for turn in range(rounds + 5):
        for call in (ours, theirs) if turn % 2 else (theirs, ours):
            begun = clock()
            call()
            times[call].append((clock() - begun) * 1e3)
    mine, direct = times[ours][5:], times[theirs][5:]
    ratios = [a / b for a, b in zip(mine, direct, strict=True)]
    return statistics.median(mine), statistics.median(direct), statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["mobilenet_v2", "vit_base"])
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processor", action="store_true")
    add_json_option(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = time.process_time if options.processor else time.perf_counter
    tables = Tables()
    tables.begin(["package", "model", "through pteron, ms", "directly, ms", "ratio"])
    print(f"{cpu_model()}; one thread, in turns, {options.rounds} calls each")
    for name in options.models:
        for package in options.packages:
            mine, direct, ratio = in_turns(*PACKAGES[package](name), options.rounds, clock)
            load = os.getloadavg()[0]
            print(
                f"{package:12} {name:16} {mine:8.3f} {direct:8.3f} ms  {ratio:6.3f}x  load {load:.1f}",
                flush=True,
            )
            tables.row(package, name, f"{mine:.3f}", f"{direct:.3f}", f"{ratio:.3f}x")
    tables.save(options)


if __name__ == "__main__":
    main()
