"""Results as torch tensors for code that was written for ExecuTorch, which always gives them.

torch is looked for, never imported: without it, results stay what the runtime gave.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pteron._native import Tensor

__all__ = ["outputs_without_tensor_inputs", "torch_where_loaded"]


def torch_where_loaded(value: Any) -> Any:
    """A tensor as a torch tensor over the same memory, if torch is loaded; everything else as it is."""
    torch: Any = sys.modules.get("torch")
    if getattr(torch, "from_numpy", None) is None:  # not there, kept out, or being imported right now
        return value
    if isinstance(value, Tensor):
        return torch.from_dlpack(value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.isbuiltin == 2:  # of ml_dtypes, which torch does not know; the names are the same
        bits = value.view(np.dtype(f"u{value.dtype.itemsize}"))
        return torch.from_numpy(bits).view(getattr(torch, value.dtype.name))
    return torch.from_numpy(value)


def outputs_without_tensor_inputs(outputs: list[Any], inputs: Any) -> list[Any]:
    """What a call of a method without tensor inputs gives: torch tensors where torch is loaded.

    Outputs follow the inputs otherwise, torch for torch and NumPy for NumPy. Numbers say nothing, except that
    NumPy's own are a sign of a caller who works with NumPy.
    """
    given: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else ()
    if any(isinstance(value, (np.ndarray, np.generic)) for value in given):
        return outputs
    return [torch_where_loaded(value) for value in outputs]
