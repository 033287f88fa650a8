"""The check that torch itself runs whenever an `ExportedProgram` in the edge dialect is built."""

from __future__ import annotations

from typing import Any

import torch
from torch._export.verifier import SpecViolationError, Verifier
from torch._ops import HigherOrderOperator, OpOverload

from pteron.exir.edge.edge_op_overload import EdgeOpOverload
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
