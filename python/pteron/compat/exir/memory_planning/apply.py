"""`apply_algo`: plan a graph and the bodies of its control flow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.export.graph_signature import ExportGraphSignature

from pteron.compat.exir.memory_planning.algorithms import TAKEN
from pteron.compat.exir.memory_planning.graph_specs import (
    collect_specs_from_nodes,
    update_all_tensors_lifetime,
)
from pteron.exir.edge.control_flow import BodyKind, control_flows
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.target_device import CPU, Device
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.memory_devices import by_device, state_memory_devices

__all__ = ["apply_algo"]

SIZES = "non_const_buffer_sizes"
_XNNPACK_READS_BEYOND = 64
"""Bytes behind a tensor that XNNPACK's kernels may read."""


def apply_algo(
    algo: Callable[..., list[int]],
    graph_module: torch.fx.GraphModule,
    alignment: int,
    graph_signature: ExportGraphSignature | None = None,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    alloc_mutable_buffers: bool = True,
    enable_non_cpu_memory_planning: bool = False,
) -> list[int]:
    """Plan the specs of a graph with `algo`, a suite of algorithms, after those of its bodies, in place.

    Bodies lie in front, in bytes that the calling graph leaves free. With `enable_non_cpu_memory_planning`
    the specs of each device have memories of their own, the CPU's first. `meta["non_const_buffer_sizes"]` of
    each graph gets the sizes, `meta["non_const_buffer_device"]` the memories that are not the CPU's.

    Returns:
        The sizes of the memories in bytes; index 0 is reserved.

    Raises:
        NotImplementedError: specs of other devices beside specs whose memory is asked for by `mem_id`.
    """
    update_all_tensors_lifetime(graph_module, graph_signature)
    specs = list(
        collect_specs_from_nodes(
            graph_module.graph.nodes,
            graph_signature,
            ignore_graph_input=not alloc_graph_input,
            ignore_graph_output=not alloc_graph_output,
            ignore_mutable_buffers=not alloc_mutable_buffers,
            do_assertion=False,
        )
    )
    taken = _plan_bodies(algo, graph_module, alignment, graph_signature)
    padding = _XNNPACK_READS_BEYOND if _calls_xnnpack(graph_module) else 0
    sizes, devices = [0], [CPU]
    groups = _by_device(specs, enable_non_cpu_memory_planning)
    for device, group in groups.items():
        setattr(graph_module, TAKEN, taken if device == CPU else [])
        found = algo(alignment, group, graph_module, graph_signature, padding)
        for spec in group:
            if spec.memory_id is not None:
                spec.memory_id += len(sizes) - 1
        sizes += found[1:]
        devices += [device] * (len(found) - 1)
    if len(sizes) == 1:
        # Without a spec there is still a memory 1, for what the bodies take.
        sizes += taken[1:] or [0]
        devices += [CPU] * (len(sizes) - 1)
    graph_module.meta[SIZES] = sizes
    state_memory_devices(graph_module, devices)
    return sizes


def _plan_bodies(
    algo: Callable[..., list[int]],
    graph_module: torch.fx.GraphModule,
    alignment: int,
    graph_signature: ExportGraphSignature | None,
) -> list[int]:
    """Plan the bodies that a graph calls; what the largest of them takes of each memory."""
    largest: list[int] = []
    for call in control_flows(graph_module):
        has_rows = call.is_loop and call.bodies[0].kind is not BodyKind.CONDITION
        for body in call.bodies:
            # A row of an operand is a tensor of its own; other parameters are the caller's tensors.
            found = apply_algo(algo, body.module, alignment, graph_signature, alloc_graph_input=has_rows)
            largest += [0] * (len(found) - len(largest))
            for memory, size in enumerate(found):
                largest[memory] = max(largest[memory], size)
    return largest


def _calls_xnnpack(graph_module: torch.fx.GraphModule) -> bool:
    calls = [node for node in graph_module.graph.nodes if is_delegate_call(node)]
    return any("xnnpack" in lowered_module_of(node).backend_id.lower() for node in calls)


def _by_device(specs: list[TensorSpec], is_enabled: bool) -> dict[Device, list[TensorSpec]]:
    if not is_enabled:
        return {CPU: specs}
    groups = {device: list(group) for device, group in by_device(dict.fromkeys(specs)).items()}
    is_elsewhere = any(device != CPU for device in groups)
    if is_elsewhere and any(spec.mem_id is not None for spec in specs):
        raise NotImplementedError(
            "enable_non_cpu_memory_planning cannot be used beside specs whose mem_id a pass has set: the "
            "memories of devices are numbered behind the CPU's"
        )
    return groups
