"""ONNX Runtime as a backend of pteron.

`OnnxRuntimePartitioner` chooses what goes there when a model is lowered (it needs torch and onnx);
`register` makes the run half known, which needs ONNX Runtime and NumPy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pteron_onnxruntime.blob import BACKEND
from pteron_onnxruntime.runtime import OnnxRuntimeRuntime, register

if TYPE_CHECKING:
    from pteron_onnxruntime.partitioner import OnnxRuntimePartitioner
    from pteron_onnxruntime.preprocess import PteronOnnxRuntimeBackend

__all__ = ["BACKEND", "OnnxRuntimePartitioner", "OnnxRuntimeRuntime", "PteronOnnxRuntimeBackend", "register"]

#: What `pteron.plugins.load("PteronOnnxRuntimeBackend")` registers.
backend = OnnxRuntimeRuntime()


def __getattr__(name: str) -> Any:
    if name == "OnnxRuntimePartitioner":
        from pteron_onnxruntime.partitioner import OnnxRuntimePartitioner

        return OnnxRuntimePartitioner
    if name == "PteronOnnxRuntimeBackend":
        from pteron_onnxruntime.preprocess import PteronOnnxRuntimeBackend

        return PteronOnnxRuntimeBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
