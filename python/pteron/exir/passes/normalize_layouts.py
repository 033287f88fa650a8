"""Bring constants and inputs into a memory order that a program can store."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.exir.edge.dim_order_ops import memory_format_of
from pteron.exir.edge.tensor_spec import dim_order_of_value

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _in_stored_order(value: torch.Tensor) -> torch.Tensor:
    """`value` with the strides that its stored dimension order means; the same object where it has them."""
    memory_format = memory_format_of(dim_order_of_value(value))
    if value.is_contiguous(memory_format=memory_format):
        return value
    return value.contiguous(memory_format=memory_format)


def normalize_layouts(program: ExportedProgram) -> None:
    """Make every placeholder of `program` contiguous or channels last, in place, and its constants with it.

    A weight that is a transposed or expanded view becomes a contiguous tensor of the same values. The state
    of the model that was exported is not touched.
    """
    specs = program.graph_signature.input_specs
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(specs, placeholders, strict=True):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if spec.kind in _STORED and spec.target is not None:
            store = program.state_dict if spec.target in program.state_dict else program.constants
            tensor = store.get(spec.target)
            if isinstance(tensor, torch.Tensor):
                normal = _in_stored_order(tensor.detach())
                if normal.stride() != tensor.stride():
                    store[spec.target] = (
                        torch.nn.Parameter(normal, requires_grad=tensor.requires_grad)
                        if isinstance(tensor, torch.nn.Parameter)
                        else normal
                    )
        fake_mode = getattr(value, "fake_mode", None)
        if fake_mode is None:
            continue
        with fake_mode:
            normal_value = _in_stored_order(value.detach())
        if normal_value.stride() != value.stride():
            node.meta["val"] = normal_value.requires_grad_(value.requires_grad)
