"""Makes the copies between host and device `torch.ops.et_copy`, as ExecuTorch calls them."""

from __future__ import annotations

import torch

from pteron.exir.edge.device_copies import COPIES, LIBRARY_NAMESPACE, NAMESPACE, library

__all__ = ["lib"]

#: The library of the operators.
lib = library

for _name in COPIES:
    # An alias: where ExecuTorch itself has defined operators of this name, they stay.
    if not hasattr(getattr(torch.ops, NAMESPACE), _name):
        setattr(getattr(torch.ops, NAMESPACE), _name, getattr(getattr(torch.ops, LIBRARY_NAMESPACE), _name))
