"""OpenVINO as a backend of pteron.

`OpenvinoPartitioner` chooses what goes there when a model is lowered (it needs torch, as lowering does);
`register` makes the run half known, which needs OpenVINO and NumPy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pteron_openvino.blob import BACKEND
from pteron_openvino.runtime import OpenvinoRuntime, register

if TYPE_CHECKING:
    from pteron_openvino.partitioner import OpenvinoPartitioner
    from pteron_openvino.preprocess import PteronOpenvinoBackend

__all__ = ["BACKEND", "OpenvinoPartitioner", "OpenvinoRuntime", "PteronOpenvinoBackend", "register"]

#: What `pteron.plugins.load("PteronOpenvinoBackend")` registers.
backend = OpenvinoRuntime()


def __getattr__(name: str) -> Any:
    if name == "OpenvinoPartitioner":
        from pteron_openvino.partitioner import OpenvinoPartitioner

        return OpenvinoPartitioner
    if name == "PteronOpenvinoBackend":
        from pteron_openvino.preprocess import PteronOpenvinoBackend

        return PteronOpenvinoBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
