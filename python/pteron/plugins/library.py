"""Building and opening libraries of the C interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# The name of the capsule has to stay as long as the capsule.
_CAPSULE = b"pteron.backend.v1"
_FUNCTION = "pteron_backend_v1"


def get_include() -> str:
    """The folder of `pteron_backend.h`, for the compiler of a backend in C or C++ (`include_dirs=[...]`)."""
    return str(Path(__file__).parents[1] / "include")


def open_library(path: str | os.PathLike[str]) -> Any:
    """Opens a shared library that exports `const struct pteron_backend *pteron_backend_v1(void)`, with local
    symbols; the capsule that `pteron.register_backend` takes.

    For libraries that do not know Python. The library stays until the process ends.

    Raises:
        OSError: the system cannot open it, it lacks the function, or it would run with a library that another
            plugin has brought along, in place of its own of the same name (`docs/how-to/backend-guide.md`).
    """
    # Imported here: the interpreter's own part of ctypes is seldom needed.
    import ctypes

    from pteron.plugins.brought_along import refuse_swapped

    refuse_swapped(Path(path))
    library = ctypes.CDLL(os.fspath(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    try:
        function = library[_FUNCTION]
    except AttributeError as error:
        raise OSError(f"{os.fspath(path)} exports no {_FUNCTION} (pteron_backend.h)") from error
    function.restype, function.argtypes = ctypes.c_void_p, []
    table = function()
    if not table:
        raise OSError(f"{_FUNCTION} of {os.fspath(path)} gave no table")
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(table, _CAPSULE, None)
