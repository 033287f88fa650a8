"""The compile half: from a PyTorch model to a `.pte` program. Needs torch, 2.13 or newer."""

from __future__ import annotations

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('pteron.exir needs PyTorch: pip install "pteron[export]"') from error
if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 13):
    raise ImportError(
        f"pteron.exir needs PyTorch 2.13 or newer, and {_torch.__version__} is installed: "
        'pip install "pteron[export]"'
    )

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
