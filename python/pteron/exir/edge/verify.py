"""Check a program against the rules of a stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.export import ExportedProgram

from pteron.errors import VerificationError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.stages import Context, Stage


def verify(
    program: ExportedProgram, stage: Stage, *, method: str | None = None, exceptions: Iterable[Any] = ()
) -> None:
    """Check every node of `program`, control-flow branches included, against the rules of `stage`.

    Raises `VerificationError` for the first node that breaks one; its text shows the node and its source
    line. `exceptions` are PyTorch overloads that the core ATen rule lets pass.
    """
    context = Context(program, frozenset(exceptions))
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            for rule in stage.rules:
                problem = rule.broken(node, context)
                if problem is None:
                    continue
                location = source_location(node)
                raise VerificationError(
                    f"{stage.name} stage, rule '{rule.name}': {problem}\n"
                    f"  node: {node.format_node()}\n  from: {location}",
                    method=method,
                    operator=str(node.target),
                    source_line=str(location),
                )
