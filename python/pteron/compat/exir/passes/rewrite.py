"""Passes that write an operator in another way: numbers as tensors, other overloads, one dtype per call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._python_dispatch import _disable_current_modes

from pteron.exir.edge.backend_ops import backend_op_if_bound
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.proxy_value import NodeMetadata, ProxyValue

_ATEN = torch.ops.aten


def map_args(
    op: Any, fn: Callable[[Any, torch.Argument], Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) with `fn(value, schema argument)` in place of each value that is given, items of lists
    one by one.
    """
    new_args, new_kwargs = list(args), dict(kwargs)

    def mapped(value: Any, argument: torch.Argument) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([fn(item, argument) for item in value])
        return fn(value, argument)

    for position, argument in enumerate(op._schema.arguments):
        if argument.name in new_kwargs:
            new_kwargs[argument.name] = mapped(new_kwargs[argument.name], argument)
        elif not argument.kwarg_only and position < len(new_args):
            new_args[position] = mapped(new_args[position], argument)
    return tuple(new_args), new_kwargs


class ScalarToTensorPass(ExportPass):
    """Make a constant tensor of each Python number in the place of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self._modified = False

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""

        def tensor(value: Any, argument: torch.Argument) -> Any:
            if not isinstance(value, (bool, int, float)) or not isinstance(argument.type, torch.TensorType):
                return value
            self._modified = True
            with _disable_current_modes():
                return torch.tensor(value)

        return super().call_operator(op, *map_args(op, tensor, args, kwargs), meta)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """A new module; `modified` says whether there was such a number."""
        self._modified = False
        made = super().call(graph_module)
        return PassResult(made.graph_module, self._modified)


_DTYPES = {torch.SymInt: torch.int32, torch.SymFloat: torch.float32, torch.SymBool: torch.bool}


class SymToTensorPass(ExportPass):
    """Insert `scalar_tensor` where a symbolic number stands in the place of a tensor."""

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""

        def tensor(value: Any, argument: torch.Argument) -> Any:
            dtype = _DTYPES.get(type(value.data)) if isinstance(value, ProxyValue) else None
            if dtype is None or not isinstance(argument.type, torch.TensorType):
                return value
            return self.call_operator(_ATEN.scalar_tensor.default, (value,), {"dtype": dtype}, meta)

        return super().call_operator(op, *map_args(op, tensor, args, kwargs), meta)


_PROMOTIONS = {
    _ATEN.add.Tensor: KIND.DEFAULT,
    _ATEN.mul.Tensor: KIND.DEFAULT,
    _ATEN.sub.Tensor: KIND.DEFAULT,
    _ATEN.div.Tensor: KIND.INT_TO_FLOAT,
    _ATEN.div.Tensor_mode: KIND.DEFAULT,
    _ATEN.minimum.default: KIND.DEFAULT,
}


class RemoveMixedTypeOperators(ExportPass):
    """Cast operands of elementwise operators of two operands to the dtype in which they are computed."""

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""
        kind = _PROMOTIONS.get(op) if len(args) > 1 else None
        if kind is None:
            return super().call_operator(op, args, kwargs, meta)
        if op is _ATEN.div.Tensor_mode and kwargs.get("rounding_mode") is None:
            kind = KIND.INT_TO_FLOAT
        _, dtype = elementwise_dtypes(*map(_example, args), type_promotion_kind=kind)

        def cast(value: Any, argument: torch.Argument) -> Any:
            example = _example(value)
            if not isinstance(argument.type, torch.TensorType) or not isinstance(example, torch.Tensor):
                return value
            if example.dtype == dtype:
                return value
            return self.call_operator(_ATEN._to_copy.default, (value,), {"dtype": dtype}, meta)

        return super().call_operator(op, *map_args(op, cast, args, kwargs), meta)


def _example(value: Any) -> Any:
    return value.data if isinstance(value, ProxyValue) else value


class NormalizeTransposePass(ExportPass):
    """`t` as `t_copy`."""

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""
        if op is _ATEN.t.default:
            op = _ATEN.t_copy.default
        return super().call_operator(op, args, kwargs, meta)


class _ReplaceTargets(PassBase):
    @abstractmethod
    def _replacement(self, target: Any) -> Any:
        """What stands in the place of a call's target: the target itself where it stays."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over every graph below `graph_module`, in place."""
        for module in graph_module.modules():
            if not isinstance(module, torch.fx.GraphModule):
                continue
            for node in module.graph.nodes:
                if node.op == "call_function":
                    node.target = self._replacement(node.target)
            module.recompile()
        return PassResult(graph_module, True)


_SYM_OVERLOADS = {
    _ATEN.sym_size: _ATEN.sym_size.int,
    _ATEN.sym_stride: _ATEN.sym_stride.int,
    _ATEN.sym_numel: _ATEN.sym_numel.default,
}


class ReplaceSymSizeOpPass(_ReplaceTargets):
    """`sym_size`, `sym_stride` and `sym_numel` by the overload that a graph calls."""

    def _replacement(self, target: Any) -> Any:
        return _SYM_OVERLOADS.get(target, target)


class EdgeToBackendOpsPass(_ReplaceTargets):
    """PyTorch overloads of libraries of backend operators by their operators of the backend dialect, where a
    pattern or a call has made one. Arithmetic on symbolic numbers stays as it is: the emitter of this package
    writes it as `executorch_prim` operators.
    """

    def _replacement(self, target: Any) -> Any:
        return backend_op_if_bound(target) if isinstance(target, torch._ops.OpOverload) else target


class OpReplacePass(_ReplaceTargets):
    """PyTorch overloads by edge operators, in place; symbolic arithmetic stays."""

    def _replacement(self, target: Any) -> Any:
        from pteron.exir.edge.edge_op_overload import edge_op_of
        from pteron.exir.edge.symbolic_ops import is_symbolic_op

        if not isinstance(target, torch._ops.OpOverload) or is_symbolic_op(target):
            return target
        return edge_op_of(target)
