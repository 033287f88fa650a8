"""The device that a delegate works on, as its compile specs name it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pteron.exir.schema import DeviceType

TARGET_DEVICE_COMPILE_SPEC_KEY = "target_device"
"""Key of the compile spec whose value names the device: `b"cuda:0"`."""

Device = tuple[DeviceType, int]
"""Type and index."""

CPU: Device = (DeviceType.CPU, 0)
_MOST_INDEX = 127


def parse_device(value: bytes) -> Device:
    """(type, index) of b"cuda:1"; the index is 0 where none is given.

    Raises:
        ValueError: there is no device of this name, or a file has no place for its index.
    """
    name, separator, index = value.decode().strip("\0").strip().lower().partition(":")
    if name.upper() not in DeviceType.__members__:
        valid = ", ".join(DeviceType.__members__)
        raise ValueError(f"Unknown device type '{name}'. Valid types: {valid}")
    number = int(index) if separator else 0
    if not 0 <= number <= _MOST_INDEX:
        raise ValueError(f"device {value!r}: expected an index from 0 to {_MOST_INDEX}, got {number}")
    return DeviceType[name.upper()], number


def target_device(compile_specs: Any) -> Device | None:
    """The device that compile specs, or those of a lowered module, name; None where they name none."""
    specs = getattr(compile_specs, "compile_specs", compile_specs)
    for spec in specs if isinstance(specs, Iterable) else ():
        if spec.key == TARGET_DEVICE_COMPILE_SPEC_KEY:
            return parse_device(bytes(spec.value))
    return None


def device_name(device: Device) -> str:
    """As PyTorch spells it: `cpu`, `cuda:0`."""
    kind, index = device
    return "cpu" if kind is DeviceType.CPU else f"{kind.name.lower()}:{index}"
