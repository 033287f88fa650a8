"""Operators of quantised programs that PyTorch knows only once a module is imported: those of
`quantized_decomposed`, and torchao's where it is installed; and `dim_order_ops` by ExecuTorch's name.

ExecuTorch's exir imports these modules, so code written for it names the operators without an import of its
own. Here the modules are imported when an operator of theirs is asked for that is not registered yet, through
`torch.ops` or `exir_ops`: torchao alone takes longer to import than everything else together.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import torch
from torch._ops import _OpNamespace

from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE as DIM_ORDER_LIBRARY
from pteron.exir.edge.dim_order_ops import NAMESPACE as DIM_ORDER

_DECOMPOSED = "torch.ao.quantization.fx._decomposed"
_EMBEDDINGS = "pteron.exir.edge.quantized_embeddings"
#: The module of ExecuTorch's package that defines the same operators, and may be about to.
_THEIR_EMBEDDINGS = "executorch.exir.passes._quant_patterns_and_replacements"
_TORCHAO = "torchao.quantization.quant_primitives"


def _modules_of(namespace: str, operator: str) -> tuple[str, ...]:
    if namespace == "torchao":
        return (_TORCHAO,)
    if operator.startswith("embedding_") and _THEIR_EMBEDDINGS not in sys.modules:
        return (_DECOMPOSED, _EMBEDDINGS)
    return (_DECOMPOSED,)


class _NamespaceOnDemand(_OpNamespace):
    """A namespace of `torch.ops` that imports what registers a missing operator, and looks again."""

    def __getattr__(self, op_name: str) -> Any:
        lookup: Any = super().__getattr__
        try:
            return lookup(op_name)
        except AttributeError:
            if op_name.startswith("__") or not _import_all(_modules_of(self.name, op_name)):
                raise
        return lookup(op_name)


class _DimOrderNamespace(_OpNamespace):
    """`torch.ops.dim_order_ops`: the operators of our library, as long as nobody registers others there."""

    def __getattr__(self, op_name: str) -> Any:
        lookup: Any = super().__getattr__
        try:
            return lookup(op_name)
        except AttributeError:
            if op_name.startswith("__"):
                raise
        # Not kept as an attribute: ExecuTorch's own, once it is imported, are found before these.
        return getattr(getattr(torch.ops, DIM_ORDER_LIBRARY), op_name)


def _import_all(names: tuple[str, ...]) -> bool:
    """Whether all these modules can be imported."""
    # A package that asks for operators while it is imported gets no answer: importing it from inside fails,
    # and leaves it without its submodules.
    if any(_is_being_imported(name.partition(".")[0]) for name in names if name not in sys.modules):
        return False
    try:
        modules: list[ModuleType] = [importlib.import_module(name) for name in names]
    except ImportError:
        return False
    return len(modules) == len(names)


def _is_being_imported(package: str) -> bool:
    return any(
        getattr(getattr(module, "__spec__", None), "_initializing", False)
        for name, module in list(sys.modules.items())
        if name == package or name.startswith(f"{package}.")
    )


def register_on_demand() -> None:
    """Makes the namespaces of `torch.ops` look for their modules; what is registered already stays."""
    kinds = {
        "quantized_decomposed": _NamespaceOnDemand,
        "torchao": _NamespaceOnDemand,
        DIM_ORDER: _DimOrderNamespace,
    }
    for name, kind in kinds.items():
        namespace = getattr(torch.ops, name)
        if type(namespace) is _OpNamespace:
            namespace.__class__ = kind
