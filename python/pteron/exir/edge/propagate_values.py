"""Recompute the fake results of a graph after its operators were replaced."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from pteron.exir.edge.control_flow import (
    BodyKind,
    ControlFlow,
    Meaning,
    Parameter,
    control_flow_of,
    is_control_flow,
)
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.symbolic_ops import is_symbolic_op


class SymbolsKept:
    """A context in which symbolic extents of `values` stay symbolic.

    Some of PyTorch's meta functions read extents as numbers (`upsample_nearest2d` with scale factors is
    one). That fixes symbols to the numbers of the example, for the whole program. On exit such fixings are
    taken back and `is_fixed` is true; what was computed meanwhile holds for the example only.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self.is_fixed = False
        self._environment = _shape_environment(values)
        self._before: tuple[dict[Any, Any], dict[Any, Any], int] | None = None

    def __enter__(self) -> SymbolsKept:
        env = self._environment
        if env is not None:
            self._before = (dict(env.replacements), dict(env.var_to_range), len(env.guards))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        env = self._environment
        if env is None or self._before is None:
            return
        replacements, ranges, guards = self._before
        self.is_fixed = any(
            value.is_number for symbol, value in env.replacements.items() if symbol not in replacements
        )
        if self.is_fixed:
            env.replacements.clear()
            env.replacements.update(replacements)
            env.var_to_range.clear()
            env.var_to_range.update(ranges)
            del env.guards[guards:]
            # What symbols were simplified to is cached by these two.
            env._update_version_counter()
            env._replacements_version_counter += 1


def _shape_environment(values: Iterable[Any]) -> Any:
    for value in values:
        extents = value.shape if isinstance(value, torch.Tensor) else (value,)
        for extent in extents:
            if isinstance(extent, torch.SymInt):
                return extent.node.shape_env
    return None


def fake_mode_of(module: torch.fx.GraphModule) -> FakeTensorMode | None:
    """The mode that the fake tensors of a graph belong to; None for a graph without tensors."""
    for node in module.graph.nodes:
        for value in tree_leaves(node.meta.get("val")):
            mode: FakeTensorMode | None = getattr(value, "fake_mode", None)
            if mode is not None:
                return mode
    return None


def depends_on_data(value: Any) -> bool:
    """Whether a result has extents that only running the program tells."""
    for leaf in tree_leaves(value):
        extents = leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)
        for extent in extents:
            if isinstance(extent, (torch.SymInt, torch.SymFloat)) and any(
                str(symbol).startswith(("u", "zuf")) for symbol in extent.node.expr.free_symbols
            ):
                return True
    return False


def evaluate(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The fake result of an operator. Copying views are evaluated as a view and a contiguous copy of it.

    PyTorch's own meta functions of some `_copy` operators do not take symbolic extents.
    """
    op = target.aten_overload if isinstance(target, EdgeOpOverload) else target
    if not isinstance(op, OpOverload) or torch.Tag.view_copy not in op.tags:
        return target(*args, **kwargs)
    view_name = op._schema.name.split("::")[1].removesuffix("_copy")
    if view_name == "view" and op._overloadname == "default":
        return torch.ops.aten.reshape.default(*args, **kwargs).contiguous()
    view = getattr(getattr(torch.ops.aten, view_name), op._overloadname)
    return tree_map_only(torch.Tensor, lambda value: value.contiguous(), view(*args, **kwargs))


def propagate_values(module: torch.fx.GraphModule) -> None:
    """Set `meta["val"]` of every operator call in `module` to what the operator returns for its operands'
    values.

    Bodies of control flow are entered. Kept as they are: results of other higher-order operators, symbolic
    numbers, and results whose shape depends on data (computing them again would invent new symbols).
    """
    mode = fake_mode_of(module)
    if mode is None:
        return
    # Without Python's dispatcher some composite operators run in C++, where a symbolic extent is a number.
    with mode, enable_python_dispatcher(), torch.no_grad():
        _propagate(module)


def _propagate(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if is_control_flow(node):
            _propagate_bodies(control_flow_of(node))
        if node.op != "call_function" or isinstance(node.target, HigherOrderOperator):
            continue
        if is_symbolic_op(node.target) or depends_on_data(node.meta.get("val")):
            continue
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        with SymbolsKept(tree_leaves((args, kwargs))) as symbols:
            value = evaluate(node.target, args, kwargs)
        # What export found out for all extents stays where computing it again holds for the example's only.
        if not symbols.is_fixed:
            node.meta["val"] = value


def _propagate_bodies(call: ControlFlow) -> None:
    results = list(call.node.meta["val"])
    if call.is_loop:
        # Results of iterations are stacked row by row, so each is contiguous in itself.
        stacked = slice(call.stacked_from, None)
        if call.kind != "while_loop":
            results[stacked] = [value.contiguous() for value in results[stacked]]
        call.node.meta["val"] = tuple(results)
    for body in call.bodies:
        for parameter in body.parameters:
            _propagate_parameter(call, parameter, results)
        _propagate(body.module)
    if call.bodies[0].kind is BodyKind.BRANCH and not depends_on_data(call.node.meta.get("val")):
        call.node.meta["val"] = tuple(
            result.meta["val"] if isinstance(result, torch.fx.Node) else result
            for result in call.bodies[0].results
        )


def _propagate_parameter(call: ControlFlow, parameter: Parameter, results: list[Any]) -> None:
    meta, operand = parameter.placeholder.meta, parameter.operand
    if parameter.meaning is Meaning.CAPTURED:
        meta["val"] = operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand
    elif isinstance(meta["val"], torch.Tensor):
        if parameter.meaning is Meaning.CARRIED and call.kind != "associative_scan":
            kept = results[parameter.position]
            if str(kept.shape) == str(meta["val"].shape):
                meta["val"] = kept
        else:
            meta["val"] = meta["val"].contiguous()
