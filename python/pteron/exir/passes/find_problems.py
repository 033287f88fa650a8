"""Everything that would keep a program from running on its target, found at once."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves, tree_unflatten

from pteron.errors import MissingOutVariantError
from pteron.exir.edge.control_flow import control_flow_of, graph_modules, is_control_flow, loop_operators
from pteron.exir.edge.custom_ops import functional_form, is_custom, is_custom_name, refusal
from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, emitted_name
from pteron.exir.edge.extent_bounds import extent_bounds
from pteron.exir.edge.gradient_outputs import GIVEN_BACK
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.out_variant import out_variant
from pteron.exir.edge.scalar_type import is_storable
from pteron.exir.edge.symbolic_ops import EMITTED_AS, is_symbolic_op
from pteron.exir.passes.problem import UNKNOWN_LINE, Problem, problem_of


def input_problems(program: ExportedProgram) -> Iterator[str]:
    """What is wrong with the inputs of `program`, in order."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    for place, spec in zip(input_places(program, len(specs)), specs, strict=True):
        argument = spec.arg
        if not isinstance(argument, (TensorArgument, SymIntArgument, ConstantArgument)):
            kind = type(argument).__name__.removesuffix("Argument")
            yield f"input {place} is of kind {kind}; inputs can be {_ACCEPTED}"


_ACCEPTED = (
    "tensors, integers, floats, truth values, strings and None, in tuples, lists, dicts and classes that are "
    "registered with torch.utils._pytree"
)


def input_places(program: ExportedProgram, count: int) -> list[str]:
    """Each flat input as the caller writes it: `args[0]['mask']`, `kwargs['scale']`."""
    structure = program.call_spec.in_spec
    if structure is None or structure.num_leaves != count:
        return [str(position) for position in range(count)]
    # Tensors, because a class may take nothing else for leaves (caches of transformers).
    leaves, _ = tree_flatten_with_path(tree_unflatten([torch.empty(0)] * count, structure))
    return [("kwargs" if path[0].idx else "args") + keystr(path[1:]) for path, _ in leaves]  # type: ignore[attr-defined]


