"""Copies between the memory of the host and that of a device: `et_copy._h2d_copy` and `et_copy._d2h_copy`.

While a model is lowered all tensors are the host's, so both are clones. ExecuTorch's runtime copies between
memories; the runtime of this package knows the host's alone.

The operators are shown and emitted under `et_copy`; the torch library behind them has a name of its own, so
that ExecuTorch, which defines that namespace, can be imported into the same process.
"""

from __future__ import annotations

from typing import Any

import torch

NAMESPACE = "et_copy"
LIBRARY_NAMESPACE = "pteron_et_copy"
COPIES = HOST_TO_DEVICE, DEVICE_TO_HOST = "_h2d_copy", "_d2h_copy"


def _copy(self: torch.Tensor) -> torch.Tensor:
    return self.clone()


def _copy_out(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(self)


def _register() -> Any:
    # torch.library has no annotations.
    made: Any = torch.library.Library(LIBRARY_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
    for name in COPIES:
        made.define(f"{name}(Tensor self) -> Tensor")
        made.define(f"{name}.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        made.impl(name, _copy, "CompositeImplicitAutograd")
        made.impl(f"{name}.out", _copy_out, "CompositeImplicitAutograd")
    return made


#: Registrations live as long as it does.
library = _register()


def is_device_copy(node: torch.fx.Node, name: str) -> bool:
    """Whether `node` is the copy `name`, as an edge operator or written into a given tensor."""
    schema = getattr(node.target, "_schema", None)
    return getattr(schema, "name", None) == f"{LIBRARY_NAMESPACE}::{name}"
