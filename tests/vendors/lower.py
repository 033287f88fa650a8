"""Lowers the models of flows: `python -m tests.vendors.lower ours|theirs FOLDER FLOW...`. `FLOW=MODEL` is one
of them.

For each model FOLDER/<flow>/<side> gets `<model>.pte`, the calls with the exported module's results as
`<model>.pt`, and `<model>.json`: the nodes, size and digest of each delegate's blob, or the error that
stopped it. The process imports nothing of the other side.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from tests.vendors.flows import FLOWS, Flow
from tests.vendors.models import Model, model_named


def _quantized(
    program: torch.export.ExportedProgram, model: Model, flow: Flow
) -> torch.export.ExportedProgram:
    """PT2E quantisation with the vendor's quantizer, calibrated on the inputs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    assert flow.quantizer is not None
    prepared = prepare_pt2e(program.module(), flow.quantizer())
    prepared(*model.inputs)
    converted = convert_pt2e(prepared)
    return torch.export.export(converted, model.inputs, dynamic_shapes=model.dynamic_shapes)


def _results(program: torch.export.ExportedProgram, model: Model) -> list[dict[str, Any]]:
    """The calls of the model with their results."""
    module = program.module()
    calls = [model.inputs] if model.other_inputs is None else [model.inputs, model.other_inputs]
    return [{"inputs": inputs, "outputs": _pytree.tree_leaves(module(*inputs))} for inputs in calls]


def lower(flow: Flow, model: Model, stem: Path, **settings: Any) -> dict[str, Any]:
    """What the vendor's compiler makes of the model. `settings`: of `EdgeCompileConfig`."""
    import executorch.kernels.quantized  # noqa: F401  the kernels of what stays outside of delegates
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    program = torch.export.export(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes)
    if flow.quantizer is not None:
        program = _quantized(program, model, flow)
    torch.save(_results(program, model), stem.with_suffix(".pt"))
    # The quantised graphs have operators that are no core ATen.
    config = EdgeCompileConfig(
        _check_ir_validity=flow.quantizer is None, _skip_dim_order=flow.skips_dim_order, **settings
    )
    edge = to_edge_transform_and_lower(program, partitioner=[flow.partitioner()], compile_config=config)
    graph = edge.exported_program().graph_module
    parts = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    delegates = [part for part in parts if hasattr(part, "processed_bytes")]
    named = [each.named_data_store_output for each in delegates]
    found = [
        {
            "backend": each.backend_id,
            "nodes": sum(node.op == "call_function" for node in each.original_module.graph.nodes),
            "bytes": len(each.processed_bytes),
            "digest": hashlib.sha256(each.processed_bytes).hexdigest(),
            "named data": sorted(store.pte_data) if store is not None else [],
        }
        for each, store in zip(delegates, named, strict=True)
    ]
    stem.with_suffix(".pte").write_bytes(edge.to_executorch().buffer)
    return {"delegates": found}


def folder_of(folder: Path, flow: str, side: str) -> Path:
    """Where a side leaves the models of a flow."""
    return folder / flow.replace(" ", "_") / side


def main(arguments: list[str]) -> None:
    """Writes the outcome of each lowering."""
    side, folder, *wanted = arguments
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    settings = {}
    if side == "ours":
        from pteron import compat

        compat.install()
        settings = {"keep_noops": True}
    for each in wanted:
        flow, _, model = each.partition("=")
        target = folder_of(Path(folder), flow, side)
        target.mkdir(parents=True, exist_ok=True)
        for name in (model,) if model else FLOWS[flow].models:
            stem = target / name.replace(" ", "_")
            try:
                outcome = lower(FLOWS[flow], model_named(name), stem, **settings)
            except Exception:  # the other models are lowered too
                outcome = {"error": traceback.format_exc()}
            stem.with_suffix(".json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1:])
