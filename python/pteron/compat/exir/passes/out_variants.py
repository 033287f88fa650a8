"""Operators as the overloads that write into allocated tensors."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.compat.exir.error import InternalError
from pteron.errors import MissingOutVariantError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.extent_bounds import largest_extent
from pteron.exir.edge.memory_nodes import alloc, view
from pteron.exir.edge.out_variant import defined_out_variant, out_argument_names
from pteron.exir.edge.symbolic_ops import is_symbolic_op


def make_alloc_node(graph_module: torch.fx.GraphModule, val: Any, tensor_meta: Any) -> torch.fx.Node:
    """A node that makes room for `val`, a fake tensor or a list of them; where it is None, for what
    `tensor_meta` describes. It is inserted where the graph inserts.

    Raises:
        InternalError: neither says how large the tensor is.
    """
    if isinstance(val, (list, tuple)):
        metas = tensor_meta if isinstance(tensor_meta, (list, tuple)) else [None] * len(val)
        spec: Any = [_described(each, meta) for each, meta in zip(val, metas, strict=True)]
    else:
        spec = _described(val, tensor_meta)
    node = graph_module.graph.call_function(alloc, (spec,))
    node.meta["val"], node.meta["tensor_meta"] = val, tensor_meta
    return node


def _described(value: Any, meta: Any) -> tuple[tuple[int, ...], torch.dtype]:
    source = value if value is not None else meta
    if source is None:
        raise InternalError("Memory allocator node needs FakeTensor val or TensorMetadata to proceed")
    return tuple(map(largest_extent, source.shape)), source.dtype


def _stays(target: Any) -> bool:
    return (
        target in (operator.getitem, alloc, view)
        or isinstance(target, HigherOrderOperator)
        or is_symbolic_op(target)
        or getattr(target, "__module__", None) in ("builtins", "_operator", "math")
    )


class ToOutVarPass(PassBase):
    """Replaces functional operators by their out variants, each with an allocation before it, in place.

    `ignore_to_out_var_failure`: operators without an out variant stay as they are.
    """

    def __init__(self, ignore_to_out_var_failure: bool = False) -> None:
        self.ignore_to_out_var_failure = ignore_to_out_var_failure

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over `graph_module` and the bodies of its control flow.

        Raises:
            RuntimeError: an operator has no out variant.
        """
        missing: set[str] = set()
        for module in graph_modules(graph_module):
            for node in list(module.graph.nodes):
                if node.op == "call_function" and not _stays(node.target) and not is_delegate_call(node):
                    self._replace(module, node, missing)
            module.recompile()
        if missing and not self.ignore_to_out_var_failure:
            raise RuntimeError(f"Missing out variants: {missing}")
        return PassResult(graph_module, True)

    def _replace(self, module: torch.fx.GraphModule, node: torch.fx.Node, missing: set[str]) -> None:
        target = node.target
        op = target.aten_overload if isinstance(target, EdgeOpOverload) else target
        if not isinstance(op, OpOverload):
            raise RuntimeError(f"Require an op overload for target: {target}")
        if op._schema.is_mutable:
            return
        try:
            out = defined_out_variant(op)
        except MissingOutVariantError:
            missing.add(op._schema.name)
            return
        names = out_argument_names(out)
        value, meta = node.meta["val"], node.meta.get("tensor_meta")
        known = {argument.name for argument in out._schema.arguments}
        kwargs = {name: given for name, given in node.kwargs.items() if name in known}
        with module.graph.inserting_before(node):
            if len(names) == 1:
                kwargs[names[0]] = make_alloc_node(module, value, meta)
            else:
                metas = meta if isinstance(meta, (list, tuple)) else [None] * len(value)
                for name, each, described in zip(names, value, metas, strict=True):
                    kwargs[name] = None if each is None else make_alloc_node(module, each, described)
        node.target, node.kwargs = out, kwargs
        if not out._schema.returns:
            made: Any = kwargs[names[0]]
            node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not node)
