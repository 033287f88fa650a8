"""Run PyTorch programs (`.pte`) without PyTorch.

`load` a program, call its methods with NumPy arrays, torch tensors or anything with DLPack or the buffer
protocol. `export` goes the other way, from a PyTorch model to a `.pte` file; it and the compile half behind
it, `pteron.exir`, need `pip install "pteron[export]"`.
"""

from typing import TYPE_CHECKING, Any

from pteron import native_classes as native_classes  # completes the native classes
from pteron import plugins
from pteron._native import (
    CancelToken,
    DimRange,
    Limits,
    Method,
    Program,
    Runtime,
    Tensor,
    ValueSpec,
    __version__,
    register_backend,
    register_kernel,
    strip,
)
from pteron.errors import (
    Cancelled,
    DeadlineExceeded,
    DelegateError,
    ExportError,
    ExternalDataError,
    InputError,
    InputTypeError,
    InternalError,
    KernelError,
    LimitExceeded,
    MethodBusy,
    MethodNotFoundError,
    MissingBackendError,
    MissingOperatorError,
    OutputsInUseError,
    ProgramError,
    PteronError,
)
from pteron.export_call import export
from pteron.plugins import get_include
from pteron.program_source import load

if TYPE_CHECKING:
    from pteron import metrics
    from pteron.pooled_call import Call
    from pteron.predictor import Predictor

__all__ = [
    "Call",
    "CancelToken",
    "Cancelled",
    "DeadlineExceeded",
    "DelegateError",
    "DimRange",
    "ExportError",
    "ExternalDataError",
    "InputError",
    "InputTypeError",
    "InternalError",
    "KernelError",
    "LimitExceeded",
    "Limits",
    "Method",
    "MethodBusy",
    "MethodNotFoundError",
    "MissingBackendError",
    "MissingOperatorError",
    "OutputsInUseError",
    "Predictor",
    "Program",
    "ProgramError",
    "PteronError",
    "Runtime",
    "Tensor",
    "ValueSpec",
    "__version__",
    "export",
    "get_include",
    "load",
    "metrics",
    "plugins",
    "register_backend",
    "register_kernel",
    "strip",
]

# What most programs do without, and `import pteron` therefore too.
_LATE = {"Call": "pteron.pooled_call", "Predictor": "pteron.predictor", "metrics": "pteron.metrics"}


def __getattr__(name: str) -> Any:
    """A public name that is imported when it is first used."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_LATE[name])
    found = globals()[name] = module if name == "metrics" else getattr(module, name)
    return found
