"""How a compile spec names the device that a delegate runs on."""

from __future__ import annotations

from collections.abc import Iterable

from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.schema import DeviceType

TARGET_DEVICE_COMPILE_SPEC_KEY = "target_device"


def _parse_device_spec_value(value: bytes) -> tuple[DeviceType, int]:
    """(type, index) of b"cuda:1"; the index is 0 where none is given.

    Raises:
        ValueError: there is no device of this name.
    """
    name, separator, index = value.decode().strip("\0").strip().lower().partition(":")
    if name.upper() not in DeviceType.__members__:
        raise ValueError(f"Unknown device type {name!r}; known: {[each.name.lower() for each in DeviceType]}")
    return DeviceType[name.upper()], int(index) if separator else 0


def _get_target_device_from_compile_specs(
    compile_specs: Iterable[CompileSpec] | object,
) -> tuple[DeviceType, int] | None:
    """The device that compile specs, or those of a lowered module, name; None where they name none."""
    specs = getattr(compile_specs, "compile_specs", compile_specs)
    for spec in specs if isinstance(specs, Iterable) else ():
        if spec.key == TARGET_DEVICE_COMPILE_SPEC_KEY:
            return _parse_device_spec_value(spec.value)
    return None
