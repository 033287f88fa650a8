"""Calls whose arguments cannot be stored, or that no kernel of the target takes, found before emission."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils._pytree import TreeSpec, tree_leaves

from pteron.errors import ExportError, PteronError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.custom_ops import is_custom_name
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, emitted_name
from pteron.exir.edge.extent_bounds import Ranges, has_unbounded_extent
from pteron.exir.edge.out_variant import out_argument_names, out_variant
from pteron.exir.edge.symbolic_ops import EMITTED_AS, is_symbolic_number, is_symbolic_op
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.kernel_arguments import kernel_arguments
from pteron.exir.emit.portable_tree import tree_text
from pteron.exir.emit.value_table import ValueTable
from pteron.exir.passes.problem import UNKNOWN_LINE, Problem, problem_of
from pteron.exir.target.portable_dtypes import refused_by_portable


def find_call_problems(
    program: ExportedProgram,
    method: str,
    reported: Collection[torch.fx.Node],
    *,
    target: str | Iterable[str],
) -> Iterator[Problem]:
    """Problems of the calls of `program` that are not in `reported`, and of the structure of its inputs and
    outputs.

    `target`: "pteron" asks the native kernel table, as load does, whether a kernel takes element types and
    ranks; of "executorch-portable" some refused element types are known; of a list of names nothing more.
    """
    for what in _structure_problems(program.call_spec.in_spec, program.call_spec.out_spec):
        yield Problem(method, None, what, UNKNOWN_LINE)
    check = _Check(program.range_constraints, target)
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op != "call_function" or node in reported:
                continue
            # What has no bound is reported where it begins; nothing can be said about what follows from it.
            values = [operand.meta.get("val") for operand in (node, *node.all_input_nodes)]
            if has_unbounded_extent(values, program.range_constraints):
                continue
            found = check.problem(node)
            if found is not None:
                yield problem_of(node, method, str(getattr(node.target, "__name__", node.target)), found)


def call_problem(
    op: EdgeOpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, *, target: str
) -> str | None:
    """What is wrong with a call of `op` with these tensors and numbers, which gave `result`; None where a
    kernel of `target` takes it.
    """
    graph = torch.fx.Graph()

    def operand(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder("operand")
        node.meta["val"] = value
        return node

    given = torch.fx.node.map_aggregate((tuple(args), dict(kwargs)), operand)
    call = graph.call_function(op, *given)
    call.meta["val"] = result
    return _Check({}, target).problem(call)


def _structure_problems(*structures: TreeSpec | None) -> Iterator[str]:
    for structure in structures:
        try:
            tree_text(structure)
        except ExportError as error:
            yield str(error)


class _Check:
    """Builds the arguments of single calls and asks the kernel table about each distinct one once."""

    def __init__(self, ranges: Ranges, target: str | Iterable[str]) -> None:
        self._ranges = ranges
        self._target = target
        self._answers: dict[Any, str | None] = {}
        self._of_node: dict[torch.fx.Node, Any] = {}
        # Stand-ins for the tensors that a call writes to, which the graph does not have yet.
        self._outs = torch.fx.Graph()

    def problem(self, node: torch.fx.Node) -> str | None:
        """What is wrong with a call, or None."""
        key = (node.target, self._operand(node.args), self._operand(node.kwargs), self._operand(node))
        if key not in self._answers:
            self._answers[key] = self._answer(node)
        return self._answers[key]

    def _operand(self, value: Any) -> Any:
        """What a kernel can know about an operand before the run, hashable; equal ones get equal answers."""
        kind = type(value)
        if kind is torch.fx.Node:
            if value not in self._of_node:
                self._of_node[value] = _value_signature(value.meta.get("val"))
            return self._of_node[value]
        # Type and value: 1, 1.0 and True are equal, but not the same argument.
        if kind in _PLAIN:
            return (kind, value)
        if isinstance(value, (list, tuple)):
            return tuple([self._operand(item) for item in value])
        if isinstance(value, dict):
            return tuple([(name, self._operand(item)) for name, item in value.items()])
        return (kind, repr(value))

    def _answer(self, node: torch.fx.Node) -> str | None:
        target: Any = node.target
        table = ValueTable()
        try:
            if is_symbolic_op(target):
                name, arguments, varying = self._symbolic(table, node)
            elif isinstance(target, (EdgeOpOverload, OpOverload)):
                name, arguments, varying = self._operator(table, node, target)
            else:
                return None
        except ExportError as error:
            return str(error)
        full_name = ".".join(part for part in name if part)
        if self._target == "pteron" and not is_unregistered(full_name):
            return _refusal(full_name, [value.val for value in table.values], arguments, varying)
        if self._target == "executorch-portable":
            return _portable_refusal(full_name, node)
        return None

    def _operator(
        self, table: ValueTable, node: torch.fx.Node, target: EdgeOpOverload | OpOverload
    ) -> tuple[tuple[str, str], list[int], list[int]]:
        varying = self._bind_operands(table, node)
        kwargs = dict(node.kwargs)
        if isinstance(target, EdgeOpOverload):
            op = out_variant(target.aten_overload)
            names = out_argument_names(op)
            result = node.meta["val"]
            for name, value in zip(names, [result] if len(names) == 1 else result, strict=True):
                if value is None:
                    raise ExportError(
                        f"{op} leaves out its result {name!r}, and a kernel writes all of them; "
                        "ask for all results"
                    )
                kwargs[name] = stand_in = self._outs.placeholder(name)
                self._bind_tensors(table, stand_in, value)
        else:
            op = target
        arguments, _ = kernel_arguments(table, op, node.args, kwargs)
        return emitted_name(op), arguments, varying

    def _symbolic(
        self, table: ValueTable, node: torch.fx.Node
    ) -> tuple[tuple[str, str], list[int], list[int]]:
        varying = self._bind_operands(table, node)
        arguments = [
            table.index_of(value) if isinstance(value, torch.fx.Node) else table.add_literal(value)
            for value in node.args
        ]
        arguments.append(table.add_symbolic(node.meta["val"]))
        return EMITTED_AS[node.target], arguments, [*varying, arguments[-1]]

    def _bind_operands(self, table: ValueTable, node: torch.fx.Node) -> list[int]:
        varying = []
        for operand in node.all_input_nodes:
            value = operand.meta.get("val")
            if is_symbolic_number(value):
                index = table.add_symbolic(value)
                table.bind(operand, index)
                varying.append(index)
            elif value is None or isinstance(value, str):
                table.bind(operand, table.add_literal(value))
            else:
                self._bind_tensors(table, operand, value)
        return varying

    def _bind_tensors(self, table: ValueTable, node: torch.fx.Node, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            table.bind(node, table.add_tensor(TensorSpec.from_value(value, self._ranges)))
        else:
            specs = [TensorSpec.from_value(each, self._ranges) for each in value]
            table.bind(node, [table.add_tensor(spec) for spec in specs])


_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype})


def _value_signature(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, _extents(value.shape), _extents(value.stride()))
    if isinstance(value, (list, tuple)):
        return tuple([_value_signature(item) for item in value])
    return (type(value), str(value))


def _extents(extents: Sequence[Any]) -> Any:
    return tuple([extent if type(extent) is int else str(extent) for extent in extents])


def _refusal(operator: str, values: list[Any], arguments: list[int], varying: list[int]) -> str | None:
    """Why no kernel takes a call; None where one does."""
    from pteron import _native

    try:
        _native.check_call(operator, values, arguments, varying)
    except PteronError as error:
        # The hint of a load error speaks to somebody who has the file alone.
        reason = str(error).removesuffix(f" (hint: {error.hint})")
        return (
            f"no kernel takes this call: {reason}; cast to another element type before the call, or delegate "
            "it to a backend"
        )
    return None


def is_unregistered(operator: str) -> bool:
    """Whether `operator`, as files name it, is a custom one that has no kernel in this process."""
    from pteron import _native

    return is_custom_name(operator) and not _native.has_kernel(operator)


def _portable_refusal(operator: str, node: torch.fx.Node) -> str | None:
    values = [*(operand.meta.get("val") for operand in node.all_input_nodes), node.meta.get("val")]
    dtypes = [value.dtype for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    refused = refused_by_portable(operator, dtypes)
    if refused is None:
        return None
    return (
        f"ExecuTorch's kernel of {operator} takes no {refused}; cast before the call, or delegate it to a "
        "backend"
    )
