"""Which device each memory of a method is on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch

from pteron.exir.edge.target_device import CPU, Device
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.schema import NonConstBufferDevice

_DEVICES = "non_const_buffer_device"
"""Key of a planned graph's `meta`, ExecuTorch's too; absent where all memories are the CPU's."""

Value = TypeVar("Value")


def by_device(specs: Mapping[TensorSpec, Value]) -> dict[Device, dict[TensorSpec, Value]]:
    """The specs of each device with their values: the CPU's first, the others by type and index."""
    groups: dict[Device, dict[TensorSpec, Value]] = {}
    for spec, value in specs.items():
        groups.setdefault((spec.device, spec.device_index), {})[spec] = value
    return {device: groups[device] for device in sorted(groups, key=_order)}


def _order(device: Device) -> tuple[bool, int, int]:
    return device != CPU, device[0].value, device[1]


def state_memory_devices(graph_module: torch.fx.GraphModule, devices: Iterable[Device]) -> None:
    """Note the device of each memory, from memory 0, in the `meta` of a graph."""
    found = [NonConstBufferDevice(at, *device) for at, device in enumerate(devices) if device != CPU]
    if found:
        graph_module.meta[_DEVICES] = found
    else:
        graph_module.meta.pop(_DEVICES, None)


def memory_devices(graph_module: torch.fx.GraphModule) -> list[NonConstBufferDevice] | None:
    """The memories of a planned graph that are not the CPU's; None where all are."""
    found: list[NonConstBufferDevice] | None = graph_module.meta.get(_DEVICES)
    return found
