"""Hold constants against what the graph says of them."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.passes.insert_write_backs import MUTATIONS

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def settle_constants(program: ExportedProgram) -> None:
    """Refuse a constant that is another tensor than its placeholder says, and a node without a value, in
    place.

    Callers may exchange the tensors of a program, in a pass or by hand; the file takes element type and shape
    from the placeholder and the bytes from the tensor. A tensor in another memory order is copied into the
    placeholder's.
    """
    for update in program.graph_signature.output_specs:
        if update.kind in MUTATIONS:
            raise ExportError(
                f"a pass of ExecutorchBackendConfig(passes=...) added an update of {update.target!r}; updates"
                " are written back before it",
                argument="passes",
                hint="run it earlier, with transform(...) or "
                "to_edge_transform_and_lower(transform_passes=...)",
            )
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        if spec.kind in _STORED and node.users:
            _settle(program, spec, node)
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                raise _left(node, "has no node.meta['val'], the value that shape and element type come from")


def _settle(program: ExportedProgram, spec: InputSpec, node: torch.fx.Node) -> None:
    store: dict[Any, Any] = program.state_dict if spec.target in program.state_dict else program.constants
    tensor, stated = store.get(spec.target), node.meta.get("val")
    if not isinstance(tensor, torch.Tensor):
        return
    if not isinstance(stated, torch.Tensor):
        raise _left(node, "has no node.meta['val'], the value that shape and element type come from")
    if (tensor.dtype, tensor.shape) != (stated.dtype, stated.shape):
        raise _left(
            node,
            f"stands for {_described(stated)}, and the tensor of {spec.target!r} is {_described(tensor)}",
        )
    if isinstance(tensor, FakeTensor) or _strides(tensor) == _strides(stated):
        return
    with torch.no_grad():
        ordered = torch.empty_strided(stated.shape, stated.stride(), dtype=tensor.dtype, device=tensor.device)
        store[spec.target] = ordered.copy_(tensor)


def _strides(value: torch.Tensor) -> list[int]:
    """Strides of the dimensions in which there is a step to make."""
    return [stride for stride, extent in zip(value.stride(), value.shape, strict=True) if extent > 1]


def _described(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _left(node: torch.fx.Node, what: str) -> ExportError:
    location = source_location(node)
    return ExportError(
        f"{node.format_node()} {what} (from {location})",
        operator=str(node.target),
        source_line=str(location),
        hint="a pass that exchanges a constant or makes a node sets node.meta['val'] too",
    )
