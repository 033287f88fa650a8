"""Lowers models with ExecuTorch and runs them there: `python -m tests.xnnpack.lower OUT`.

The process imports nothing of ours. Each case becomes `OUT/NUMBER.pte` and `OUT/NUMBER.pt`, a dictionary:
inputs of every call, what eager PyTorch and ExecuTorch's runtime made of them (`wide`: eager in float64, of
bfloat16), the step of an int8 result, operators outside of delegates.
"""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from tests.xnnpack.models import CASES, Case, file_name


def quantized(model: nn.Module, inputs: tuple[torch.Tensor, ...], kind: str) -> nn.Module:
    """The model after PyTorch's quantisation flow, with XNNPACK's quantiser, or torchao's with four bits."""
    if kind.startswith("four bits"):
        from torchao.quantization import (
            Int8DynamicActivationIntxWeightConfig,
            PerAxis,
            PerGroup,
            quantize_,
        )

        granularity = PerAxis(0) if kind == "four bits by output" else PerGroup(32)
        four_bits: torch.dtype = getattr(torch, "int4")  # noqa: B009 -- torch's stubs do not know it
        quantize_(
            model,
            Int8DynamicActivationIntxWeightConfig(weight_dtype=four_bits, weight_granularity=granularity),
        )
        return model
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    settings = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=kind == "dynamic")
    prepared = prepare_pt2e(export(model, inputs).module(), XNNPACKQuantizer().set_global(settings))
    for _ in range(3):
        prepared(*inputs)
    converted: nn.Module = convert_pt2e(prepared)
    return converted


def calls(case: Case, inputs: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
    """The inputs to run with: those of the export, then other sizes."""
    if case.sizes is None:
        return [inputs]
    axis, _, _, extents = case.sizes
    shapes = [[*inputs[0].shape[:axis], n, *inputs[0].shape[axis + 1 :]] for n in extents]
    return [inputs, *((torch.randn(shape), *inputs[1:]) for shape in shapes)]


def captured(case: Case, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> ExportedProgram:
    """The exported program."""
    if case.sizes is None:
        return export(model, inputs, strict=True)
    axis, least, most, _ = case.sizes
    shapes = [{axis: Dim("n", min=least, max=most)}, *(None for _ in inputs[1:])]
    named = tuple(shapes) if not isinstance(model, nn.Sequential) else (shapes[0],)
    return export(model, inputs, dynamic_shapes=named, strict=True)


def lowered(case: Case, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """ExecuTorch's program, as far as XNNPACK takes it."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = captured(case, model, inputs)
    partitioner = XnnpackPartitioner(enable_bf16=case.is_bfloat16)
    return to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch()


def run(path: Path, inputs: list[tuple[torch.Tensor, ...]]) -> list[Any]:
    """What ExecuTorch's runtime makes of them."""
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    assert method is not None
    return [[out.clone() for out in method.execute(list(one))] for one in inputs]


def flat(outputs: Any) -> list[torch.Tensor]:
    """Results as a list."""
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def step(program: ExportedProgram) -> float:
    """The scale with which the last int8 tensor is dequantised; 0 where nothing is quantised."""
    scales = [
        float(node.args[1])
        for node in program.graph.nodes
        if "dequantize_per_tensor.default" in str(node.target) and isinstance(node.args[1], float)
    ]
    return scales[-1] if scales else 0.0


def write(name: str, folder: Path) -> None:
    """One case."""
    torch.manual_seed(len(name))
    case = CASES[name]
    model, inputs = case.build().eval(), case.inputs()
    made: nn.Module = model if case.quantized is None else quantized(model, inputs, case.quantized)
    manager = lowered(case, made, inputs)
    path = folder / file_name(name)
    path.write_bytes(manager.buffer)
    plan = manager.executorch_program.execution_plan[0]
    every = calls(case, inputs)
    with torch.no_grad():
        eager = [flat(made(*one)) for one in every]
        # The first result in float64, where dtypes are narrow.
        wide = copy.deepcopy(made).double()(*(x.double() for x in inputs)) if case.is_bfloat16 else None
    torch.save(
        {
            "inputs": [list(one) for one in every],
            "eager": eager,
            "wide": wide,
            "executorch": run(path, every),
            "step": step(export(made, inputs)) if case.quantized == "static" else 0.0,
            "delegates": [delegate.id for delegate in plan.delegates],
            "operators": [operator.name for operator in plan.operators],
        },
        path.with_suffix(".pt"),
    )


def write_shared(folder: Path) -> None:
    """Two methods with one set of weights: `shared.pte`, and `shared.pt`, inputs and results of each."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    model, x = CASES["linear"].build().eval(), CASES["linear"].inputs()
    wide = (torch.randn(7, 8),)
    programs = {"forward": export(model, x), "wide": export(model, wide)}
    partitioner = {method: [XnnpackPartitioner()] for method in programs}
    manager = to_edge_transform_and_lower(programs, partitioner=partitioner).to_executorch()
    (folder / "shared.pte").write_bytes(manager.buffer)
    with torch.no_grad():
        record = {"forward": (*x, model(*x)), "wide": (*wide, model(*wide))}
    torch.save(record, folder / "shared.pt")


def write_external(folder: Path) -> None:
    """A delegate whose weights are in a data file: `external.pte` with `weights.ptd`, and `external.pt`."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    model, x = CASES["linear"].build().eval(), CASES["linear"].inputs()
    program = export(model, x)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.inputs_to_parameters:
            node.meta.setdefault("custom", {})["delegate_constant_tag"] = "weights"
    manager = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    (folder / "external.pte").write_bytes(manager.buffer)
    manager.write_tensor_data_to_file(str(folder))
    with torch.no_grad():
        torch.save((*x, model(*x)), folder / "external.pt")


def main(folder: Path, names: list[str]) -> None:
    """The named cases, or all."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in names or CASES:
        try:
            write(name, folder)
        except Exception as e:
            raise RuntimeError(f"{name}: {e}") from e
    write_shared(folder)
    write_external(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
