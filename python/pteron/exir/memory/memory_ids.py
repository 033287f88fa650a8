"""Which memory a tensor is planned in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.spec_lifetimes import specs_in

DEFAULT_MEMORY_ID = 1
# A program lists the size of every memory up to the last one.
MOST_MEMORY_IDS = 255

MEMORY_ID = "memory_id"
"""The key in a node's `meta` under which a pass states in which memory the node's results are planned: an
int, or one int or None per result.
"""


def take_requested_memory_ids(program: ExportedProgram) -> None:
    """Set `memory_id` of the specs of nodes with `meta["memory_id"]`, in place.

    Raises `ExportError` that names the node: for an id outside 1 to 255, for two ids of one tensor, and for
    a tensor that is not planned.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            for spec, memory_id in _requests(node):
                _request(spec.root, memory_id, node)


def _requests(node: torch.fx.Node) -> Iterator[tuple[TensorSpec, int]]:
    wanted: Any = node.meta.get(MEMORY_ID)
    # A write-back carries the meta data of the value that it copies, and makes no tensor.
    if wanted is None or node.target is torch.ops.aten.copy_.default:
        return
    specs = list(specs_in(node.meta.get("spec")))
    ids = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted] * len(specs)
    if len(ids) != len(specs):
        raise _refused(node, f"names {len(ids)} memories for {len(specs)} tensors")
    for spec, memory_id in zip(specs, ids, strict=True):
        if memory_id is None:
            continue
        if type(memory_id) is not int or not 1 <= memory_id <= MOST_MEMORY_IDS:
            raise _refused(node, f"is {memory_id!r}, expected an integer from 1 to {MOST_MEMORY_IDS}")
        yield spec, memory_id


def _request(spec: TensorSpec, memory_id: int, node: torch.fx.Node) -> None:
    if spec.is_constant:
        raise _refused(node, "is set on a constant, which lies in the program's data")
    if spec.is_caller_owned:
        raise _refused(node, "is set on a tensor whose memory the caller gives")
    if spec.memory_id not in (None, memory_id):
        raise _refused(node, f"is {memory_id}, but the tensor it shares memory with is in {spec.memory_id}")
    spec.memory_id = memory_id


def _refused(node: torch.fx.Node, what: str) -> ExportError:
    location = source_location(node)
    return ExportError(
        f'meta["{MEMORY_ID}"] of {node.format_node()} {what} (from {location})',
        operator=str(node.target),
        source_line=str(location),
        hint="set it on the nodes that make the tensors, in a pass of ExecutorchBackendConfig(passes=[...])",
    )
