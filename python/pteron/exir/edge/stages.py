"""What a graph must satisfy at each stage of the pipeline, as data."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram

from pteron.errors import MissingOutVariantError
from pteron.exir.edge.control_flow import is_control_flow
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, emitted_name
from pteron.exir.edge.memory_nodes import alloc, view
from pteron.exir.edge.out_variant import out_argument_names, out_variant
from pteron.exir.edge.symbolic_ops import is_symbolic_number, is_symbolic_op
from pteron.exir.edge.tensor_spec import TensorSpec


def has_kernel(op: OpOverload) -> bool:
    """Whether the out variant of a functional overload has a kernel here, built in or registered."""
    from pteron import _native

    try:
        name, overload = emitted_name(out_variant(op))
    except MissingOutVariantError:
        return False
    return _native.has_kernel(f"{name}.{overload}" if overload else name)


@dataclass(frozen=True)
class Context:
    """What a rule may look at beside the node."""

    program: ExportedProgram
    exceptions: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class Rule:
    """One statement about a node; `broken` returns what is wrong with it, or None."""

    name: str
    broken: Callable[[torch.fx.Node, Context], str | None]


@dataclass(frozen=True)
class Stage:
    """A named list of rules that every node of a graph obeys at one point of the pipeline."""

    name: str
    rules: tuple[Rule, ...]


_NODE_KINDS = frozenset({"placeholder", "get_attr", "call_function", "output"})
# Core by use, though PyTorch does not tag them so.
_ALSO_CORE = frozenset(
    {
        torch.ops.aten.max.default,
        torch.ops.aten.min.default,
        torch.ops.aten.full_like.default,
        torch.ops.aten._upsample_bilinear2d_aa.default,
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.masked_select.default,
    }
)
_MAX_RANK = 16


def _kind(node: torch.fx.Node, context: Context) -> str | None:
    return None if node.op in _NODE_KINDS else f"a node of kind {node.op} is not allowed"


def _has_value(node: torch.fx.Node, context: Context) -> str | None:
    if node.op not in ("placeholder", "call_function") or "val" in node.meta:
        return None
    if isinstance(node.target, OpOverload) and not node.target._schema.returns:
        return None
    return 'meta["val"] is missing, so dtype and shape of the result are not known'


def _operands_precede(node: torch.fx.Node, context: Context) -> str | None:
    for operand in node.all_input_nodes:
        if operand.graph is not node.graph or not operand < node:
            return f"reads {operand.name}, which does not come before it in the same graph"
    return None


def _tensor_limits(node: torch.fx.Node, context: Context) -> str | None:
    if node.op not in ("placeholder", "call_function"):
        return None
    for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                return f"layout {value.layout} is not supported; only strided tensors are"
            if value.dim() > _MAX_RANK:
                return f"a tensor of {value.dim()} dimensions; at most {_MAX_RANK} can be stored"
    return None


def _is_builtin_call(node: torch.fx.Node) -> bool:
    return (
        node.target is operator.getitem
        or is_symbolic_op(node.target)
        or (not isinstance(node.target, OpOverload) and is_symbolic_number(node.meta.get("val")))
        or isinstance(node.target, HigherOrderOperator)
    )


def _core_aten(node: torch.fx.Node, context: Context) -> str | None:
    if node.op != "call_function" or _is_builtin_call(node):
        return None
    target = node.target
    if not isinstance(target, OpOverload):
        return f"{target} is no PyTorch operator overload"
    if target._schema.is_mutable:
        return f"{target} changes its arguments; the graph must be functional at this stage"
    if target.namespace != "aten" or target in context.exceptions or is_core_aten(target):
        return None
    # What PyTorch's decompositions leave and a kernel runs stays whole; `to_executorch` refuses it for
    # targets without that kernel.
    if has_kernel(target):
        return None
    return (
        f"{target} is not a core ATen operator, has no decomposition, and no kernel here; "
        "compute it from other operators in the model, or delegate it: a backend gets it whole by "
        f"Partitioner.ops_to_not_decompose{_own_kernel(target)}"
    )


def _own_kernel(op: OpOverload) -> str:
    try:
        name, overload = emitted_name(out_variant(op))
    except MissingOutVariantError:
        return ""
    emitted = f"{name}.{overload}" if overload else name
    return (
        "; or register a kernel of your own before the export, and again where the program runs: "
        f"pteron.register_kernel({emitted!r}, function)"
    )


def is_core_aten(op: OpOverload) -> bool:
    """Whether an operator is decomposed far enough: PyTorch's core tag, views, and a few beside them."""
    return torch.Tag.core in op.tags or op in _ALSO_CORE or _is_view(op)


