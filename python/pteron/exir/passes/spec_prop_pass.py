"""State a `TensorSpec` for every tensor of a graph."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._pytree import tree_map

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import (
    Body,
    ControlFlow,
    Meaning,
    Parameter,
    control_flow_of,
    is_control_flow,
)
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.extent_bounds import Ranges
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.tensor_spec import TensorSpec


def share_carried_memory(call: ControlFlow) -> None:
    """Point the specs of results and initial values at the carried value's, where no copy is needed then.

    A result may be written to its carried value's place when every read of the old value comes before; an
    initial value may be computed there when only this loop reads it. Specs must be set.
    """
    body = call.iteration
    results = body.results
    for parameter in body.having(Meaning.CARRIED):
        kept = parameter.placeholder.meta["spec"]
        if not isinstance(kept, TensorSpec):
            continue
        result = results[parameter.position]
        if _is_own_tensor(result, kept) and _is_read_only_before(body, parameter, result):
            result.meta["spec"].base = kept
        if call.kind != "associative_scan":
            initial = parameter.operand
            if _is_own_tensor(initial, kept) and _times_read(call, initial) == 1:
                initial.meta["spec"].base = kept


def _is_own_tensor(value: Any, kept: TensorSpec) -> bool:
    """Whether `value` is made by an operator, in memory of its own that is like that of `kept`."""
    if not isinstance(value, torch.fx.Node) or not isinstance(value.target, EdgeOpOverload):
        return False
    spec = value.meta.get("spec")
    return isinstance(spec, TensorSpec) and spec.base is None and spec.is_like(kept)


def _is_read_only_before(body: Body, parameter: Parameter, result: torch.fx.Node) -> bool:
    order = {node: position for position, node in enumerate(body.module.graph.nodes)}
    views = [parameter.placeholder]
    for value in views:
        for user in value.users:
            if order[user] >= order[result]:
                return False
            if user.target is view:
                views.append(user)
    return True


def _times_read(call: ControlFlow, value: torch.fx.Node) -> int:
    """Readers of `value`, counting each operand of the call."""
    operands = (*call.initial, *call.mapped, *call.captured)
    return len(value.users) - 1 + sum(operand is value for operand in operands)


def spec_of(value: Any, ranges: Ranges | None = None) -> Any:
    """`value` with a `TensorSpec` in place of each tensor."""
    return tree_map(
        lambda leaf: TensorSpec.from_value(leaf, ranges) if isinstance(leaf, torch.Tensor) else leaf, value
    )


class SpecPropPass(PassBase):
    """Sets `meta["spec"]` of every placeholder and call: the shape of `meta["val"]`, tensors as `TensorSpec`.

    One tensor has one spec object: a `getitem` gets that of the result it picks, an in-place operator that
    of the tensor it changes, an operand that a body captures that of the caller's tensor, a value that a loop
    carries that of the loop's result. A view gets a spec whose `base` is the spec of what it views; a result
    of a branch has the result of the `cond` as its base, and so has a result of an iteration that can be
    computed in the place of the carried value.

    `ranges`: symbol → range; without it each symbol's own shape environment is asked.
    """

    def __init__(self, ranges: Ranges | None = None) -> None:
        super().__init__()
        self._ranges = ranges

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over `graph_module` and the bodies of its control flow, in place."""
        self._run(graph_module, {})
        return PassResult(graph_module, True)

    def _run(self, module: torch.fx.GraphModule, operands: dict[torch.fx.Node, Any]) -> None:
        for node in module.graph.nodes:
            if node in operands:
                node.meta["spec"] = operands[node]
            elif node.op in ("placeholder", "call_function") and "val" in node.meta:
                node.meta["spec"] = self._spec(node)
            if is_control_flow(node):
                self._bodies(control_flow_of(node))

    def _spec(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, torch.fx.Node)
            return source.meta["spec"][index]
        if node.target is torch.ops.aten.copy_.default:
            changed = node.args[0]
            assert isinstance(changed, torch.fx.Node)
            return changed.meta["spec"]
        spec = spec_of(node.meta["val"], self._ranges)
        if node.target is view:
            base = node.args[0]
            assert isinstance(base, torch.fx.Node)
            spec.base = base.meta["spec"]
        return spec

    def _bodies(self, call: ControlFlow) -> None:
        results = call.node.meta["spec"]
        for body in call.bodies:
            known: dict[torch.fx.Node, Any] = {}
            for parameter in body.parameters:
                operand = parameter.operand
                if parameter.meaning is Meaning.CAPTURED:
                    spec = operand.meta["spec"] if isinstance(operand, torch.fx.Node) else operand
                    known[parameter.placeholder] = spec
                elif parameter.meaning is Meaning.CARRIED and call.kind != "associative_scan":
                    known[parameter.placeholder] = results[parameter.position]
            self._run(body.module, known)
        if call.is_loop:
            share_carried_memory(call)
            return
        for body in call.bodies:
            for result, spec in zip(body.results, results, strict=True):
                made = result.meta["spec"] if isinstance(result, torch.fx.Node) else None
                if isinstance(made, TensorSpec):
                    _share_place(made, spec, call.node)


def state_specs(program: ExportedProgram) -> None:
    """State a `TensorSpec` for every tensor of `program`, in place, with the ranges of its symbols."""
    SpecPropPass(program.range_constraints)(program.graph_module)


def _share_place(made: TensorSpec, result: TensorSpec, node: torch.fx.Node) -> None:
    # A pass may run again over specs that it has set, or over branches whose results other passes did not
    # copy.
    if made.root is result or made.base is not None:
        return
    if made.nbytes() > result.nbytes():
        raise ExportError(
            f"{node.format_node()}: a branch returns {made.nbytes()} bytes, the result has {result.nbytes()}",
            expected=f"at most {result.shape}",
            got=str(made.shape),
            hint="let both branches return tensors of one shape",
        )
    made.base = result
