"""Models whose additions are delegates on devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.backends.demo import BackendWithCompilerDemo
from pteron.exir import EdgeProgramManager
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.target_device import TARGET_DEVICE_COMPILE_SPEC_KEY
from tests.exir.small_models import edge_of

ADD = exir_ops.edge.aten.add.Tensor


class AddsOnDevices(Partitioner):
    """Gives each `add` to a delegate of its own, the n-th of a graph on the n-th device; None names none. The
    last device is that of all further ones.
    """

    def __init__(self, *devices: str | None) -> None:
        super().__init__()
        self._devices = devices

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for module in graph_modules(exported_program.graph_module):
            adds = [node for node in module.graph.nodes if node.target is ADD]
            for node, device in zip(adds, self._of(len(adds)), strict=True):
                tag = node.meta["delegation_tag"] = f"tag{len(tags)}"
                tags[tag] = DelegationSpec(BackendWithCompilerDemo.__name__, _specs(device))
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def _of(self, count: int) -> Sequence[str | None]:
        return [self._devices[min(at, len(self._devices) - 1)] for at in range(count)]


def _specs(device: str | None) -> list[CompileSpec]:
    specs = [CompileSpec("max_value", bytes([4]))]
    if device is not None:
        specs.append(CompileSpec(TARGET_DEVICE_COMPILE_SPEC_KEY, device.encode()))
    return specs


def on_devices(
    function: Callable[..., Any], args: tuple[torch.Tensor, ...], *devices: str | None, **options: Any
) -> EdgeProgramManager:
    """A function in the edge dialect, its additions delegated to devices."""
    return edge_of(function, *args, **options).to_backend(AddsOnDevices(*(devices or ("cuda:0",))))
