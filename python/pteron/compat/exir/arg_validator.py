"""`EdgeOpArgValidator`: runs an edge graph and notes the calls that no kernel takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from pteron.compat.exir.error import ExportError, InternalError
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.emit.find_call_problems import call_problem

__all__ = ["EdgeOpArgValidator", "RunHigherOrderOperatorError"]


class RunHigherOrderOperatorError(Exception):
    """A graph calls a delegate or a branch, which an interpreter of single operators cannot run."""


class EdgeOpArgValidator(torch.fx.Interpreter):
    """Runs a graph with tensors and asks this package's kernels about each call of an edge operator.

    ExecuTorch asks tables of element types, which have no counterpart here.

    `violating_ops`: operator → (argument or result → element type, node) of its last call that no kernel
    takes. Results without a name are `__ret_0`, `__ret_1`, …; None is an empty list of tensors.
    """

    def __init__(self, graph_module: torch.fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.violating_ops: dict[EdgeOpOverload, tuple[dict[str, torch.dtype | None], torch.fx.Node]] = {}
        self._node: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node; what fails in it is an InternalError."""
        self._node = n
        try:
            return super().run_node(n)
        except (InternalError, ExportError, RunHigherOrderOperatorError):
            raise
        except Exception as error:
            raise InternalError(str(error)) from error

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run a call, and note it where no kernel takes it."""
        if isinstance(target, HigherOrderOperator):
            raise RunHigherOrderOperatorError("Can't run delegate")
        result = super().call_function(target, args, kwargs)
        if isinstance(target, EdgeOpOverload) and call_problem(target, args, kwargs, result, target="pteron"):
            assert self._node is not None
            types = dict([*_argument_types(target, args, kwargs), *_result_types(target, result)])
            self.violating_ops[target] = (types, self._node)
        return result


def _argument_types(
    op: EdgeOpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[str, torch.dtype | None]]:
    for position, schema in enumerate(op.schema.arguments):
        given = args[position] if position < len(args) else kwargs.get(schema.name)
        yield from _types(schema.name, given)


def _result_types(op: EdgeOpOverload, result: Any) -> Iterator[tuple[str, torch.dtype | None]]:
    results = [result] if len(op.schema.returns) == 1 else result
    for position, (schema, value) in enumerate(zip(op.schema.returns, results, strict=True)):
        yield from _types(schema.name or f"__ret_{position}", value)


def _types(name: str, value: Any) -> Iterator[tuple[str, torch.dtype | None]]:
    if isinstance(value, torch.Tensor):
        yield name, value.dtype
    elif isinstance(value, list) and all(isinstance(each, torch.Tensor) for each in value):
        yield name, value[0].dtype if value else None
