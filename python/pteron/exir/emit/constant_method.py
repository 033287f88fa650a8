"""A method that returns a constant."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pteron.exir.edge.tensor_spec import TensorSpec, dim_order_of_value
from pteron.exir.emit.interface import output_names
from pteron.exir.emit.portable_tree import tree_text
from pteron.exir.emit.shared_data import SharedData
from pteron.exir.emit.value_table import ValueTable
from pteron.exir.schema import Chain, ContainerMetadata, ExecutionPlan


def constant_method(name: str, value: Any, shared: SharedData) -> tuple[ExecutionPlan, dict[str, Any]]:
    """(plan, interface) of a method without instructions that returns `value`.

    `value`: tensor, None, bool, int, float or string, or a nest of lists, tuples and dicts of them. Raises
    `ExportError` for anything else.
    """
    leaves, tree = tree_flatten(value)
    table = ValueTable()
    outputs = []
    names = output_names(tree, len(leaves))
    interface: list[dict[str, Any]] = []
    for leaf, leaf_name in zip(leaves, names, strict=True):
        entry: dict[str, Any] = {"name": leaf_name}
        if isinstance(leaf, torch.Tensor):
            stored = (
                leaf.detach()
                if dim_order_of_value(leaf) != tuple(range(leaf.dim()))
                else leaf.detach().contiguous()
            )
            spec = TensorSpec.from_value(stored)
            spec.is_constant = True
            outputs.append(table.add_tensor(spec, data_buffer_idx=shared.constant(stored)))
            entry["shape"] = list(stored.shape)
        else:
            outputs.append(table.add_literal(leaf))
        interface.append(entry)
    plan = ExecutionPlan(
        name=name,
        container_meta_type=ContainerMetadata("", tree_text(tree)),
        values=table.values,
        inputs=[],
        outputs=outputs,
        chains=[Chain(inputs=[], outputs=[], instructions=[])],
        operators=[],
        delegates=[],
        non_const_buffer_sizes=[0, 0],
    )
    return plan, {"inputs": [], "outputs": interface}
