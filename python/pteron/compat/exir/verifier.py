"""ExecuTorch's verifiers as functions of an edge graph, over `EdgeDialectVerifier`."""

from __future__ import annotations

from typing import Any

import torch
from torch._export.verifier import SpecViolationError

from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.edge.verify import EdgeDialectVerifier


def EXIREdgeDialectVerifier(  # noqa: N802 -- the name that callers write
    edge_compile_config: EdgeCompileConfig | None = None,
    class_only: bool = False,
    core_aten_ops_exception_list: list[Any] | None = None,
    preserve_ops: list[Any] | None = None,
) -> Any:
    """A verifier of edge programs: calling it with a graph module, or `check`ing a program, raises
    SpecViolationError where it is none. `class_only`: the class, for `ExportedProgram(verifiers=[...])`.
    """
    is_checked = (edge_compile_config or EdgeCompileConfig())._check_ir_validity

    class Configured(EdgeDialectVerifier):
        dialect = "EDGE"

        def __call__(self, module: torch.fx.GraphModule) -> None:
            """SpecViolationError where a node of `module` is not one of an edge graph."""
            if is_checked:
                self._check_graph_module(module)

        def is_valid(self, module: torch.fx.GraphModule) -> bool:
            """Whether calling the verifier raises nothing."""
            try:
                self(module)
            except SpecViolationError:
                return False
            return True

        def check_valid_op(self, op: Any) -> None:
            """PyTorch overloads pass where the configuration says that nothing is checked."""
            if is_checked:
                super().check_valid_op(op)

    return Configured if class_only else Configured()


def _check_tensor_args_matching_op_allowed_dtype(gm: torch.fx.GraphModule) -> None:
    """Part of ExecuTorch's verifier, which its users replace by name.

    Nothing is refused here: which element types a call takes is a question to the target's kernels, and
    `to_executorch` asks it for every call of the program.
    """
