"""The graph that a pass builds, and the module that holds its attributes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import FakeTensor

from pteron.exir.edge.propagate_values import fake_mode_of
from pteron.exir.passes.proxy_value import ExportPassBaseError, ProxyValue


class PassTracer(torch.fx.proxy.GraphAppendingTracer):
    """Creates nodes; tensors and modules among their arguments become attributes of `root`."""

    def __init__(self, origin: torch.fx.GraphModule, on_attr: Callable[[ProxyValue], None]) -> None:
        super().__init__(torch.fx.Graph())
        self.root = torch.nn.Module()
        self.graph._codegen = copy.deepcopy(origin.graph._codegen)
        self._mode = fake_mode_of(origin)
        self._on_attr = on_attr
        self._names: dict[int, str] = {}
        # Keys of the table above are identities; what they identify must not be freed.
        self._kept: list[Any] = []

    def prefer_name(self, module: torch.nn.Module, name: str) -> None:
        """Let `module` have this attribute name when a node reads it."""
        self._names[id(module)] = name
        self._kept.append(module)

    def name_of(self, module: torch.nn.Module) -> str:
        """The attribute name of `module`: the one it had, or a new one."""
        return self._names.get(id(module)) or self._free_name("submodule")

    def keep_attribute(self, name: str, value: Any) -> None:
        """Make `value` an attribute of the new module under its old name."""
        if "." in name:
            raise ExportPassBaseError(f"attribute {name} of a nested module cannot be kept")
        self._set(name, value)

    def create_arg(self, a: Any) -> Any:
        """`a` as an argument of a node."""
        if isinstance(a, torch.nn.Module):
            name = self.name_of(a)
            self.prefer_name(a, name)
            self._set(name, a)
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, FakeTensor):
            if getattr(a, "constant", None) is None:
                raise ExportPassBaseError(
                    f"a fake tensor of shape {tuple(a.shape)} was given as an argument; it has no values",
                    hint="pass the ProxyValue that it came from, not its .data",
                )
            a = a.constant
        if isinstance(a, torch.Tensor):
            return self._constant(a)
        if isinstance(a, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            known = a.node.constant
            if known is None:
                raise ExportPassBaseError(
                    f"the symbolic number {a} was given as an argument",
                    hint="use call_size_operator, or the ProxyValue that computes it",
                )
            return known
        return super().create_arg(a)

    def _constant(self, value: torch.Tensor) -> torch.fx.Node:
        name = self._free_name("_tensor_constant")
        self._set(name, value)
        node = self.create_node("get_attr", name, (), {})
        node.meta["val"] = value if self._mode is None else self._mode.from_tensor(value, static_shapes=True)
        self._on_attr(ProxyValue(node.meta["val"], node))
        return node

    def _free_name(self, prefix: str) -> str:
        number = 0
        while hasattr(self.root, f"{prefix}_{number}") or f"{prefix}_{number}" in self._names.values():
            number += 1
        return f"{prefix}_{number}"

    def _set(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
            self.root.register_buffer(name, value)
        else:
            setattr(self.root, name, value)