def _is_view(op: OpOverload) -> bool:
    arguments = op._schema.arguments
    aliases = bool(arguments) and arguments[0].alias_info is not None
    return aliases or torch.Tag.view_copy in op.tags


def _edge_op(node: torch.fx.Node, context: Context) -> str | None:
    if node.op != "call_function" or _is_builtin_call(node) or isinstance(node.target, EdgeOpOverload):
        return None
    return f"{node.target} is not an edge operator; use exir_ops.edge.*"


def _functional(node: torch.fx.Node, context: Context) -> str | None:
    if isinstance(node.target, EdgeOpOverload) and node.target.schema.is_mutable:
        return f"{node.target} changes its arguments; edge graphs are functional"
    return None


def _arguments_fit_schema(node: torch.fx.Node, context: Context) -> str | None:
    if not isinstance(node.target, EdgeOpOverload):
        return None
    arguments = node.target.schema.arguments
    positional = [argument for argument in arguments if not argument.kwarg_only]
    if len(node.args) > len(positional):
        return f"{len(node.args)} positional arguments, the schema has {len(positional)}"
    names = {argument.name for argument in arguments}
    unknown = set(node.kwargs) - names
    if unknown:
        return f"no argument is called {sorted(unknown)[0]!r} in {node.target.schema}"
    given = {argument.name for argument in positional[: len(node.args)]} | set(node.kwargs)
    missing = [a.name for a in arguments if a.name not in given and not a.has_default_value()]
    if missing:
        return f"argument {missing[0]!r} is missing; the schema is {node.target.schema}"
    for position, value in enumerate(node.args):
        if isinstance(positional[position].type, torch.TensorType) and not _is_tensor_node(value):
            return f"argument {positional[position].name!r} must be a tensor, got {value!r}"
    return None


def _is_tensor_node(value: object) -> bool:
    return isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _delegate_call(node: torch.fx.Node, context: Context) -> str | None:
    if not is_delegate_call(node):
        return None
    try:
        lowered = lowered_module_of(node)
    except (TypeError, AttributeError) as error:
        return str(error)
    for name, kind in (("backend_id", str), ("processed_bytes", bytes), ("compile_specs", list)):
        if not isinstance(getattr(lowered, name, None), kind):
            return f"the called module's {name} must be {kind.__name__}, got {getattr(lowered, name, None)!r}"
    if not isinstance(node.meta.get("val"), (list, tuple, torch.Tensor)):
        return 'meta["val"] must hold the outputs of the delegate'
    return None


def _out_variant(node: torch.fx.Node, context: Context) -> str | None:
    if node.op != "call_function" or _is_builtin_call(node) or node.target in (alloc, view):
        return None
    if not isinstance(node.target, OpOverload):
        return f"{node.target} must have been replaced by an overload that writes into given tensors"
    if not node.target._schema.is_mutable:
        return f"{node.target} does not write into given tensors"
    for name in out_argument_names(node.target):
        if name not in node.kwargs:
            return f"argument {name!r} is missing"
    return None


def _tensor_specs(node: torch.fx.Node) -> list[TensorSpec]:
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("spec"))
    return [leaf for leaf in leaves if isinstance(leaf, TensorSpec)]


def _planned(node: torch.fx.Node, context: Context) -> str | None:
    for spec in _tensor_specs(node):
        root = spec.root
        if root.memory_id is None and not root.is_caller_owned and not root.is_constant:
            return "the tensor has no place in planned memory"
        if root.memory_id is not None and root.memory_offset is None:
            return f"the tensor is in memory {root.memory_id} without an offset"
    return None


def _spec_present(node: torch.fx.Node, context: Context) -> str | None:
    if node.op in ("placeholder", "call_function") and not is_control_flow(node) and "spec" not in node.meta:
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            return None
        return 'meta["spec"] is missing'
    return None


_EVERYWHERE = (
    Rule("node kind", _kind),
    Rule("operands precede", _operands_precede),
    Rule("has value", _has_value),
    Rule("tensor limits", _tensor_limits),
)
CORE_ATEN = Stage("core ATen", (*_EVERYWHERE, Rule("core ATen operators", _core_aten)))
EDGE = Stage(
    "edge",
    (
        *_EVERYWHERE,
        Rule("edge operators", _edge_op),
        Rule("functional", _functional),
        Rule("arguments fit schema", _arguments_fit_schema),
        Rule("delegate calls", _delegate_call),
    ),
)
OUT_VARIANT = Stage(
    "out variant",
    (
        *_EVERYWHERE,
        Rule("writes into given tensors", _out_variant),
        Rule("spec present", _spec_present),
        Rule("delegate calls", _delegate_call),
    ),
)
PLANNED = Stage("planned", (*OUT_VARIANT.rules, Rule("has memory", _planned)))
