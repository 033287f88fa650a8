"""Control-flow operators of a graph: which graphs they run, and what the parts of a call mean to them.

One description serves every reader: passes that walk into bodies, memory lifetimes, and emission. The calls
are those of PyTorch's higher-order operators:

    cond(predicate, true graph, false graph, captured)
    map_impl(body, mapped, captured)
    scan(body, initial values, mapped, captured)
    associative_scan(body, mapped, captured)
    while_loop(condition graph, body, initial values, captured)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch._ops import HigherOrderOperator

CONTROL_FLOW_NAMES = frozenset({"cond", "map_impl", "scan", "while_loop", "associative_scan"})


class Meaning(Enum):
    """What a placeholder of a body stands for."""

    #: The operand itself, the same value in every iteration.
    CAPTURED = "captured"
    #: What the iteration before returned; in the first one the operand, its initial value.
    CARRIED = "carried"
    #: One row of the operand: element `i` along dimension 0 in iteration `i`.
    ROW = "row"


class BodyKind(Enum):
    """When a body runs."""

    #: At most once.
    BRANCH = "branch"
    #: Before every iteration; it returns whether there is one.
    CONDITION = "condition"
    #: Once per iteration.
    ITERATION = "iteration"


@dataclass(frozen=True)
class Parameter:
    """A placeholder of a body.

    `operand`: a node of the calling graph, or a number. `position`: among the parameters of its meaning. The
    carried parameters of `associative_scan` start as row 0 of their operand.
    """

    placeholder: torch.fx.Node
    meaning: Meaning
    operand: Any
    position: int


@dataclass(frozen=True)
class Body:
    """A graph that a control-flow operator runs."""

    module: torch.fx.GraphModule
    kind: BodyKind
    parameters: tuple[Parameter, ...]

    @property
    def results(self) -> list[Any]:
        """What the body returns, one item per result: a node, a number or None."""
        return body_results(self.module)

    def having(self, meaning: Meaning) -> list[Parameter]:
        """The parameters of one meaning, in order."""
        return [parameter for parameter in self.parameters if parameter.meaning is meaning]


@dataclass(frozen=True)
class ControlFlow:
    """A call of a control-flow operator, taken apart.

    `kind`: its name, one of `CONTROL_FLOW_NAMES`. `bodies`: of `cond` the true branch, then the false one; of
    `while_loop` the condition, then the iteration; else one. `predicate`: of `cond`. `initial`, `mapped`,
    `captured`: operands, as nodes of the calling graph or numbers.

    The results of the call: of `cond` those of the branch that ran; of `while_loop` the last carried values;
    of `map_impl` and `associative_scan` the results of all iterations, stacked along dimension 0; of `scan`
    the last carried values, then the other results stacked.
    """

    node: torch.fx.Node
    kind: str
    bodies: tuple[Body, ...]
    predicate: Any = None
    initial: tuple[Any, ...] = ()
    mapped: tuple[Any, ...] = ()
    captured: tuple[Any, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether its last body may run more than once."""
        return self.kind != "cond"

    @property
    def iteration(self) -> Body:
        """The body that runs once per iteration. ValueError for `cond`."""
        if not self.is_loop:
            raise ValueError(f"{self.node.format_node()} has no iterations")
        return self.bodies[-1]

    @property
    def stacked_from(self) -> int:
        """Index of the first result that stacks what the iterations returned."""
        return len(self.initial) if self.kind in ("scan", "while_loop") else 0


def is_control_flow(node: torch.fx.Node) -> bool:
    """Whether `node` calls a control-flow operator."""
    return (
        node.op == "call_function"
        and isinstance(node.target, HigherOrderOperator)
        and node.target.__name__ in CONTROL_FLOW_NAMES
    )


