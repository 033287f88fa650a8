"""The checks of a program: against the rules of a stage, and the one that torch itself runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._export.verifier import SpecViolationError, Verifier
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram

from pteron import errors
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.stages import Context, Stage
from pteron.exir.edge.symbolic_ops import is_symbolic_op


class EdgeDialectVerifier(Verifier):
    """Accepts edge operators, symbolic arithmetic and higher-order operators.

    The full specification of a stage is in `stages`; this class is what `ExportedProgram(verifiers=...)`
    needs.
    """

    dialect = "EDGE"

    def allowed_op_types(self) -> tuple[type[Any], ...]:
        """Types of call targets that may stand in an edge graph."""
        return (EdgeOpOverload, OpOverload, HigherOrderOperator)

    def check_valid_op(self, op: Any) -> None:
        """Refuse PyTorch overloads that `to_edge` should have replaced."""
        if isinstance(op, OpOverload) and not is_symbolic_op(op):
            raise SpecViolationError(
                f"{op} is a PyTorch overload in an edge graph; call exir_ops.edge.{op} there instead"
            )

    def allowed_getattr_types(self) -> tuple[type[Any], ...]:
        """Types of attributes that a graph may read: branch graphs, tree specs and tensors of custom
        passes.
        """
        return (*super().allowed_getattr_types(), torch.Tensor)


class VerificationError(errors.VerificationError, SpecViolationError):
    """The error of `pteron.errors`, for code that catches what torch's own verifiers raise too."""


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
