"""Passes that compute what depends on constants alone, and equal calls once."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._pytree import tree_leaves, tree_map_only

from pteron.compat.exir.passes.clean_up import _DEQUANT_OPS, _QUANT_OPS
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.memory_nodes import alloc
from pteron.exir.passes.constant_values import add_constants, constant_values, remove_unread_constants
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.merge_common_subexpressions import _merge
from pteron.exir.passes.proxy_value import NodeMetadata, ProxyValue

__all__ = [
    "CSEPass",
    "ConstPropPass",
    "constant_prop_pass",
    "get_default_skip_targets_no_quant",
    "quantized_decomposed_lib",
]


class ConstPropPass(ExportPass):
    """Compute calls all of whose arguments are numbers and tensors of the graph itself. `propogate_quant`:
    only quantisations and dequantisations; otherwise everything but these.
    """

    def __init__(self, propogate_quant: bool = False) -> None:
        super().__init__()
        self.propogate_quant = propogate_quant

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> Any:
        """A call of an operator."""
        is_wanted = (op in (*_DEQUANT_OPS, *_QUANT_OPS)) is bool(self.propogate_quant)
        leaves = tree_leaves((args, kwargs))
        if not is_wanted or any(isinstance(leaf, ProxyValue) for leaf in leaves):
            return super().call_operator(op, args, kwargs, meta)
        given = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
        return op(*given[0], **given[1])


_KEPT_WHOLE = frozenset({exir_ops.edge.aten.full.default})
_SKIPPED = _KEPT_WHOLE.union(op for op in (*_QUANT_OPS, *_DEQUANT_OPS) if isinstance(op, EdgeOpOverload))


def get_default_skip_targets_no_quant() -> set[Any]:
    """Operators that `constant_prop_pass` leaves for run time, since their results make a file larger."""
    return set(_KEPT_WHOLE)


def constant_prop_pass(
    exported_program: ExportedProgram,
    custom_skip_targets: set[Any] | None = None,
    _skip_dim_order: bool = True,
) -> ExportedProgram:
    """Replace calls that depend on constants alone by constants, in place; constants that nobody reads go.

    `custom_skip_targets`: operators that stay, in place of `full` and quantisations of the edge dialect;
    before `to_edge` quantised weights become what they stand for, as in ExecuTorch. Random operators and
    those that write stay too, and everything in branches and loop bodies.
    """
    skipped = _SKIPPED if custom_skip_targets is None else custom_skip_targets
    constants = constant_values(exported_program)
    known: dict[torch.fx.Node, Any] = dict(constants)
    for node in exported_program.graph.nodes:
        if node.target in skipped or not _is_pure(node):
            continue
        if all(each in known for each in node.all_input_nodes):
            if any(isinstance(leaf, torch.SymInt) for leaf in tree_leaves((node.args, node.kwargs))):
                continue
            known[node] = _computed(node, known)
    wanted = [
        (known[node], node)
        for node in known
        if node not in constants
        and isinstance(known[node], torch.Tensor)
        and any(user not in known for user in node.users)
    ]
    placeholders = add_constants(exported_program, wanted, "_prop_tensor_constant")
    for (_, node), placeholder in zip(wanted, placeholders, strict=True):
        _replace(exported_program, node, placeholder, _skip_dim_order)
    exported_program.graph.eliminate_dead_code()
    remove_unread_constants(exported_program, set(constants))
    read = {spec.target for spec in exported_program.graph_signature.input_specs}
    for store in (exported_program.state_dict, exported_program.constants):
        for name in [name for name in store if name not in read]:
            del store[name]
    exported_program.graph_module.recompile()
    return exported_program


def _is_pure(node: torch.fx.Node) -> bool:
    """Whether a node calls an operator whose result its arguments alone decide."""
    if node.op != "call_function" or node.target is alloc:
        return False
    op = node.target.aten_overload if isinstance(node.target, EdgeOpOverload) else node.target
    if isinstance(op, OpOverload):
        return not op._schema.is_mutable and torch.Tag.nondeterministic_seeded not in op.tags
    return op is operator.getitem


def _computed(node: torch.fx.Node, known: dict[torch.fx.Node, Any]) -> Any:
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    with torch.no_grad():
        target: Any = node.target
        made = target(*args, **kwargs)
    # No program can store a stride of 0.
    return made.contiguous() if isinstance(made, torch.Tensor) and 0 in made.stride() else made


def _replace(
    program: ExportedProgram, node: torch.fx.Node, placeholder: torch.fx.Node, skip_dim_order: bool
) -> None:
    """Let the readers of `node` read `placeholder`; results of the program read a copy, which has its own
    memory.
    """
    output = program.graph.output_node()
    if output in node.users:
        clone: Any = exir_ops.edge.aten.clone.default
        if not skip_dim_order:
            clone = exir_ops.edge.dim_order_ops._clone_dim_order.default
        with program.graph.inserting_before(node):
            copied = program.graph.call_function(clone, (placeholder,))
        copied.meta = dict(node.meta)
        output.replace_input_with(node, copied)
        for spec in program.graph_signature.output_specs:
            if spec.arg.name == node.name:
                spec.arg.name = copied.name
    node.replace_all_uses_with(placeholder)


class CSEPass(PassBase):
    """Let the first of several equal calls serve the readers of all, in every graph, in place."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over `graph_module` and the graphs below it."""
        changed = False
        for module in graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                changed |= _merge(module)
        return PassResult(graph_module, changed)