def control_flow_of(node: torch.fx.Node) -> ControlFlow:
    """The call `node`, taken apart. `node` must satisfy `is_control_flow`."""
    kind = str(getattr(node.target, "__name__", node.target))
    arguments = list(node.args)
    if kind == "cond":
        predicate, true, false, captured = arguments
        operands = _operands(captured)
        branches = tuple(_body(each, BodyKind.BRANCH, (), (), operands) for each in (true, false))
        return ControlFlow(node, kind, branches, predicate=predicate, captured=operands)
    if kind == "while_loop":
        condition, body, initial, captured = arguments
        first, operands = _operands(initial), _operands(captured)
        bodies = (
            _body(condition, BodyKind.CONDITION, first, (), operands),
            _body(body, BodyKind.ITERATION, first, (), operands),
        )
        return ControlFlow(node, kind, bodies, initial=first, captured=operands)
    if kind == "scan":
        body, initial, mapped, captured = arguments
    elif kind == "map_impl":
        body, mapped, captured = arguments
        initial = ()
    elif kind == "associative_scan":
        body, mapped, captured = arguments
        initial = mapped
    else:
        raise TypeError(f"{node.format_node()} is no control-flow operator")
    first, rows, operands = _operands(initial), _operands(mapped), _operands(captured)
    iteration = _body(body, BodyKind.ITERATION, first, rows, operands)
    return ControlFlow(node, kind, (iteration,), initial=first, mapped=rows, captured=operands)


def control_flows(module: torch.fx.GraphModule) -> Iterator[ControlFlow]:
    """The control-flow calls of one graph, in order; those in their bodies are not entered."""
    for node in module.graph.nodes:
        if is_control_flow(node):
            yield control_flow_of(node)


def attribute_of(node: torch.fx.Node) -> Any:
    """What a `get_attr` node reads from the module that owns its graph."""
    found: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def body_results(module: torch.fx.GraphModule) -> list[Any]:
    """What a body returns, one item per result."""
    returned = module.graph.output_node().args[0]
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def graph_modules(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """`module`, then every branch and loop body below it, each once, callers before callees."""
    seen: set[int] = set()
    pending = [module]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        bodies = [body.module for call in control_flows(current) for body in call.bodies]
        pending.extend(reversed(bodies))


def _operands(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _body(
    graph: Any,
    kind: BodyKind,
    initial: Sequence[Any],
    mapped: Sequence[Any],
    captured: Sequence[Any],
) -> Body:
    assert isinstance(graph, torch.fx.Node)
    module: torch.fx.GraphModule = attribute_of(graph)
    placeholders = [each for each in module.graph.nodes if each.op == "placeholder"]
    meanings = [
        (meaning, operand, position)
        for meaning, operands in (
            (Meaning.CARRIED, initial),
            (Meaning.ROW, mapped),
            (Meaning.CAPTURED, captured),
        )
        for position, operand in enumerate(operands)
    ]
    parameters = tuple(
        Parameter(placeholder, meaning, operand, position)
        for placeholder, (meaning, operand, position) in zip(placeholders, meanings, strict=True)
    )
    return Body(module, kind, parameters)


#: (operator, overload), as in the program file.
SELECT_ROW = ("aten::select_copy", "int_out")
APPEND_ROW = ("executorch_prim::et_copy_index", "tensor")
COPY_TENSOR = ("dim_order_ops::_clone_dim_order", "out")
EMPTY_TENSOR = ("aten::empty", "out")
EXTENT = ("aten::sym_size", "int")
ADD = ("executorch_prim::add", "Scalar")
MULTIPLY = ("executorch_prim::mul", "Scalar")
FLOOR_DIVIDE = ("executorch_prim::floordiv", "Scalar")
REMAINDER = ("executorch_prim::mod", "Scalar")
IS_LESS = ("executorch_prim::lt", "Scalar")
IS_EQUAL = ("executorch_prim::eq", "Scalar")
SUBTRACT = ("executorch_prim::sub", "Scalar")

_COUNTED = (EXTENT, SELECT_ROW, APPEND_ROW, ADD, IS_EQUAL, SUBTRACT)
_BY_KIND = {
    "cond": (),
    "while_loop": (COPY_TENSOR,),
    "map_impl": _COUNTED,
    "scan": (*_COUNTED, COPY_TENSOR),
    "associative_scan": (*_COUNTED, COPY_TENSOR),
}


def loop_operators(call: ControlFlow) -> frozenset[str]:
    """Names, overload included, of the operators that the emission of `call` needs beside its bodies'."""
    return frozenset(".".join(name) for name in _BY_KIND[call.kind])
