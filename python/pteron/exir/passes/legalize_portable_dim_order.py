"""Give ExecuTorch's portable kernels the memory order that they compute in."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_leaves, tree_map_only

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, edge_op_by_name
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.proxy_value import NodeMetadata, ProxyValue
from pteron.exir.passes.run_graph_passes import run_graph_passes

_COPY = edge_op_by_name("dim_order_ops", "_to_dim_order_copy", "default")
_ORDER_OPS = "dim_order_ops"
# Kernels of ExecuTorch 1.5 that compute element by element over memory, or window by window with strides,
# so any order will do as long as operands and result share it. Found by running them (tests/compat).
_ANY_ORDER = frozenset(
    edge_op_by_name("aten", *name.split("."))
    for name in (
        "abs.default",
        "clamp.default",
        "convolution.default",
        "elu.default",
        "exp.default",
        "gelu.default",
        "hardtanh.default",
        "leaky_relu.default",
        "log.default",
        "max_pool2d_with_indices.default",
        "neg.default",
        "relu.default",
        "rsqrt.default",
        "sigmoid.default",
        "sin.default",
        "sqrt.default",
        "tanh.default",
        "upsample_bilinear2d.vec",
        "upsample_nearest2d.vec",
    )
)
_ANY_ORDER_OF_EQUAL_SHAPES = frozenset(
    edge_op_by_name("aten", opname, "Tensor") for opname in ("add", "sub", "mul", "div")
)


class LegalizePortableDimOrderPass(ExportPass):
    """Copies operands into the default memory order in front of operators whose portable kernels need it.

    Before: `y = mean(x, [2, 3])` with `x` channels last. After: `y = mean(_to_dim_order_copy(x,
    dim_order=[0, 1, 2, 3]), [2, 3])`. Most of ExecuTorch's portable kernels refuse another order or compute
    wrong values for it. What a graph returns keeps the order it had. Only for programs that run there.
    """

    _orders: list[tuple[int, ...] | None] | None = None

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """A new module; the same one where every tensor is in the default order."""
        nodes = (node for module in graph_modules(graph_module) for node in module.graph.nodes)
        values = (leaf for node in nodes for leaf in tree_leaves(node.meta.get("val")))
        if all(_is_default(value) for value in values if isinstance(value, torch.Tensor)):
            return PassResult(graph_module, False)
        return super().call(graph_module)

    def call_submodule(self, graph_module: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> PassResult:
        """The new form of a module; its results keep their memory order."""
        returned = tree_leaves(graph_module.graph.output_node().args[0])
        outer = self._orders
        self._orders = [
            _order(each.meta.get("val")) if isinstance(each, torch.fx.Node) else None for each in returned
        ]
        try:
            return super().call_submodule(graph_module, inputs)
        finally:
            self._orders = outer

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """The operator, over copies of its operands where its kernel needs them."""
        if isinstance(op, EdgeOpOverload) and not _is_legal(op, args):
            args = tree_map_only(ProxyValue, lambda value: self._in_default_order(value, meta), args)
        elif op is torch.ops.aten.copy_.default:
            args = (args[0], self._in_order(args[1], _order(args[0].data), meta), *args[2:])
        return super().call_operator(op, args, kwargs, meta)

    def output(self, results: Any, meta: NodeMetadata) -> ProxyValue:
        """The results, each in the memory order that it had before."""
        kept = [
            self._in_order(value, order, meta)
            if isinstance(value, ProxyValue) and order is not None
            else value
            for value, order in zip(results, self._orders or [], strict=True)
        ]
        return super().output(tuple(kept), meta)

    def _in_default_order(self, value: ProxyValue, meta: NodeMetadata) -> ProxyValue:
        return self._in_order(value, tuple(range(value.data.dim())), meta) if value.is_tensor() else value

    def _in_order(self, value: ProxyValue, order: tuple[int, ...] | None, meta: NodeMetadata) -> ProxyValue:
        if not value.is_tensor() or order is None or _order(value.data) == order:
            return value
        source = NodeMetadata({key: item for key, item in meta.data.items() if key != "val"})
        return super().call_operator(_COPY, (value,), {"dim_order": list(order)}, source)


def legalize_portable_dim_order(program: ExportedProgram) -> ExportedProgram:
    """Copy operands into the default memory order where ExecuTorch's portable kernels need it."""
    return run_graph_passes(program, [LegalizePortableDimOrderPass()])


def _is_legal(op: EdgeOpOverload, args: tuple[Any, ...]) -> bool:
    operands = [leaf.data for leaf in tree_leaves(args) if isinstance(leaf, ProxyValue) and leaf.is_tensor()]
    if op.namespace == _ORDER_OPS or all(_is_default(value) for value in operands):
        return True
    if op in _ANY_ORDER:
        return True
    if op in _ANY_ORDER_OF_EQUAL_SHAPES:
        return len({(str(value.shape), _order(value)) for value in operands}) == 1
    return False


def _order(value: Any) -> tuple[int, ...] | None:
    return dim_order_of_value(value) if isinstance(value, torch.Tensor) else None


def _is_default(value: torch.Tensor) -> bool:
    return dim_order_of_value(value) == tuple(range(value.dim()))
