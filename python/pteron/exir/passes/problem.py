"""One reason why a program cannot be written or run, and the text that lists many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pteron.exir.edge.source_location import source_location

UNKNOWN_LINE = "the model's signature"
# Further places of the same problem are counted, not listed.
_MOST_PLACES = 8


@dataclass(frozen=True)
class Problem:
    """One reason why a program cannot be written or run.

    `operator` is None where no operator is at fault. `call`: the operands with element type and shape, as
    `(float32[2, 8], 3)`; `node`: the name of the graph node; both empty where there is none.
    """

    method: str
    operator: str | None
    what: str
    source_line: str
    call: str = ""
    # The nodes of an unrolled loop differ in nothing else; one of them stands for all.
    node: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.method}: {self.operator or 'program'}: {self.what} (from {self.source_line})"


def problem_of(node: torch.fx.Node, method: str, operator: str | None, what: str) -> Problem:
    """A problem of one graph node."""
    if node.op == "placeholder":
        return Problem(method, operator, what, UNKNOWN_LINE, node=node.name)
    call = operands_text(node) if node.op == "call_function" else ""
    return Problem(method, operator, what, str(source_location(node)), call, node.name)


def operands_text(node: torch.fx.Node) -> str:
    """The operands of a call in one line: element type and shape of tensors, the rest as written."""
    shown = [_shown(value) for value in node.args]
    shown += [f"{name}={_shown(value)}" for name, value in node.kwargs.items()]
    return f"({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        value = value.meta.get("val")
    if isinstance(value, torch.Tensor):
        return (
            f"{str(value.dtype).removeprefix('torch.')}[{', '.join(str(extent) for extent in value.shape)}]"
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value)


def problems_text(problems: Sequence[Problem]) -> str:
    """A list of all problems: one paragraph for each operator and reason, one line for each place."""
    groups: dict[tuple[str | None, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.operator, problem.what), []).append(problem)
    return "\n".join(
        line for (operator, what), places in groups.items() for line in _group(operator, what, places)
    )


def _group(operator: str | None, what: str, places: Sequence[Problem]) -> Iterable[str]:
    yield f"  {operator or 'program'}: {what}"
    for place in places[:_MOST_PLACES]:
        node = f"node {place.node} {place.call}".rstrip() + ", " if place.node else ""
        yield f"    method {place.method}: {node}from {place.source_line}"
    if len(places) > _MOST_PLACES:
        yield f"    and {len(places) - _MOST_PLACES} more places"
