"""Run PyTorch programs (`.pte`) without PyTorch.

`load` a program, call its methods with NumPy arrays, torch tensors or anything with DLPack or the buffer
protocol. `export` goes the other way, from a PyTorch model to a `.pte` file; it and the compile half behind
it, `pteron.exir`, need `pip install "pteron[export]"`.
"""

from pteron import plugins
from pteron._native import (
    DimRange,
    Limits,
    Method,
    Program,
    Runtime,
    Tensor,
    ValueSpec,
    __version__,
    load,
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

__all__ = [
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
    "plugins",
    "register_backend",
    "register_kernel",
    "strip",
]