def place_of_input(program: ExportedProgram, node: torch.fx.Node) -> str | None:
    """The place of a placeholder among the inputs; None for one that stands for stored data."""
    names = [
        getattr(spec.arg, "name", None)
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    if node.op != "placeholder" or node.name not in names:
        return None
    return input_places(program, len(names))[names.index(node.name)]


_STORED_INPUTS = (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)

# The largest rank of the file format's reader.
_MAX_RANK = 16
_WITHOUT_KERNEL = "replace the operator in the model, decompose it before export, or delegate it to a backend"
# How PyTorch writes calls of operators that change their arguments.
_FUNCTIONALIZED = (auto_functionalized, auto_functionalized_v2)


def find_problems(
    program: ExportedProgram, method: str, kernels: frozenset[str], *, takes_custom: bool = False
) -> list[Problem]:
    """All problems of one method, in graph order, equal ones on the same source line once.

    `program`: an edge program, write-backs and views inserted; `kernels`: what the target can run;
    `takes_custom`: kernels of custom operators may be registered there.
    """
    located = located_problems(program, method, kernels, takes_custom=takes_custom)
    return list(dict.fromkeys(problem for _, problem in located))


def located_problems(
    program: ExportedProgram, method: str, kernels: frozenset[str], *, takes_custom: bool = False
) -> Iterator[tuple[torch.fx.Node | None, Problem]]:
    """Every problem with the node that has it, None where none has."""
    for what in _signature_problems(program):
        yield None, Problem(method, None, what, UNKNOWN_LINE)
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            for name, what in _node_problems(node, program, kernels, takes_custom):
                yield node, problem_of(node, method, name, what)


def _signature_problems(program: ExportedProgram) -> Iterator[str]:
    yield from input_problems(program)
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _STORED_INPUTS:
            yield (
                f"input {spec.target or spec.arg.name!r} of kind {spec.kind.name} cannot be stored; "
                "use tensors, numbers, strings and None"
            )
    for out in program.graph_signature.output_specs:
        if out.kind not in GIVEN_BACK:
            yield f"output {out.arg.name!r} of kind {out.kind.name} is not supported"


def _node_problems(
    node: torch.fx.Node, program: ExportedProgram, kernels: frozenset[str], takes_custom: bool
) -> Iterator[tuple[str | None, str]]:
    if node.op not in ("placeholder", "call_function"):
        return
    name = str(getattr(node.target, "__name__", node.target)) if node.op == "call_function" else None
    for what in _value_problems(node, program):
        place = place_of_input(program, node)
        yield name, what if place is None else f"input {place}: {what}"
    if node.op == "placeholder" or node.target is operator.getitem or is_delegate_call(node):
        return
    if is_control_flow(node):
        for needed in sorted(loop_operators(control_flow_of(node)) - kernels):
            yield name, f"the target has no kernel {needed}, which this operator is made of"
        return
    if node.target in _FUNCTIONALIZED:
        op: Any = node.args[0]
        yield str(op), _whole_tensors(op) or refusal(op) or "changes its arguments"
        return
    if isinstance(node.target, HigherOrderOperator):
        yield name, "this higher-order operator cannot be emitted"
        return
    emitted, problem = _emitted_operator(node)
    if problem is not None:
        yield name, problem
    elif emitted is not None and emitted not in kernels and not (takes_custom and is_custom_name(emitted)):
        yield name, f"the target has no kernel {emitted}; {_without_kernel(emitted)}"


def _whole_tensors(op: OpOverload) -> str | None:
    """What is wrong with a call of a custom operator that may change whole tensors."""
    if not is_custom(op) or functional_form(op) is None:
        return None
    return (
        "changes a part of a tensor here, or one tensor by two arguments; let it change a whole tensor, or "
        "return the new value, and copy that where it belongs in the model (tensor[...].copy_(...))"
    )


def _emitted_operator(node: torch.fx.Node) -> tuple[str | None, str | None]:
    """(operator in the program file, None) or (None, what is wrong)."""
    target: Any = node.target
    if target is view:
        # Most views cost no instruction; those that do are run by every target.
        return None, None
    if is_symbolic_op(target):
        return _joined(*EMITTED_AS[target]), None
    if isinstance(target, EdgeOpOverload):
        try:
            return _joined(*emitted_name(out_variant(target.aten_overload))), None
        except MissingOutVariantError:
            op = target.aten_overload
            return None, (is_custom(op) and refusal(op)) or (
                "has no overload that writes into given tensors; decompose it before export, delegate it, or "
                "call an operator of your own (torch.library.custom_op), for which "
                "pteron.register_kernel takes a kernel"
            )
    if isinstance(target, OpOverload):
        return _joined(*emitted_name(target)), None
    return None, (
        f"{target} on symbolic numbers has no instruction; compute it from +, -, *, //, % and "
        "comparisons, or on a tensor"
    )


def _without_kernel(emitted: str) -> str:
    if is_custom_name(emitted):
        return f"add it to the list of kernels, which says what the target has, or {_WITHOUT_KERNEL}"
    return _WITHOUT_KERNEL


def _joined(name: str, overload: str) -> str:
    return f"{name}.{overload}" if overload else name


def _value_problems(node: torch.fx.Node, program: ExportedProgram) -> Iterator[str]:
    for value in tree_leaves(node.meta.get("val")):
        if not isinstance(value, torch.Tensor):
            continue
        if not is_storable(value.dtype):
            yield f"element type {value.dtype} cannot be stored in a program; cast to another in the model"
        if value.layout is not torch.strided:
            yield f"a tensor of layout {value.layout} cannot be stored; make it dense in the model"
        if value.dim() > _MAX_RANK:
            yield f"rank {value.dim()} is above {_MAX_RANK}, the most that a program can store; reshape it"
        for position, extent in enumerate(value.shape):
            if extent_bounds(extent, program.range_constraints)[1] is None and not _is_inherited(
                node, extent
            ):
                yield f"dimension {position} ({extent}) has no upper bound; {_bound_hint(extent)}"


def _is_inherited(node: torch.fx.Node, extent: Any) -> bool:
    """Whether an operand has an extent of the same symbols, whose bound is missing there already."""
    symbols = extent.node.expr.free_symbols
    for operand in node.all_input_nodes:
        for value in tree_leaves(operand.meta.get("val")):
            extents: tuple[Any, ...] = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
            if any(isinstance(e, torch.SymInt) and symbols <= e.node.expr.free_symbols for e in extents):
                return True
    return False


def _bound_hint(extent: Any) -> str:
    if any(str(symbol).startswith("u") for symbol in extent.node.expr.free_symbols):
        return (
            "it depends on data: bound it in the model, where n is that number, with torch._check(n <= ...)"
        )
    return "give it one with torch.export.Dim(max=...); pteron.export gives one that is not stated"
