"""The compile half: from a PyTorch model to a `.pte` program. Needs torch."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('pteron.exir needs PyTorch: pip install "pteron[export]"') from error

from pteron.exir.capture import CaptureConfig, capture
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.program import EdgeProgramManager, to_edge
from pteron.exir.to_edge_transform_and_lower import to_edge_transform_and_lower

__all__ = [
    "CaptureConfig",
    "EdgeCompileConfig",
    "EdgeProgramManager",
    "ExecutorchBackendConfig",
    "ExecutorchProgramManager",
    "capture",
    "to_edge",
    "to_edge_transform_and_lower",
]
