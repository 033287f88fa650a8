"""How ExecuTorch's module of device propagation names the readers of compile specs."""

from __future__ import annotations

from pteron.exir.edge.target_device import (
    TARGET_DEVICE_COMPILE_SPEC_KEY as TARGET_DEVICE_COMPILE_SPEC_KEY,
)
from pteron.exir.edge.target_device import parse_device as _parse_device_spec_value
from pteron.exir.edge.target_device import target_device as _get_target_device_from_compile_specs

__all__ = [
    "TARGET_DEVICE_COMPILE_SPEC_KEY",
    "_get_target_device_from_compile_specs",
    "_parse_device_spec_value",
]
